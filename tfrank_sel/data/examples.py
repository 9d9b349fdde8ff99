"""Records of the packed layout, written and read without TensorFlow.

They are messages of `tf.train.Example`, by descriptors of their own: see `packed`.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from tfrank_sel.data.lists import Lists
from tfrank_sel.data.spec import FeatureSpec, narrow
from tfrank_sel.data.writing import field, head
from tfrank_sel.errors import refusal

_FLOAT = 4  # bytes of a float32
# Only features of bytes are read. The entries of the map are a repeated field on the wire.
_FILE = """
name: "tfrank_sel/examples.proto" package: "tfrank_sel.data" syntax: "proto3"
message_type { name: "Values" field {
  name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Feature" field {
  name: "bytes_list" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
  type_name: ".tfrank_sel.data.Values" } }
message_type { name: "Entry"
  field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
    type_name: ".tfrank_sel.data.Feature" } }
message_type { name: "Features" field {
  name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
  type_name: ".tfrank_sel.data.Entry" } }
message_type { name: "Example" field {
  name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
  type_name: ".tfrank_sel.data.Features" } }
"""


def _message(name: str) -> type[Any]:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"tfrank_sel.data.{name}"))


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))
_Values, _Feature, _Example = map(_message, ("Values", "Feature", "Example"))


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
    """Writes one list in the packed layout.

    Args:
        features: As in `tfrank_sel.data.elwc.serialize`, as all others.
        spec: Names of the parts and number of features.
        labels: Relevance labels.
        doc_ids: Identifiers of the items.
        query_id: Identifier of the query.
        texts: Texts of the items.
        weights: Weights of the items.

    Returns:
        The bytes of the `tf.train.Example`; equal lists give equal bytes.

    Raises:
        ValueError: As in `tfrank_sel.data.elwc.serialize`.

    Example:
        >>> spec = FeatureSpec(num_features=2)
        >>> written = serialize(np.array([[1.0, 2.0], [3.0, 4.0]]), spec, labels=[1.0, 0.0])
        >>> items([written], spec).labels.tolist()
        [1.0, 0.0]
    """
    features = spec.check(features, labels, doc_ids, texts, weights)
    lists = {spec.features: [features.tobytes()]}
    if labels is not None:
        lists[spec.label] = [narrow(spec.label, labels).tobytes()]
    if doc_ids is not None:
        lists[spec.doc_id] = list(doc_ids)
    lists[spec.query_id] = [query_id]
    if texts is not None:
        of_items: npt.NDArray[Any] = np.asarray(texts, np.object_)
        lists[spec.texts] = [x.encode() if isinstance(x, str) else x for x in of_items.flat]
    if weights is not None and spec.weight is not None:
        lists[spec.weight] = [narrow(spec.weight, weights).tobytes()]
    parts = [part for name, values in sorted(lists.items()) for part in _feature(name, values)]
    return b"".join([head(1, sum(map(len, parts))), *parts])


def _feature(name: str, values: Sequence[bytes]) -> list[bytes]:
    """The parts of one entry of the map of features, to be joined at the end."""
    if len(values) == 1:
        inner = [head(1, len(values[0])), values[0]]
    else:
        inner = [_Values(value=values).SerializeToString()]
    size = sum(map(len, inner))
    feature = head(1, size)
    value = head(2, len(feature) + size)
    key = field(1, name.encode())
    return [head(1, len(key) + len(value) + len(feature) + size), key, value, feature, *inner]


def octets(record: bytes) -> dict[bytes, Sequence[bytes]]:
    """Returns the values of each feature of bytes of a `tf.train.Example`, by name.

    Raises:
        google.protobuf.message.DecodeError: If it is no such message.
    """
    return {name: feature.bytes_list.value for name, feature in _entries(record).items()}


def _entries(record: bytes) -> dict[bytes, Any]:
    return {entry.key: entry.value for entry in _Example.FromString(record).features.feature}


def items(serialized: Sequence[bytes], spec: FeatureSpec) -> Lists:
    """Reads a batch of lists in the packed layout without padding.

    Args:
        serialized: The records, as a sequence or a tensor.
        spec: Names of the parts and number of features.

    Returns:
        The lists, without their queries. Labels are NaN in a list without labels; texts are bytes.

    Raises:
        google.protobuf.message.DecodeError: If a record is no `tf.train.Example`.
        ValueError: If features, labels and texts do not have the same whole number of items, or
            are of another kind than the layout has.

    Example:
        >>> spec = FeatureSpec(num_features=1)
        >>> batch = items([serialize(x, spec) for x in ([[0.5], [1.5]], [[2.5]])], spec)
        >>> batch.sizes.tolist(), batch.features.tolist()
        ([2, 1], [[0.5], [1.5], [2.5]])
    """
    records = getattr(serialized, "numpy", lambda: serialized)()
    columns = [*map(_entries, records)]
    numbers, labels, of_texts = (
        _values(columns, name) for name in (spec.features, spec.label, spec.texts)
    )
    for name, values in ((spec.features, numbers), (spec.label, labels)):
        if (most := max(map(len, values), default=0)) > 1:
            raise refusal(f"`{name}` must be one value of bytes", most)
    if spec.num_features:
        sizes = _sizes(spec.features, _lengths(numbers), _FLOAT * spec.num_features)
    else:
        sizes = _sizes(spec.texts, _counts(of_texts), spec.num_texts)
    count, has_labels = int(sizes.sum()), _lengths(labels) > 0
    _check(spec.label, "bytes", _lengths(labels)[has_labels], _FLOAT * sizes[has_labels])
    of_items = np.full(count, np.nan, np.float32)
    of_items[np.repeat(has_labels, sizes)] = _join(labels)
    matrix = np.zeros([count, 0], np.object_)
    if spec.num_texts:
        _check(spec.texts, "values", _counts(of_texts), spec.num_texts * sizes)
        flat = np.array([*itertools.chain.from_iterable(of_texts)], np.object_)
        matrix = flat.reshape(count, spec.num_texts)
    features = _join(numbers).reshape(count, spec.num_features)
    return Lists.of(sizes, features, matrix, label=of_items)


def _values(columns: Sequence[dict[bytes, Any]], name: str) -> list[Sequence[bytes]]:
    """The values of a feature in each record; none where it is absent."""
    key, absent = name.encode(), _Feature()
    features = [column.get(key, absent) for column in columns]
    # Kinds other than bytes are unknown to the descriptors, but have a size.
    if any(not feature.HasField("bytes_list") and feature.ByteSize() for feature in features):
        raise refusal(f"`{name}` must have values of bytes", "another kind")
    return [feature.bytes_list.value for feature in features]


def _join(values: Sequence[Sequence[bytes]]) -> npt.NDArray[np.float32]:
    """The numbers of all lists, of which each has one value of bytes or none."""
    return np.frombuffer(b"".join(itertools.chain.from_iterable(values)), "<f4")


def _lengths(values: Sequence[Sequence[bytes]]) -> npt.NDArray[np.int64]:
    return np.array([sum(map(len, x)) for x in values], np.int64)


def _counts(values: Sequence[Sequence[bytes]]) -> npt.NDArray[np.int64]:
    return np.array([*map(len, values)], np.int64)


def _sizes(name: str, lengths: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """The number of items of each list, of which each has a width."""
    if (lengths % width).any():
        raise refusal(f"`{name}` must be {width} for each item", lengths[lengths % width > 0][0])
    return lengths // width


def _check(
    name: str, unit: str, lengths: npt.NDArray[np.int64], expected: npt.NDArray[np.int64]
) -> None:
    if (lengths != expected).any():
        wrong = np.flatnonzero(lengths != expected)[0]
        raise refusal(f"`{name}` must have {expected[wrong]} {unit}", lengths[wrong])
