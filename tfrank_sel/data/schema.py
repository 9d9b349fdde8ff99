"""Conversion between the features of a list and a schema of tensorflow-metadata.

The schema has the form that TFX uses for `tf.train.SequenceExample`: features of the query are at
the top level, and those of the items in the struct `##SEQUENCE##`. Additional information for
readers (the kind, and a default) is in a group of tensor representations, `tfrank_sel`, and padding
values are in `tfrank_sel.padding`; other tools ignore these groups.
"""

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfrank_sel.data.spec import FeatureSpec, ListFeatures

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

ITEMS = "##SEQUENCE##"
_GROUP, _PADDING = "tfrank_sel", "tfrank_sel.padding"


def to_schema(features: ListFeatures | FeatureSpec) -> "schema_pb2.Schema":
    """Returns the schema of lists: name, type, shape and default of each feature.

    A `tf.io.FixedLenFeature` without default is required and has a shape, and one with a default
    has as many values if any; a `VarLenFeature` or `RaggedFeature` (a bag of ids, strings) has any
    number of values. The parts of a `FeatureSpec` are features like others, tagged with their role.

    Args:
        features: The features of the query and of the items. The names of mask and size are not
            kept: they are not stored.

    Returns:
        The schema.

    Raises:
        ImportError: If tensorflow-metadata is not installed.
        ValueError: If a default or padding value has several different values, or a `RaggedFeature`
            has partitions: a schema cannot represent them.
    """
    messages = _messages()
    schema = messages.Schema()
    named = features.named() if isinstance(features, FeatureSpec) else features
    top = schema.feature
    items = top.add(name=ITEMS, type=messages.STRUCT).struct_domain.feature
    group = schema.tensor_representation_group[_GROUP]
    for fields, kinds in ((items, named.items), (top, named.context)):
        for name, kind in kinds.items():
            _add(fields, group.tensor_representation[name], name, kind)
    for name in named.padding:
        padding = schema.tensor_representation_group[_PADDING].tensor_representation[name]
        _set_default(padding.dense_tensor, name, named.items[name].dtype, named.padding[name])
    if isinstance(features, FeatureSpec):
        by_name = {field.name: field for field in (*items, *top)}
        for role in _roles():
            by_name[getattr(features, role)].annotation.tag.append(role)
    return schema


def from_schema(schema: "schema_pb2.Schema") -> ListFeatures:
    """Returns the features of lists that a schema describes.

    In a schema from another tool, a feature with a shape is a `tf.io.FixedLenFeature` without
    default. Any other is a `VarLenFeature`, or a `RaggedFeature` if the schema sets
    `represent_variable_length_as_ragged`.

    Args:
        schema: The schema, with the features of the items in the struct `##SEQUENCE##`.

    Raises:
        ValueError: If there is no feature of items.
    """
    structs = [field for field in schema.feature if field.name == ITEMS]
    if not structs:
        names = [field.name for field in schema.feature]
        raise ValueError(f"`schema` must have the struct {ITEMS!r}. Received: {names}")
    groups = schema.tensor_representation_group
    padding = groups[_PADDING].tensor_representation if _PADDING in groups else {}
    return ListFeatures(
        items={field.name: _kind(schema, field) for field in structs[0].struct_domain.feature},
        context={
            field.name: _kind(schema, field) for field in schema.feature if field.name != ITEMS
        },
        padding={name: _default(padding[name].dense_tensor) for name in sorted(padding)},
    )


def feature_spec(schema: "schema_pb2.Schema") -> FeatureSpec:
    """Returns the `FeatureSpec` from which `to_schema` made a schema.

    Args:
        schema: The schema.

    Raises:
        ValueError: If a part of a `FeatureSpec` is not tagged on exactly one feature.
    """
    structs = [field for field in schema.feature if field.name == ITEMS]
    fields = [*schema.feature, *(x for struct in structs for x in struct.struct_domain.feature)]
    tagged = {role: [f for f in fields if role in f.annotation.tag] for role in _roles()}
    for role, found in tagged.items():
        if len(found) != 1:
            names = [field.name for field in found]
            raise ValueError(f"`schema` must tag one feature {role!r}. Received: {names}")
    [packed] = tagged["features"]
    by_role = {role: found[0].name for role, found in tagged.items()}
    return FeatureSpec(packed.shape.dim[0].size, **by_role)


def _messages() -> Any:
    try:
        from tensorflow_metadata.proto.v0 import schema_pb2
    except ImportError as error:
        needed = "a schema requires tensorflow-metadata: pip install 'tfrank_sel[pipelines]'"
        raise ImportError(needed) from error
    return schema_pb2


def _roles() -> list[str]:
    """The names that each `FeatureSpec` has, and each feature of its schema."""
    return ["features", "label", "doc_id", "query_id"]


def _types() -> dict[tf.DType, int]:
    messages = _messages()
    return {tf.float32: messages.FLOAT, tf.int64: messages.INT, tf.string: messages.BYTES}


def _add(fields: Any, tensor: Any, name: str, kind: Any) -> None:
    field = fields.add(name=name, type=_types()[kind.dtype])
    if isinstance(kind, tf.io.FixedLenFeature):
        tensor.dense_tensor.column_name = name
        shape = tf.TensorShape(kind.shape)
        tensor.dense_tensor.shape.CopyFrom(_shape(shape))
        if kind.default_value is None:
            field.presence.min_fraction = 1.0
            field.shape.CopyFrom(_shape(shape))
        else:  # TFX accepts no shape for optional features
            field.value_count.min = field.value_count.max = shape.num_elements()
            _set_default(tensor.dense_tensor, name, kind.dtype, kind.default_value)
        return
    field.value_count.min = 0
    if isinstance(kind, tf.io.VarLenFeature):
        tensor.varlen_sparse_tensor.column_name = name
        return
    if kind.partitions:
        raise ValueError(f"{name!r} must have no partitions in a schema. Received: {kind}")
    tensor.ragged_tensor.feature_path.step.append(kind.value_key or name)
    splits = tf.as_dtype(kind.row_splits_dtype).name.upper()
    tensor.ragged_tensor.row_partition_dtype = tensor.RowPartitionDType.Value(splits)


def _shape(shape: tf.TensorShape) -> Any:
    made = _messages().FixedShape()
    for size in shape.as_list():
        made.dim.add(size=size)
    return made


def _set_default(tensor: Any, name: str, dtype: tf.DType, value: Any) -> None:
    value, *others = tf.reshape(tf.convert_to_tensor(value, dtype), [-1]).numpy().tolist()
    if any(str(other) != str(value) for other in others):
        received = [value, *others]
        raise ValueError(
            f"{name!r} must have one value everywhere in a schema. Received: {received}"
        )
    place = {tf.float32: "float_value", tf.int64: "int_value", tf.string: "bytes_value"}[dtype]
    setattr(tensor.default_value, place, value)


def _default(tensor: Any) -> Any:
    kind = tensor.default_value.WhichOneof("kind")
    return None if kind is None else getattr(tensor.default_value, kind)


def _kind(schema: Any, field: Any) -> Any:
    """The kind of a feature, from its representation if there is one, else from its shape."""
    dtype = {number: dtype for dtype, number in _types().items()}[field.type]
    groups = schema.tensor_representation_group
    known = groups[_GROUP].tensor_representation if _GROUP in groups else {}
    dense = known[field.name].dense_tensor if field.name in known else None
    if field.HasField("shape") or (dense and dense.HasField("shape")):
        shape = [dim.size for dim in (dense or field).shape.dim]
        default = _default(dense) if dense else None
        if default is not None and shape:
            default = tf.fill(shape, default).numpy().tolist()
        return tf.io.FixedLenFeature(shape, dtype, default)
    if field.name in known and known[field.name].HasField("ragged_tensor"):
        tensor = known[field.name].ragged_tensor
        splits = _messages().TensorRepresentation.RowPartitionDType.Name(tensor.row_partition_dtype)
        [key] = tensor.feature_path.step
        return tf.io.RaggedFeature(
            dtype, None if key == field.name else key, row_splits_dtype=tf.as_dtype(splits.lower())
        )
    if field.name not in known and schema.represent_variable_length_as_ragged:
        return tf.io.RaggedFeature(dtype)
    return tf.io.VarLenFeature(dtype)
