"""Speed of losses, forward and backward under XLA, beside the operations they compete with.

    python -m benchmarks.losses

Prints a Markdown table: CPU milliseconds and compile seconds on one core of this machine, and the
ratios that the README quotes, all from calls in turn.
"""

import argparse
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from benchmarks.interleaved import machine, timings, use_one_core
from tfrank_sel import links, losses

SHAPES = ((256, 200), (4096, 50))


def fused_softmax(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """The cross-entropy that one would write by hand: masked, normalised, fused."""
    mask = y_true >= 0.0
    labels = tf.where(mask, y_true, 0.0)
    targets = tf.math.divide_no_nan(labels, tf.reduce_sum(labels, axis=-1, keepdims=True))
    logits = tf.where(mask, y_pred, -1e30)
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, logits))


def plain_selective_softmax(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """Equation 29 for `Exp(scale=0.5)` as it stands: it loses its digits, but shows the floor."""

    def potential(x: tf.Tensor) -> tf.Tensor:
        return 2.0 * tf.exp(0.5 * x)

    p = tf.nn.softmax(potential(y_true))
    rise = tf.reduce_logsumexp(potential(y_pred), axis=-1)
    rise -= tf.reduce_logsumexp(potential(y_true), axis=-1)
    step = (y_pred - y_true) * tf.exp(0.5 * y_true) * p
    return tf.reduce_mean(rise - tf.reduce_sum(step, axis=-1))


LOSSES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "fused softmax cross-entropy": fused_softmax,
    "SoftmaxLoss": losses.SoftmaxLoss(),
    "equation 29 as it stands (Exp)": plain_selective_softmax,
    "SelectiveSoftmaxLoss(Exp)": losses.SelectiveSoftmaxLoss(links.Exp(scale=0.5)),
    "SelectiveSoftmaxLoss(Sinh)": losses.SelectiveSoftmaxLoss(links.Sinh(scale=0.5)),
    "SelectiveSoftmaxLoss(Sigmoid)": losses.SelectiveSoftmaxLoss(links.Sigmoid()),
    "keras MeanSquaredError": keras.losses.MeanSquaredError(),
    "MatchingLoss(Identity)": losses.MatchingLoss(links.Identity()),
    "MatchingLoss(Exp)": losses.MatchingLoss(links.Exp(scale=0.5)),
    "MatchingLoss(Sinh)": losses.MatchingLoss(links.Sinh(scale=0.5)),
    "MatchingLoss(Sigmoid)": losses.MatchingLoss(links.Sigmoid()),
}
PEERS = ("SoftmaxLoss", "fused softmax cross-entropy", "keras MeanSquaredError")


def step_of(
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], y_true: tf.Tensor, y_pred: tf.Tensor
) -> Callable[[], object]:
    @tf.function(jit_compile=True, autograph=False)
    def step(y_true: tf.Tensor, y_pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(y_pred)
            value = loss(y_true, y_pred)
        return value, tape.gradient(value, y_pred)

    return lambda: step(y_true, y_pred)[1].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="calls of each loss")
    rounds = parser.parse_args().rounds
    use_one_core()
    print(machine())
    for shape in SHAPES:
        rng = np.random.default_rng(0)
        y_true = tf.constant(rng.integers(0, 5, shape), tf.float32)
        y_pred = tf.constant(rng.normal(1.0, 1.0, shape), tf.float32)
        found = timings({n: step_of(f, y_true, y_pred) for n, f in LOSSES.items()}, rounds)
        print(f"\n| {list(shape)} | ms | x SoftmaxLoss | x fused | x MSE | compile s |")
        print("|---|---|---|---|---|---|")
        for name, timing in found.items():
            ratios = " | ".join(f"{timing.seconds / found[peer].seconds:.2f}" for peer in PEERS)
            print(f"| {name} | {1e3 * timing.seconds:.3f} | {ratios} | {timing.first:.1f} |")


if __name__ == "__main__":
    main()
