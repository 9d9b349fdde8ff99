"""Inputs of a served model, from its signature `predict` and its manifest."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfrank_sel.data.schema import Columns
from tfrank_sel.data.spec import FeatureSpec, of_input_name
from tfrank_sel.errors import refusal
from tfrank_sel.export.inputs import ModelInputs
from tfrank_sel.features import Category, Feature, Number, Set, Vector
from tfrank_sel.serving.protos import DataType

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2


def of_model(
    predict: "meta_graph_pb2.SignatureDef", description: Mapping[str, Any]
) -> ModelInputs | None:
    """Returns the inputs of a model; None if neither argument names any.

    A signature distinguishes numbers, texts and integers, and features of items and of the query.
    The manifest also distinguishes Booleans and timestamps.

    Args:
        predict: Declaration of the signature `predict`; empty if the model has none.
        description: The features in the manifest; empty if there is none.

    Raises:
        ValueError: If they belong to different models.
    """
    declared = sorted(predict.inputs.items())
    kinds = {of_input_name(x): info for x, info in declared if info.dtype != DataType.DT_BOOL}
    mask = next((x for x, info in declared if info.dtype == DataType.DT_BOOL), "mask")
    inputs = ModelInputs.of_description(description)
    if inputs is None and kinds:
        features = {name: _feature(info) for name, info in kinds.items()}
        doc_id = description.get("doc_id", Columns.doc_id)
        match [*features.items()]:
            case [("features", Vector(size=size, of="item"))]:
                inputs = ModelInputs.of(FeatureSpec(size, doc_id=doc_id))
            case _:
                inputs = ModelInputs.of(features, doc_id)
    elif inputs is not None and kinds and {*kinds} != {*map(of_input_name, inputs.names.values())}:
        expected = f"The manifest must be of the model, which takes {', '.join(kinds)}"
        raise refusal(expected, *sorted(inputs.types))
    return inputs and dataclasses.replace(inputs, mask=mask)


def _feature(info: "meta_graph_pb2.TensorInfo") -> Feature:
    """The type of a dense input: `[batch_size, list_size]`, or of the query."""
    shape = [x.size for x in info.tensor_shape.dim]
    of = "item" if len(shape) > 1 and shape[1] < 0 else "query"
    size = shape[2:] if of == "item" else shape[1:]
    if info.dtype == DataType.DT_FLOAT:
        return Vector(size=size[0], of=of) if size else Number(of=of)
    dtype = "int64" if info.dtype == DataType.DT_INT64 else "string"
    if size:
        return Set(max_values=size[0], of=of, dtype=dtype)
    return Category(of=of, dtype=dtype)
