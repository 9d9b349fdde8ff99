"""From a model to a SavedModel that a stock TensorFlow Serving server runs."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfrank_sel.data import elwc
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.ops import ranking

# The lowest finite score and not -inf, which is no number in standard JSON.
PADDING_SCORE = tf.float32.min


def export(
    model: keras.Model, spec: FeatureSpec, path: str | os.PathLike[str], *, top_k: int = 10
) -> None:
    """Writes a SavedModel with the signatures of a ranker.

    * `serving_default`: `examples`, strings `[batch_size]`, each a serialized
      `ExampleListWithContext` -> `scores`, float32 `[batch_size, list_size]`, and `mask`, bool of
      the same shape, True for an item. Scores of padding are the lowest finite float32.
    * `predict`: `features`, float32 `[batch_size, list_size, num_features]` -> `scores`.
    * `rank_top_k`: `examples` as above and `k`, a positive int32 scalar -> the first `k` items of
      each list, or fewer when no list is that long: `doc_ids` (strings), `scores` and `ranks`
      (int32, from 1; 0 for padding) and `mask`, each `[batch_size, min(k, list_size)]`. Equal
      scores keep the order of the request; padding comes last, whatever an item scores.

    Features that are missing, not finite or of another number are an INVALID_ARGUMENT error of the
    request. Nothing stands at `path` unless the whole export succeeded.

    Args:
        model: Maps features `[batch_size, list_size, num_features]` to scores
            `[batch_size, list_size]`.
        spec: Names of the parts of an example and number of features.
        path: Folder to write; it must not exist.
        top_k: What `k` is when a gRPC request leaves it out; positive.

    Raises:
        FileExistsError: If `path` exists.
        ValueError: If `top_k` is not positive, if the scores have another shape, or if the model
            needs what a stock server lacks (see `check_servable`).

    Example:
        >>> model = keras.Sequential([keras.Input([None, 2]), keras.layers.Dense(1),
        ...                           keras.layers.Reshape([-1])])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export(model, FeatureSpec(num_features=2), f"{folder}/model")
        ...     sorted(tf.saved_model.load(f"{folder}/model").signatures)
        ['predict', 'rank_top_k', 'serving_default']
    """
    if top_k < 1:
        raise ValueError(f"`top_k` must be positive. Received: {top_k}")
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"`path` must not exist. Received: {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as aside:
        written = Path(aside) / "model"
        archive = keras.export.ExportArchive()
        archive.track(model)
        for endpoint, inputs in _endpoints(model, spec, top_k):
            archive.add_endpoint(endpoint.__name__, endpoint, input_signature=inputs)
        archive.write_out(str(written), verbose=False)
        check_servable(written)
        written.rename(path)


def check_servable(saved_model: str | os.PathLike[str]) -> None:
    """Refuses a SavedModel that loads in a stock server but cannot answer there.

    Such a server knows the operations of TensorFlow and TensorFlow Text alone, has no Python, and
    runs with XLA compilation disabled.

    Args:
        saved_model: Folder of the SavedModel.

    Raises:
        ValueError: If the graph calls Python, holds an operation that is not TensorFlow's, or
            demands compilation by XLA; the message names them all.
    """
    message = saved_model_pb2.SavedModel()
    message.ParseFromString((Path(saved_model) / "saved_model.pb").read_bytes())
    found = {problem for graph in message.meta_graphs for problem in _problems(graph.graph_def)}
    if found:
        raise ValueError(
            f"{saved_model} must run in a stock TensorFlow Serving server. "
            f"Received: {'; '.join(sorted(found))}"
        )


def publish(
    saved_model: str | os.PathLike[str], base: str | os.PathLike[str], version: int
) -> Path:
    """Puts a SavedModel where a server that polls `base` finds it, whole or not at all.

    The copy is made beside its place under a name that no server takes for a version, flushed to
    disk, and renamed.

    Args:
        saved_model: Folder of the SavedModel; it stays as it is.
        base: Base path of the model on the server; made when absent.
        version: Version to publish; not negative.

    Returns:
        The folder of the version.

    Raises:
        FileExistsError: If `base` holds the version, under whatever spelling (`7`, `007`).
        FileNotFoundError: If `saved_model` holds no SavedModel.
        ValueError: If `version` is negative.
    """
    if version < 0:
        raise ValueError(f"`version` must not be negative. Received: {version}")
    saved_model, base = Path(saved_model), Path(base)
    if not (saved_model / "saved_model.pb").is_file():
        raise FileNotFoundError(f"`saved_model` must hold saved_model.pb. Received: {saved_model}")
    base.mkdir(parents=True, exist_ok=True)
    for child in base.iterdir():
        if child.name.isdecimal() and int(child.name) == version:
            raise FileExistsError(f"`version` must be new in {base}. Received: {child.name}")
    published = base / str(version)
    with tempfile.TemporaryDirectory(prefix=".publish-", dir=base) as aside:
        copy = Path(shutil.copytree(saved_model, Path(aside) / "model"))
        for folder, _, files in os.walk(copy):
            for name in (*files, "."):
                _flush(os.path.join(folder, name))
        copy.rename(published)
    _flush(base)
    return published


def _endpoints(
    model: keras.Model, spec: FeatureSpec, top_k: int
) -> list[tuple[Callable[..., dict[str, tf.Tensor]], list[tf.TensorSpec]]]:
    """Returns the functions behind the signatures of the same names, with their inputs."""
    lists = tf.TensorSpec([None], tf.string, name="examples")
    dense = tf.TensorSpec([None, None, spec.num_features], tf.float32, name="features")
    number = tf.TensorSpec([], tf.int32, name="k")

    def scored(examples: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        parsed = elwc.parse(examples, spec)
        scores = _scores(model, spec, parsed[spec.features])
        return parsed, tf.where(parsed["mask"], scores, PADDING_SCORE)

    def serving_default(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed, scores = scored(examples)
        return {"scores": scores, "mask": parsed["mask"]}

    def predict(features: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": _scores(model, spec, features)}

    def rank_top_k(examples: tf.Tensor, k: Any = tf.constant(top_k)) -> dict[str, tf.Tensor]:  # noqa: B008
        parsed, scores = scored(examples)
        positive = tf.debugging.Assert(k > 0, ["`k` must be positive. Received: k =", k])
        with tf.control_dependencies([positive]):
            mask = tf.identity(parsed["mask"])
        columns = (parsed[spec.doc_id], scores, mask)
        doc_ids, scores, mask = ranking.sort_by(scores, *columns, mask=mask, k=k)
        ranks = tf.where(mask, tf.range(1, tf.shape(mask)[1] + 1), 0)
        return {"doc_ids": doc_ids, "scores": scores, "ranks": ranks, "mask": mask}

    return [(serving_default, [lists]), (predict, [dense]), (rank_top_k, [lists, number])]


def _scores(model: keras.Model, spec: FeatureSpec, features: tf.Tensor) -> tf.Tensor:
    """Returns the model's scores of checked features."""
    # A server does not compare a request with the signature's shape; the graph has to.
    features = tf.ensure_shape(features, [None, None, spec.num_features])
    features = tf.debugging.check_numerics(features, f"`{spec.features}` must be finite")
    scores = model(features, training=False)
    if scores.shape.rank != 2:
        raise ValueError(
            f"`model` must give scores of shape [batch_size, list_size]. Received: {scores.shape}"
        )
    return tf.cast(scores, tf.float32)


def _problems(graph: Any) -> Iterator[str]:
    """Yields what in a graph a stock server cannot run."""
    functions = {function.signature.name: function for function in graph.library.function}
    for name, function in functions.items():
        if function.attr["_XlaMustCompile"].b:
            yield f"{name} demands XLA (jit_compile=True)"
    for nodes in (graph.node, *(function.node_def for function in functions.values())):
        for node in nodes:
            if node.op in ("PyFunc", "PyFuncStateless", "EagerPyFunc"):
                yield f"{node.op} calls Python"
            elif not (
                # Not the registry of this process, which also holds what libraries have loaded.
                hasattr(tf.raw_ops, node.op)
                or node.op.startswith("TFText>")
                or node.op in functions
            ):
                yield f"{node.op} is not an operation of TensorFlow"
            if node.attr["_XlaMustCompile"].b:
                yield f"{node.name} demands XLA (jit_compile=True)"


def _flush(path: str | os.PathLike[str]) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
