"""Lists as `ExampleListWithContext` (ELWC): written in NumPy, read in the graph.

The wire format is that of `tensorflow.serving.ExampleListWithContext`: a list of serialized
`tf.train.Example`, one for each item, and one more for the query. The reader has its own
descriptor, so neither this package nor a server needs the protos of tensorflow-serving-api.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tfrank_sel import lazy
from tfrank_sel.data import writing
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.errors import refusal

if TYPE_CHECKING:
    import tensorflow as tf

    from tfrank_sel.data import parsing
else:
    tf, parsing = lazy.Module("tensorflow"), lazy.Module("tfrank_sel.data.parsing")


def serialize(
    features: np.ndarray,
    spec: FeatureSpec,
    *,
    labels: Sequence[float] | np.ndarray | None = None,
    doc_ids: Sequence[bytes] | None = None,
    query_id: bytes = b"",
    texts: npt.ArrayLike | None = None,
    weights: Sequence[float] | np.ndarray | None = None,
) -> bytes:
    """Writes one list as a serialized `ExampleListWithContext`.

    Args:
        features: Features of the items, of shape `[list_size, spec.num_features]`; `list_size` may
            be 0.
        spec: Names of the parts and number of features.
        labels: Relevance labels, of shape `[list_size]`, or None to leave them out.
        doc_ids: Identifiers of the items, `list_size` of them, or None to leave them out.
        query_id: Identifier of the query.
        texts: Texts of the items, `[list_size, spec.num_texts]`; None if `num_texts` is 0.
        weights: Weight of each item, `[list_size]`, if `spec.weight` is set; None for 1.

    Returns:
        The bytes of the message.

    Raises:
        ValueError: If a part does not have its size above, weights have no name, a number is beyond
            float32, or there are no floats, only texts.

    Example:
        >>> spec = FeatureSpec(num_features=2)
        >>> written = serialize(np.array([[1.0, 2.0], [3.0, 4.0]]), spec, labels=[1.0, 0.0])
        >>> parse(tf.constant([written]), spec)["relevance"].numpy().tolist()
        [[1.0, 0.0]]
    """
    features = spec.check(features, labels, doc_ids, texts, weights)
    if not spec.num_features:
        raise refusal("an item of ELWC must have at least one float", spec)
    parts: dict[str, Any] = {spec.features: features.tolist()}
    if labels is not None:
        parts[spec.label] = map(float, labels)
    if doc_ids is not None:
        parts[spec.doc_id] = doc_ids
    if texts is not None:
        parts[spec.texts] = np.asarray(texts, np.object_).tolist()
    if weights is not None and spec.weight is not None:
        parts[spec.weight] = map(float, weights)
    items = [dict(zip(parts, item, strict=True)) for item in zip(*parts.values(), strict=True)]
    return writing.elwc(items, {spec.query_id: query_id})


def parse(
    serialized: "tf.Tensor", spec: FeatureSpec, *, list_size: "int | tf.Tensor | None" = None
) -> "dict[str, tf.Tensor]":
    """Reads a batch of serialized `ExampleListWithContext` into dense tensors.

    Runs eagerly, in a `tf.function` and in `tf.data`, using only operations of stock TensorFlow.

    Args:
        serialized: Serialized lists, strings of shape `[batch_size]`; `batch_size` may be 0.
        spec: Names of the parts and number of features.
        list_size: Number of items to truncate and pad every list to; None for the length of the
            longest list of the batch. A longer list keeps its first items.

    Returns:
        A dict:

        * `spec.features`: float32 of shape `[batch_size, list_size, num_features]`, 0 at padding.
        * `spec.label`: float32 of shape `[batch_size, list_size]`, NaN if missing.
        * `spec.doc_id`: strings of shape `[batch_size, list_size]`, empty if missing.
        * `"mask"`: bool of shape `[batch_size, list_size]`, True for an item, False for padding.
        * `spec.texts`, if there are any: strings of shape `[batch_size, list_size, num_texts]`,
          empty at padding.
        * `spec.weight`, if set: float32 of shape `[batch_size, list_size]`, 1 if missing, 0 at
          padding.

    Raises:
        tf.errors.DataLossError: If an element is not such a message.
        tf.errors.InvalidArgumentError: If an item has no `spec.features`, or not `num_features`
            floats there, or has another part of the wrong type or number.

    Example:
        >>> spec = FeatureSpec(num_features=1)
        >>> lists = [np.array([[0.5], [1.5]]), np.array([[2.5]])]
        >>> parsed = parse(tf.constant([serialize(x, spec) for x in lists]), spec)
        >>> parsed["features"][:, :, 0].numpy().tolist()
        [[0.5, 1.5], [2.5, 0.0]]
        >>> parsed["mask"].numpy().tolist()
        [[True, True], [True, False]]
    """
    items = dataclasses.replace(spec.list_features(), context={})
    parsed = parsing.parse_elwc(serialized, items, list_size=list_size)
    return {name: parsed[name] for name in (*items.items, items.mask)}
