"""Signatures of a served ranker."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.arguments import StrPath
from tfrank_sel.data import packed, parsing
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.errors import refusal
from tfrank_sel.export import saved_model
from tfrank_sel.export.inputs import PACKED, ModelInputs, Request, Spec, Values
from tfrank_sel.listwise import as_lists
from tfrank_sel.locks import atomic_path
from tfrank_sel.models import explanation
from tfrank_sel.ops import ranking

Tensors: TypeAlias = dict[str, tf.Tensor]

# The lowest finite score, because -inf is not a number in standard JSON.
PADDING_SCORE = tf.float32.min

Endpoint = Callable[..., Tensors]
Signature = Any  # a `tf.function` or a trace of one
Score = Callable[[Tensors], tf.Tensor]


def export(
    model: keras.Model,
    spec: Spec,
    path: StrPath,
    *,
    top_k: int = 10,
    doc_id: str = "doc_id",
    examples: Sequence[bytes] = (),
    metadata: Mapping[str, Any] | None = None,
    score: Score | None = None,
) -> None:
    """Writes a SavedModel with the signatures of a ranker.

    * `serving_default`: `examples`, strings `[batch_size]`, each a serialized
      `ExampleListWithContext` -> `scores`, float32 `[batch_size, list_size]`, and `mask`, bool of
      the same shape, True for an item. Scores of padding are the lowest finite float32.
    * `predict`: `features`, float32 `[batch_size, list_size, num_features]`, or each named feature
      under its name, and `mask`, bool `[batch_size, list_size]` or broadcast to it -> `scores` and
      `mask`. The mask is optional in a gRPC request; in REST, where all inputs are required, pass
      `[[true]]`. Absent if a feature is not a `tf.io.FixedLenFeature`.
    * `predict_bytes`, of packed features: `features`, strings `[batch_size]`, each the
      little-endian float32 of one list, item by item -> `scores` and `mask`. The fastest format for
      gRPC, and for REST in base64.
    * `explain`: the inputs of `predict`, and `pair`, int32 `[batch_size, 2]`, the index of an item
      of each list and of another one -> `contributions` of the features to the difference of the
      two scores, as in `models.explain`, their standard `errors` and the names of the `features`,
      each `[batch_size, number of features of items]`. Absent if `predict` is.
    * `rank_top_k`: `examples` as above and `k`, positive int32, one for all lists or one per list
      (required by server-side batching) -> the first `k` items of each list, or fewer if all lists
      are shorter: `doc_ids` (strings), `scores` and `ranks` (int32, from 1; 0 for padding) and
      `mask`, each `[batch_size, min(k, list_size)]`. Equal scores keep the order of the request;
      padding is always last.
    * `regress`: `inputs`, strings `[num_items]`, each a serialized `tf.train.Example` of one item
      -> `outputs`, `[num_items]`, each item scored as a list of one item.
    * `tensorflow/serving/predict` and `tensorflow/serving/regress`: the names in
      tensorflow-ranking, for its clients: `inputs` as in `serving_default` and `regress` -> only
      `outputs`.

    A request fails with INVALID_ARGUMENT if features are missing, not finite or of the wrong
    number. `path` is created only after the whole export has succeeded and is on disk.

    Strings and integers go through the model's own lookup layers; vocabularies that these read from
    a file are copied to `assets`. The folder `assets.extra` holds `manifest.json` (the expected
    inputs, versions, the SHA-256 of the weights, and `metadata`) and warm-up requests made of
    `examples`, which a server runs on every signature before it serves this version: each list
    alone, then all lists together. `batching_params.pbtxt` configures batching on the server.

    Args:
        model: Maps features to scores `[batch_size, list_size]`: packed ones of shape
            `[batch_size, list_size, num_features]`, or a dict of named ones, those of the query
            `[batch_size, ...]`. If it has the attribute `takes_mask`, it gets a dict with the mask
            together with them, as `data.batches(..., inputs=["features", "mask"])` gives.
        spec: A `Schema`, or the `tfrank_sel.features` type of each feature by name, for a model
            whose `models.Preparation` takes these; a `FeatureSpec`, the short form of packed
            features; or the features of a request by name, without a label, as `ListFeatures`.
        path: Folder to write; it must not exist.
        top_k: Default of `k` in gRPC requests; positive.
        doc_id: Name of the item identifier, if `spec` does not define it.
        examples: Serialized lists for warm-up requests, such as a few of the validation split.
        metadata: Additional JSON-ready content of the manifest, such as metrics.
        score: A `tf.function` from the features and the mask by name to the scores of `model`, if
            there is one: then the model is not traced again.

    Raises:
        FileExistsError: If `path` exists, or another process is exporting to it.
        ValueError: If `top_k` is not positive, if the scores have the wrong shape, if `examples`
            make more than 1000 warm-up requests, or if a stock server cannot run the model (see
            `check_servable`).

    Example:
        >>> model = keras.Sequential([keras.Input([None, 2]), keras.layers.Dense(1)])
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export(model, FeatureSpec(num_features=2), f"{folder}/model")
        ...     sorted(tf.saved_model.load(f"{folder}/model").signatures)[:4]
        ['explain', 'predict', 'predict_bytes', 'rank_top_k']
    """
    if top_k < 1:
        raise refusal("`top_k` must be positive", top_k)
    inputs = ModelInputs.of(spec, doc_id)
    with atomic_path(Path(path)) as written:
        served = _signatures(model, inputs, top_k, score)
        tf.saved_model.save(_module(model, served), str(written), signatures=served)
        saved_model.check_servable(written)
        saved_model.write_manifest(written, inputs.description, metadata or {})
        saved_model.write_batching(written)
        if examples:
            saved_model.write_warm_up(written, _requests(inputs, served, examples, top_k))


def _signatures(
    model: keras.Model, inputs: ModelInputs, top_k: int, score: Score | None
) -> dict[str, Signature]:
    """Returns the signatures by name, each traced once."""
    # one trace of the model and one of the parser, which all signatures call
    scores = tf.function(functools.partial(_scores, model, inputs, score), autograph=False)
    parse = tf.function(inputs.parse, autograph=False)

    def strings(name: str) -> tf.TensorSpec:
        return tf.TensorSpec([None], tf.string, name=name)

    def masked_scores(values: Values, mask: tf.Tensor) -> Tensors:
        return {
            "scores": tf.where(mask, scores(values, mask), PADDING_SCORE),
            "mask": mask,
        }

    def broadcast(mask: tf.Tensor, values: Values) -> tf.Tensor:
        lists = inputs.size(values)
        size = tf.concat([[1, 1], tf.shape(mask)], 0)[-2:]  # also of a mask of fewer axes
        rule = f"`{inputs.mask}` must be broadcast to the lists. Received: shapes"
        fits = tf.reduce_all((size == 1) | (size == lists))
        with tf.control_dependencies([tf.debugging.Assert(fits, [rule, size, lists])]):
            return tf.broadcast_to(mask, lists)

    def serving_default(examples: tf.Tensor) -> Tensors:
        lists = parse(examples)
        return masked_scores(lists.values, lists.mask)

    def predict(values: Values, mask: Any = tf.constant([[True]])) -> Tensors:  # noqa: B008
        return masked_scores(values, broadcast(mask, values))

    def predict_bytes(features: tf.Tensor) -> Tensors:
        matrix, mask = packed.decode(features, cast(FeatureSpec, inputs.packed))
        return masked_scores(dict.fromkeys(inputs.names, matrix), mask)

    def explain(values: Values, mask: tf.Tensor, pair: tf.Tensor) -> Tensors:
        names, numbers = inputs.explained_features
        mask = broadcast(mask, values)
        found = explanation.contributions(scores, values, mask, pair, numbers)
        return {
            "contributions": found.values,
            "errors": found.errors,
            "features": tf.broadcast_to(names, tf.shape(found.values)),
        }

    def rank_top_k(examples: tf.Tensor, k: Any = tf.constant([top_k])) -> Tensors:  # noqa: B008
        lists = parse(examples)
        return _top_items(lists.doc_ids, **masked_scores(lists.values, lists.mask), k=k)

    def items(examples: tf.Tensor) -> tf.Tensor:
        alone = tf.ones([tf.size(examples), 1], tf.bool)
        return scores(inputs.parse_items(examples), alone)[:, 0]

    def regress(inputs: tf.Tensor) -> Tensors:
        return {"outputs": items(inputs)}

    def ranking_predict(inputs: tf.Tensor) -> Tensors:
        return {"outputs": serving_default(inputs)["scores"]}

    dense = inputs.structure()
    mask = tf.TensorSpec([None, None], tf.bool, name=inputs.mask)
    number = tf.TensorSpec(None, tf.int32, name="k")
    endpoints: list[tuple[str, Endpoint, list[Any]]] = [
        ("serving_default", serving_default, [strings("examples")]),
        ("rank_top_k", rank_top_k, [strings("examples"), number]),
        ("regress", regress, [strings("inputs")]),
        ("tensorflow/serving/predict", ranking_predict, [strings("inputs")]),
    ]
    if dense is not None:
        endpoints.append(("predict", predict, [dense, mask]))
        pair = _pair(inputs.names.values())
        pairs = tf.TensorSpec([None, 2], tf.int32, pair)
        endpoints.append(("explain", explain, [dense, mask, pairs]))
    if inputs.packed is not None:
        endpoints.append(("predict_bytes", predict_bytes, [strings(PACKED)]))
    found = {name: _trace(endpoint, taken) for name, endpoint, taken in endpoints}
    return {**found, "tensorflow/serving/regress": found["regress"]}


def _trace(endpoint: Endpoint, taken: list[Any]) -> Signature:
    """Returns the only trace of a function, with its defaults if it has any."""
    checked = saved_model.check_shapes(endpoint, taken)
    trace = tf.function(checked, autograph=False).get_concrete_function(*taken)
    if all(x.default is x.empty for x in inspect.signature(endpoint).parameters.values()):
        return trace

    @functools.wraps(endpoint)
    def call(*arguments: Any) -> Any:
        return trace(*arguments)

    return tf.function(call, input_signature=taken, autograph=False)


def _module(model: keras.Model, served: Mapping[str, Signature]) -> tf.Module:
    """Returns what a SavedModel holds: its signatures, and the variables and tables they use."""
    root = tf.Module()
    for name, signature in served.items():
        setattr(root, name, signature)
    root.captured = served["serving_default"].variables
    root.tables = [
        found
        for found in tf.train.TrackableView(model).descendants()
        if isinstance(found, tf.saved_model.experimental.TrackableResource)
    ]
    return root


def _pair(inputs: Iterable[str]) -> str:
    """The name of the input of two items, beside these."""
    return "pair_" if "pair" in inputs else "pair"


def _top_items(doc_ids: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, k: tf.Tensor) -> Tensors:
    """Returns the first items of each list."""
    positive = tf.debugging.Assert(tf.reduce_all(k > 0), ["`k` must be positive. Received: k =", k])
    with tf.control_dependencies([positive]):
        largest = tf.reduce_max(tf.concat([tf.reshape(k, [-1]), [1]], 0))
    columns = (doc_ids, scores, mask)
    doc_ids, scores, mask = ranking.sort_by(scores, *columns, mask=mask, k=largest)
    places = tf.range(1, tf.shape(mask)[1] + 1)
    mask &= places <= tf.reshape(k, [-1, 1])
    return {
        "doc_ids": tf.where(mask, doc_ids, ""),
        "scores": tf.where(mask, scores, PADDING_SCORE),
        "ranks": tf.where(mask, places, 0),
        "mask": mask,
    }


def _requests(
    inputs: ModelInputs, served: Iterable[str], examples: Sequence[bytes], top_k: int
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yields a request to each signature but `explain` for each list, and for all together."""
    groups = [[x] for x in examples] + ([list(examples)] if len(examples) > 1 else [])
    for number, group in enumerate(groups):
        lists = np.array(group, np.object_)
        yield "serving_default", {"examples": lists}
        yield "rank_top_k", {"examples": lists, "k": np.full(len(group), top_k, np.int32)}
        yield "tensorflow/serving/predict", {"inputs": lists}
        parsed = inputs.parse(tf.constant(lists))
        mask = parsed.mask.numpy()
        if "predict" in served:
            dense = {name: value.numpy() for name, value in _dense(inputs, parsed).items()}
            yield "predict", dense
            if number == 0 and mask.any():  # once, since it takes the longest
                yield "explain", {**dense, _pair(dense): np.zeros([1, 2], np.int32)}
        if "predict_bytes" in served:
            rows = zip(dense[PACKED], mask, strict=True)
            octets = [values[is_item].tobytes() for values, is_item in rows]
            yield "predict_bytes", {PACKED: np.array(octets, np.object_)}
        items, context, _ = parsing.split(tf.constant(lists))
        # a parser merges the query with each item
        merged = (context.numpy()[:, np.newaxis] + items.numpy())[mask]
        if len(merged):
            yield "regress", {"inputs": merged}
            yield "tensorflow/serving/regress", {"inputs": merged}


def dense_inputs(examples: tf.Tensor, spec: Spec, doc_id: str = "doc_id") -> Tensors:
    """Converts serialized lists to the inputs of the signature `predict`.

    Args:
        examples: As `serving_default` takes them.
        spec: As in `export`.
        doc_id: As in `export`.
    """
    inputs = ModelInputs.of(spec, doc_id)
    return _dense(inputs, inputs.parse(examples))


def _dense(inputs: ModelInputs, parsed: Request) -> Tensors:
    dense = {inputs.names[name]: value for name, value in sorted(parsed.values.items())}
    return {inputs.mask: parsed.mask, **dense}


def _scores(
    model: keras.Model, inputs: ModelInputs, score: Score | None, values: Values, mask: tf.Tensor
) -> tf.Tensor:
    """Returns the model's scores of checked features."""
    taken: Any = inputs.check(values)
    if score or getattr(model, "takes_mask", False):
        taken = {**taken, inputs.mask: mask}
    elif inputs.packed is not None:
        [taken] = taken.values()
    scores = as_lists(score(taken) if score else model(taken, training=False))
    if scores.shape.rank != 2:
        shapes = "[batch_size, list_size] or [batch_size, list_size, 1]"
        raise refusal(f"`model` must give scores of shape {shapes}", scores.shape)
    return tf.cast(scores, tf.float32)
