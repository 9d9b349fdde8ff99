"""Speed of losses, forward and backward under XLA, compared with the operations they compete with.

    python -m benchmarks.speed.losses

The floors are what one would write by hand, without masks, weights or stable digits. CPU
milliseconds on one core of this machine, from calls in turn.
"""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from benchmarks.speed import rows
from benchmarks.speed.interleaved import Call, use_one_core
from benchmarks.speed.rows import Peer
from tfrank_sel import links, losses

tf.get_logger().setLevel("ERROR")  # which warns of many functions of one name
SHAPES = ((256, 200), (4096, 50))
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


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


def plain_rank_error(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """The squared error between ranks of labels and soft ranks, from all pairs of items."""
    above = y_true[:, tf.newaxis, :] - y_true[:, :, tf.newaxis]
    gaps = y_pred[:, tf.newaxis, :] - y_pred[:, :, tf.newaxis]
    errors = tf.reduce_sum(tf.sigmoid(gaps) - 0.5 * (1.0 + tf.sign(above)), axis=-1)
    return tf.reduce_mean(tf.square(errors))


def plain_cross_entropy(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """The pointwise part of calibrated losses alone."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y_true / HIGHEST, y_pred))


EXP = {"SelectiveSoftmaxLoss(Exp)": losses.SelectiveSoftmaxLoss(links.Exp(scale=0.5))}
SOFTMAXES: dict[str, Loss] = {
    "SoftmaxLoss": losses.SoftmaxLoss(),
    **EXP,
    "SelectiveSoftmaxLoss(Sinh)": losses.SelectiveSoftmaxLoss(links.Sinh(scale=0.5)),
    "SelectiveSoftmaxLoss(Sigmoid)": losses.SelectiveSoftmaxLoss(links.Sigmoid()),
}
MATCHING: dict[str, Loss] = {
    "MatchingLoss(Identity)": losses.MatchingLoss(links.Identity()),
    "MatchingLoss(Exp)": losses.MatchingLoss(links.Exp(scale=0.5)),
    "MatchingLoss(Sinh)": losses.MatchingLoss(links.Sinh(scale=0.5)),
    "MatchingLoss(Sigmoid)": losses.MatchingLoss(links.Sigmoid()),
}
RANKS: dict[str, Loss] = {
    "SpearmanLoss": losses.SpearmanLoss(),
    "SpearmanLoss(Laplace)": losses.SpearmanLoss(link=links.Laplace()),
    "ADRMSELoss": losses.ADRMSELoss(),
    "ADRMSELoss(Laplace)": losses.ADRMSELoss(link=links.Laplace()),
}
HIGHEST = 4.0  # label; calibrated losses expect labels up to 1
RCR, JRC = losses.RCRLoss(), losses.JRCLoss()
CALIBRATED: dict[str, Loss] = {
    "RCRLoss": lambda labels, scores: RCR(labels / HIGHEST, scores),
    "JRCLoss": lambda labels, scores: JRC(labels / HIGHEST, tf.stack([-scores, scores], axis=-1)),
}
GROUPS: tuple[tuple[dict[str, Loss], Peer, Loss], ...] = (
    (SOFTMAXES, Peer("fused softmax cross-entropy"), fused_softmax),
    (EXP, Peer("its formula as it stands"), plain_selective_softmax),
    (RANKS, Peer("squared error of soft ranks from all pairs"), plain_rank_error),
    (CALIBRATED, Peer("sigmoid cross-entropy"), plain_cross_entropy),
    (MATCHING, Peer("keras.losses.MeanSquaredError"), keras.losses.MeanSquaredError()),
)


def step_of(
    loss: Loss,
    y_true: tf.Tensor,
    y_pred: tf.Tensor,
    jit_compile: bool = True,
    knows_sizes: bool = True,
) -> Call:
    """A call of the loss and its gradient, in a graph that knows the sizes or not."""
    signature = None
    if not knows_sizes:
        signature = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in (y_true, y_pred)]

    @tf.function(input_signature=signature, jit_compile=jit_compile, autograph=False)
    def step(y_true: tf.Tensor, y_pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(y_pred)
            value = loss(y_true, y_pred)
        return value, tape.gradient(value, y_pred)

    return lambda: step(y_true, y_pred)[1].numpy()


def found(rounds: int) -> Iterator[rows.Found]:
    for shape in SHAPES:
        rng = np.random.default_rng(0)
        y_true = tf.constant(rng.integers(0, 5, shape), tf.float32)
        y_pred = tf.constant(rng.normal(1.0, 1.0, shape), tf.float32)
        for ours, floor, plain in GROUPS:
            calls = {f"{n}, {list(shape)}": step_of(f, y_true, y_pred) for n, f in ours.items()}
            yield from rows.compare(calls, {floor: step_of(plain, y_true, y_pred)}, rounds)


def main() -> None:
    arguments = rows.parser(__doc__, rounds=50).parse_args()
    use_one_core()
    rows.show(found(arguments.rounds), arguments.json)


if __name__ == "__main__":
    main()
