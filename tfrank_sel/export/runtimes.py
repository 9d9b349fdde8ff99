"""Export of rankers as files of other runtimes, which roads beside the core write."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tfrank_sel import roads
from tfrank_sel.arguments import StrPath


def onnx(model: keras.Model, path: StrPath) -> None:
    """Writes a ranker as a file of ONNX. Requires the extra `onnx`.

    The graph has only standard operators (opset 18), computes in float32 and float64, and takes any
    number of lists of any size. Its inputs are those of the signature `predict` of `export`:

    * `features`, float32 `[batch, items, num_features]`; or each feature of a typed
      `models.Preparation` under its name, as in `export`;
    * `mask`, Boolean `[batch, items]` or broadcast to it, True for an item; optional, and only if
      the model has `takes_mask`;
    * `user`, int64 `[batch]`, and `item`, int64 `[batch, items]`, of a `models.TwoTower`;
    * of a functional model, its own inputs by name, or `features` if it has one.

    The output is `scores`, float32 `[batch, items]`. Scores of padding are the lowest finite
    float32 if there is a mask. A `models.TwoTower` has two more outputs, the vectors `users`
    `[batch, num_factors]` and `items` `[batch, items, num_factors]`.

    Unlike `predict`, the graph does not check that features are finite. Texts match the usual
    spellings of the values of a vocabulary: `True`, `7.0`, and times in ISO format.

    Args:
        model: A model of `tfrank_sel.models`, or a `keras.Sequential` or functional model of
            standard layers; built.
        path: File to write; it must not exist.

    Raises:
        FileExistsError: If `path` exists, or another process is writing it.
        ImportError: If the package `onnx` is not installed, or Keras is older than 3.
        ValueError: If the model has a layer, or an option of a layer, that has no form in ONNX; if
            the scores have the wrong shape; or if the file would have 2 GB or more. No file is
            written then.

    Example:
        ```python
        export.onnx(model, "ranker.onnx")
        session = onnxruntime.InferenceSession("ranker.onnx")
        [scores] = session.run(["scores"], {"features": features, "mask": mask})
        ```
    """
    roads.load("onnx", "`export.onnx`").write(model, path)


def search_engine(
    model: keras.Model,
    path: StrPath,
    engine: str,
    features: Sequence[str] | Mapping[str, Mapping[str, Any]],
    name: str = "ranker",
    version: str | None = None,
    missing: float | None = math.nan,
) -> None:
    """Writes boosted trees as a JSON file that a search engine ranks with, without TensorFlow.

    The file is the body of the engine's request that adds a model, except for Vespa:

    * `"solr"`: `PUT .../schema/model-store`, a `MultipleAdditiveTreesModel`.
    * `"opensearch"`: `POST _ltr/_featureset/.../_createmodel` of the plugin Learning to Rank, a
      `model/xgboost+json`.
    * `"o19s"`: the same of o19s' plugin for Elasticsearch.
    * `"elasticsearch"`: `PUT _ml/trained_models/...`, trees for the rescorer `learning_to_rank`.
    * `"vespa"`: a file of the folder `models` for `xgboost("ranker.json")` in a rank profile.

    Versions differ in features that a document lacks ([table](docs/engines.md)). The engine scores
    them as the model scores `missing`; a version that cannot is refused. Without `version`, the
    file scores alike in all versions that the engine's table has, or is refused.

    Engines add up the trees in another order, so scores may differ in the last digits of float32.

    Args:
        model: The trees, built; for other models see `onnx`.
        path: File to write; it must not exist.
        engine: `"solr"`, `"opensearch"`, `"o19s"`, `"elasticsearch"` or `"vespa"`.
        features: Names of the features in the engine, in the order of the model's columns. For
            `"elasticsearch"`, each name with the query whose score is the feature.
        name: Name of the model in the engine; a file for Vespa has none.
        version: Version of the engine, such as `"3.7"`; for `"o19s"` of the plugin.
        missing: Value in the training data for a feature that the document lacks. None if no
            document in the engine lacks one: then each version has a file.

    Raises:
        FileExistsError: If `path` exists, or another process is writing it.
        TypeError: If `model` is not made of trees.
        ValueError: If `engine` is unknown, if there is not one name for each feature, or if no file
            makes the version score as the model does.

    Example:
        ```python
        trees = models.BoostedTrees.from_lightgbm(booster)
        export.search_engine(trees, "ranker.json", "solr", booster.feature_name(), version="9.7")
        ```
    """
    trees = roads.load("engines", "`export.search_engine`", "trees")
    trees.write(model, path, engine, features, name, version, missing)
