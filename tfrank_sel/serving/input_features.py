"""Input features of a model, from its signature `predict` and its manifest."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tfrank_sel.data.spec import input_names, of_input_name
from tfrank_sel.features import Category, Feature, Number, Set, Vector, of_config
from tfrank_sel.refusals import refusal

_PACKED = "features"


@dataclasses.dataclass(frozen=True)
class InputFeatures:
    """Input features of a model: packed or named.

    Args:
        num_features: Number of packed features of an item; None if features are named.
        features: Type of each named feature; empty if features are packed or unknown.
        mask: Name of the mask of a dense request.
        doc_id: Name of an item's identifier.
    """

    num_features: int | None
    features: Mapping[str, Feature]
    mask: str = "mask"
    doc_id: str = "doc_id"

    def config(self) -> dict[str, Any]:
        """Returns JSON-ready values, with the name of the `input` of each feature."""
        names = input_names(self.features)
        types = {
            name: {**feature.config(), "input": names[name]}
            for name, feature in self.features.items()
        }
        return {**vars(self), "features": types}


def of_model(predict: meta_graph_pb2.SignatureDef, manifest: Mapping[str, Any]) -> InputFeatures:
    """Returns the input features of a model.

    A signature distinguishes numbers, texts and integers, and features of items and of the query.
    The manifest also distinguishes Booleans and timestamps.

    Args:
        predict: Declaration of the signature `predict`; empty if the model has none.
        manifest: The features in the manifest; empty if there is none.

    Raises:
        ValueError: If they belong to different models.
    """
    declared = sorted(predict.inputs.items())
    inputs = {of_input_name(x): info for x, info in declared if info.dtype != types_pb2.DT_BOOL}
    mask = next((x for x, info in declared if info.dtype == types_pb2.DT_BOOL), "mask")
    doc_id = manifest.get("doc_id", "doc_id")
    if "types" in manifest:
        features = {name: of_config(config) for name, config in manifest["types"].items()}
        if inputs and inputs.keys() != features.keys():
            raise refusal(
                f"The manifest must be of the model, which takes {', '.join(inputs)}",
                ", ".join(sorted(features)),
            )
        return InputFeatures(None, features, mask, doc_id)
    shapes = {name: [x.size for x in info.tensor_shape.dim] for name, info in inputs.items()}
    if inputs.keys() == {_PACKED} and len(shapes[_PACKED]) == 3:
        return InputFeatures(shapes[_PACKED][2], {}, mask, doc_id)
    features = {name: _feature(info.dtype, shapes[name]) for name, info in inputs.items()}
    return InputFeatures(None, features, mask, doc_id)


def _feature(dtype: int, shape: list[int]) -> Feature:
    """The type of a dense input: `[batch_size, list_size]`, or of the query."""
    of = "item" if len(shape) > 1 and shape[1] < 0 else "query"
    size = shape[2:] if of == "item" else shape[1:]
    if dtype == types_pb2.DT_FLOAT:
        return Vector(size=size[0], of=of) if size else Number(of=of)
    kind = "int64" if dtype == types_pb2.DT_INT64 else "string"
    if size:
        return Set(max_values=size[0], of=of, dtype=kind)
    return Category(of=of, dtype=kind)
