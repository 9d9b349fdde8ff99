"""The losses of `benchmarks.quality.selective_real` with their settings."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfrank_sel import links, losses

RATES = (1e-2, 4e-2)
MORE_RATES = (2e-3, 4e-3, 7e-3, 1e-2, 2e-2, 4e-2, 7e-2, 1e-1)

Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
Pairs = Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Row:
    """A loss and its settings.

    Args:
        loss: Of labels, NaN at padding, and outputs `[networks, lists, items]`, and of `a` and `b`,
            `[networks, 1, 1]`: the sum over networks and lists. None for the loss that
            `losses.design` reads from the scores.
        pairs: The values of `a` and `b`.
        matches: Whether outputs match scores, so that they have errors.
        ranking: Of `losses.design`.
    """

    loss: Loss | None
    pairs: Pairs = ((1.0, 0.0),)
    matches: bool = True
    ranking: bool = False

    @property
    def settings(self) -> list[tuple[float, float, float]]:
        """Learning rates with `a` and `b`."""
        rates = MORE_RATES if len(self.pairs) == 1 else RATES
        return [(rate, a, b) for rate in rates for a, b in self.pairs]


def of(loss: losses.ListwiseLoss) -> Loss:
    """A loss of the library, of `a * (score - b)`."""

    def summed(y: tf.Tensor, z: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        flat = (tf.reshape(a * (x - b), [-1, x.shape[-1]]) for x in (y, z))
        return loss(*flat)

    return summed


def alone(f: Loss) -> Loss:
    """A loss of each item, averaged over the items of a list."""

    def summed(y: tf.Tensor, z: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        is_item = ~tf.math.is_nan(y)
        values = tf.where(is_item, f(tf.where(is_item, y, 0.0), z, a, b), 0.0)
        return tf.reduce_sum(values) / y.shape[-1]

    return summed


def huber(y: tf.Tensor, z: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    near = tf.minimum(tf.abs(z - y), a)
    return near * (tf.abs(z - y) - 0.5 * near)


def gains(loss: losses.ListwiseLoss) -> Loss:
    """A ranking loss whose labels are `a * max(score, 0)`."""

    def summed(y: tf.Tensor, z: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        labels = tf.where(tf.math.is_nan(y), -1.0, a * tf.maximum(y, 0.0))
        return loss(*(tf.reshape(x, [-1, x.shape[-1]]) for x in (labels, z)))

    return summed


def scalar(link: links.Link) -> Loss:
    return of(losses.MatchingLoss(link, reduction="sum"))


def pairs(link: links.Link) -> Row:
    """A loss of differences within random parts of ten items or a few more, for time.

    Outputs of the best model may be off by a constant.
    """
    loss = losses.ContrastiveMatchingLoss(link, reduction="sum")

    def summed(y: tf.Tensor, z: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        size = y.shape[-1] // (y.shape[-1] // 10)  # items of a list are in random order
        return loss(*(tf.reshape(a * (x - b), [-1, size]) for x in (y, z)))

    return Row(summed, powers(0.25, 0.5, 1.0, 2.0), matches=False)


def softmax(scaling: links.Link, gamma: float) -> Loss:
    return of(losses.SelectiveSoftmaxLoss(scaling, gamma, reduction="sum"))


def powers(*values: float, shift: float = 0.0) -> Pairs:
    return [(value, shift) for value in values]


def shifts(*values: float) -> Pairs:
    return [(1.0, value) for value in values]


# from where to where a link rises, as `a` and `b` of one from -1 to 1
WINDOWS = [(2.0 / (y - x), (x + y) / 2.0) for x in (-0.5, 0.0) for y in (1.5, 3.0)]
STEEP = [(1.0, 0.5), (2.0, 0.5), (4.0, 0.5), (4.0, 1.0)]
EXP, SIGMOID = links.Exp(), links.Sigmoid()
CAPPED = links.Capped(links.Exp(), upper=2.0)
BOUNDED_SINH = links.Capped(links.Sinh(), lower=-3.0, upper=3.0)

SIMPLE: dict[str, Row] = {
    "square": Row(alone(lambda y, z, a, b: tf.square(z - y))),
    "Huber": Row(alone(huber), powers(0.25, 0.5, 1.0, 2.0)),
    "square, clipped labels": Row(
        alone(lambda y, z, a, b: tf.square(z - tf.maximum(y, b))), shifts(0.0, -0.25, -0.5, -1.0)
    ),
    "square, weights `exp(a * y)`": Row(
        alone(lambda y, z, a, b: tf.exp(a * y) * tf.square(z - y)), powers(0.25, 0.5, 1.0, 2.0)
    ),
    "square, weights `1 + a` in the region": Row(
        alone(lambda y, z, a, b: tf.where(y > 0.0, 1.0 + a, 1.0) * tf.square(z - y)),
        powers(1.0, 3.0, 9.0, 27.0),
    ),
    "quantile": Row(
        alone(lambda y, z, a, b: tf.maximum(a * (y - z), (a - 1.0) * (y - z))),
        powers(0.6, 0.7, 0.8, 0.9),
    ),
    "expectile": Row(
        alone(lambda y, z, a, b: tf.where(z < y, a, 1.0 - a) * tf.square(z - y)),
        powers(0.6, 0.7, 0.8, 0.9),
    ),
    "classifier of the region": Row(
        alone(
            lambda y, z, a, b: tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(y > 0.0, z.dtype), z)
        ),
        matches=False,
    ),
    "softmax (KL)": Row(softmax(links.Constant(), 1.0), powers(0.5, 1.0, 2.0, 4.0), matches=False),
    "`RGCrossLoss` of gains": Row(
        gains(losses.RGCrossLoss(reduction="sum")), powers(0.5, 1.0, 2.0, 4.0), matches=False
    ),
}
MATCHING: dict[str, Row] = {
    "`MatchingLoss(Sigmoid)`": Row(scalar(SIGMOID), STEEP),
    "`MatchingLoss(SmeLU)`": Row(scalar(links.SmeLU()), WINDOWS),
    "`MatchingLoss(ReLU)`": Row(scalar(links.ReLU()), shifts(0.0, -0.25, -0.5, -1.0)),
    "`MatchingLoss(Exp)`": Row(scalar(EXP), powers(0.25, 0.5, 1.0, 2.0)),
    "`MatchingLoss(Capped(Exp))`": Row(scalar(CAPPED), powers(0.25, 0.5, 1.0, 2.0)),
    "`MatchingLoss(Sinh)`": Row(
        scalar(links.Sinh()), [(a, b) for a in (0.5, 1.0) for b in (-1.0, 0.0)]
    ),
    "`SelectiveSigmoidLoss(Sigmoid)`": Row(
        of(losses.SelectiveSigmoidLoss(SIGMOID, reduction="sum")), STEEP
    ),
    "`SelectiveSoftmaxLoss(Sigmoid)`": Row(softmax(SIGMOID, 1.0), STEEP),
    "`SelectiveSoftmaxLoss(Exp)`": Row(softmax(EXP, 1.0), powers(0.25, 0.5, 1.0, 2.0)),
    "`SelectiveSoftmaxLoss(Exp, gamma=5)`": Row(softmax(EXP, 5.0), powers(0.25, 0.5, 1.0, 2.0)),
    "`ContrastiveMatchingLoss(Tanh)`": pairs(links.Tanh()),
    "`ContrastiveMatchingLoss(Capped(Sinh))`": pairs(BOUNDED_SINH),
}
DESIGNED = {
    "`design(scores=labels)`": Row(None),
    "`design(scores=labels, ranking=True)`": Row(None, ranking=True),
}
ROWS = SIMPLE | MATCHING | DESIGNED
