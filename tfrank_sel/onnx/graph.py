"""Graph of ONNX that is built node by node."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import onnx
import tensorflow as tf
from onnx import helper, numpy_helper

from tfrank_sel.errors import refusal
from tfrank_sel.version import __version__

TREES = "ai.onnx.ml"
# the versions of operators and of the format that runtimes from 2023 on read
_OPSETS, _IR = {"": 18, TREES: 3}, 8

Rule = Callable[..., Any]


class GraphLists(NamedTuple):
    """Values of the items of lists, by their names in a graph.

    Args:
        features: Numbers `[batch_size, list_size, num_features]`; or each feature by its name.
        mask: True for an item, `[batch_size, list_size]`; None if all are items.
    """

    features: Any
    mask: str | None


class Graph:
    """Nodes of a graph, and the rules by which layers become nodes.

    Args:
        rules: For each class of layers or models, the function that adds the nodes of its call.
    """

    def __init__(self, rules: Mapping[type, Rule]) -> None:
        self.initializers: dict[Any, onnx.TensorProto] = {}
        self._rules = rules
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def __call__(
        self, kind: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Adds a node.

        Args:
            kind: Type of the operator.
            *inputs: Names of values, or NumPy arrays, which become constants.
            outputs: Number of outputs.
            domain: Domain of the operator.
            **attributes: Attributes of the operator.

        Returns:
            The name of the output, or of each output if there are several.
        """
        results = [f"{kind}_{len(self._nodes)}_{place}" for place in range(outputs)]
        names = [x if isinstance(x, str) else self._constant(np.asarray(x)) for x in inputs]
        self._nodes.append(helper.make_node(kind, names, results, domain=domain, **attributes))
        return results[0] if outputs == 1 else results

    def _constant(self, value: np.ndarray) -> str:
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self.initializers:
            name = f"constant_{len(self.initializers)}"
            self.initializers[key] = numpy_helper.from_array(value, name)
        return self.initializers[key].name

    def input(self, spec: tf.TensorSpec, name: str, default: Any = None) -> str:
        """Adds an input of the graph, with the shape and type of a `tf.TensorSpec`.

        Axes of unknown size are called `batch`, `items` and so on, in this order.
        """
        axes = ("batch", "items", "values", "others")
        shape = [axis if size is None else size for axis, size in zip(axes, spec.shape)]  # noqa: B905
        if default is not None:  # a default has another shape than a request
            self.initializers[name] = numpy_helper.from_array(default, name)
            shape = [None] * len(shape)
        self._inputs.append(helper.make_tensor_value_info(name, _element(spec.dtype), shape))
        return name

    def output(self, value: str, name: str, kind: tf.DType = tf.float32) -> None:
        """Adds an output of the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, _element(kind), None))

    def cast(self, value: str, kind: tf.DType = tf.float32) -> str:
        """Converts a value to another type."""
        return str(self("Cast", value, to=_element(kind)))

    def lists(self, values: str) -> str:
        """Returns the first two axes of a shape: the batch and the list."""
        return str(self("Shape", values, start=0, end=2))

    def layer(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds the nodes of the call of a layer or model, in inference.

        Raises:
            ValueError: If there is no rule for the class, or the rule ignores an argument.
        """
        rule = self._rules.get(type(layer))
        if rule is None:
            classes = ", ".join(sorted(kind.__name__ for kind in self._rules))
            raise no_form(layer, f"no rule for its class; classes with a rule are {classes}")
        if not layer.built and not isinstance(layer, keras.Model):
            raise no_form(layer, "a layer that is not built; call the model once")
        passed = {name: x for name, x in kwargs.items() if x is not None and x is not False}
        if unknown := passed.keys() - inspect.signature(rule).parameters.keys():
            raise no_form(layer, f"call argument {', '.join(sorted(unknown))}")
        return rule(self, layer, *args, **passed)

    def shape(self, value: str) -> list[int | None]:
        """Returns the size of each axis of a value, None if it is unknown."""
        output = helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None)
        sizes = self._proto([output]).graph.output[0].type.tensor_type.shape.dim
        return [x.dim_value if x.HasField("dim_value") else None for x in sizes]

    def serialize(self) -> bytes:
        """Returns the checked model as the content of a file.

        Raises:
            ValueError: If the model has 2 GB or more, or types and shapes do not fit.
        """
        return bytes(self._proto(self._outputs).SerializeToString())

    def _proto(self, outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes, "ranker", self._inputs, outputs, [*self.initializers.values()]
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
        options = {"producer_name": "tfrank_sel", "producer_version": __version__}
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, **options)
        if model.ByteSize() >= 2**31:
            size = f"{model.ByteSize()} bytes of weights"
            raise refusal("a file of ONNX must be below 2 GB", size)
        try:
            model = onnx.shape_inference.infer_shapes(
                model, check_type=True, strict_mode=True, data_prop=True
            )
            onnx.checker.check_model(model)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            problem = str(error).splitlines()[0]  # the others follow from it
            raise ValueError(f"ONNX cannot represent the model: {problem}") from error
        return model


def no_form(layer: Any, part: str) -> ValueError:
    """Returns the error for a layer that has no form in ONNX."""
    name = f"`{layer.name}`, of class {type(layer).__name__}" if hasattr(layer, "name") else layer
    return refusal(f"ONNX has no form for layer {name}", part)


def indices(*values: int) -> np.ndarray:
    """Returns integers as axes, sizes and places are written in ONNX."""
    return np.array(values, np.int64)


def part(graph: Graph, values: str, start: int, end: int) -> str:
    """Returns a range of the last axis."""
    return str(graph("Slice", values, indices(start), indices(end), indices(-1)))


def concatenate(graph: Graph, parts: Sequence[str]) -> str:
    """Joins values along the last axis."""
    return parts[0] if len(parts) == 1 else str(graph("Concat", *parts, axis=-1))


def _element(kind: tf.DType) -> int:
    if kind == tf.string:
        return int(onnx.TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(kind.as_numpy_dtype)))
