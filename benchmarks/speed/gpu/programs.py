"""Losses and a training step as pure functions, and as HLO for a GPU that need not be here."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from benchmarks.speed.gpu import cases
from benchmarks.speed.gpu.cases import RATE, TOP_K, Case, Input
from benchmarks.speed.topk_competitors import with_gradient
from tfrank_sel import links, losses, models
from tfrank_sel.losses.topk import Selection, SoftSelection
from tfrank_sel.ops import layout

# with its peer
LOSSES = {
    "SoftmaxLoss": (losses.SoftmaxLoss(), "cross-entropy"),
    "SelectiveSoftmaxLoss(Exp)": (losses.SelectiveSoftmaxLoss(links.Exp()), "cross-entropy"),
    "RG2Loss": (losses.RG2Loss(), "cross-entropy"),
    "RGCrossLoss": (losses.RGCrossLoss(), "cross-entropy"),
    "ListMLELoss": (losses.ListMLELoss(), "ListMLE"),
    "LambdaLoss": (losses.LambdaLoss(), "pairwise logistic"),
    "ApproxNDCGLoss": (losses.ApproxNDCGLoss(), "pairwise logistic"),
    "NeuralSortNDCGLoss": (losses.NeuralSortNDCGLoss(), "pairwise logistic"),
}


class Program(NamedTuple):
    """A case, and the `tf.function` that computes it."""

    case: Case
    function: Any


def programs() -> Iterator[Program]:
    """All programs, at their full size."""
    for shape in ((256, 200), (4096, 50)):
        yield from of_losses(*shape)
        yield of_top_k(*shape)
    yield of_top_k(128, 100_000)
    yield of_training(128, 100, 136)


def of_losses(lists: int, items: int) -> Iterator[Program]:
    """Value and gradient of each loss, of graded labels."""
    inputs = [_scores(lists, items), Input([lists, items], "int32", 0, 5)]
    for name, (loss, peer) in LOSSES.items():
        case = Case(f"{name}, {[lists, items]}", lists * items, inputs, [peer])
        yield Program(case, with_gradient(lambda s, y, loss=loss: loss(y, s)))


class _SmoothTopKLoss(losses.SmoothTopKLoss):
    """With a constant temperature, since a program has no variables."""

    @property
    def selection(self) -> Selection:
        return SoftSelection(self.k, tf.constant(self.tau, tf.float64))


def of_top_k(lists: int, classes: int) -> Program:
    """Value and gradient of the smooth top-k loss, of the indices of classes."""
    loss = _SmoothTopKLoss(TOP_K)
    inputs = [_scores(lists, classes), Input([lists], "int64", 0, classes)]
    peers = ["cross-entropy of classes", "top-k recurrence"]
    case = Case(f"SmoothTopKLoss({TOP_K}), {[lists, classes]}", lists * classes, inputs, peers)
    return Program(case, with_gradient(lambda s, y: loss(y, s)))


def of_training(lists: int, items: int, features: int) -> Program:
    """A step of gradient descent of `ListScorer`: its loss, and its weights after it."""
    model = models.ListScorer([0.0] * features, [1.0] * features, dropout=0.0)
    loss = losses.SoftmaxLoss()
    model(tf.zeros([1, 1, features]))
    others = [v.value for v in model.non_trainable_variables]

    @tf.function(jit_compile=True, autograph=False)
    def step(*arguments: tf.Tensor) -> tuple[tf.Tensor, ...]:
        *weights, x, y = arguments
        with tf.GradientTape() as tape:
            tape.watch(weights)
            value = loss(y, model.stateless_call(weights, others, x, training=True)[0])
        slopes = tape.gradient(value, weights)
        return value, *(w - RATE * g for w, g in zip(weights, slopes, strict=True))

    weights = [Input(list(w.shape), "float32", -0.1, 0.1) for w in model.trainable_variables]
    inputs = [*weights, _scores(lists, items, features), Input([lists, items], "int32", 0, 5)]
    name = f"ListScorer, a step with SoftmaxLoss, {[lists, items, features]}"
    return Program(Case(name, lists * items, inputs, ["MLP step"]), step)


def lower(folder: pathlib.Path, made: Sequence[Program]) -> None:
    """Writes each program as a serialized `HloModuleProto`, and the manifest of all."""
    folder.mkdir(parents=True, exist_ok=True)
    for case, function in made:
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in case.inputs]
        with layout.traced_for("GPU"):
            ir = function.experimental_get_compiler_ir(*specs)
            hlo = ir(stage="hlo_serialized", platform_name="GPU")
        (folder / case.file).write_bytes(hlo)
        print(case.name, flush=True)
    cases.write(folder, [program.case for program in made])


def _scores(*shape: int) -> Input:
    return Input(list(shape), "float32", -2.0, 2.0)
