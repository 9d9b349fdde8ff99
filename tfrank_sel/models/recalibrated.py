"""Scores that are expected labels, by an increasing function fitted on held-out lists."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Unpack

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel.arguments import Positive
from tfrank_sel.errors import refusal
from tfrank_sel.keras_versions import LayerOptions
from tfrank_sel.listwise import ListBatch, as_lists
from tfrank_sel.models.preparation import ScoresItems, features_and_mask, inputs_of
from tfrank_sel.serialization import Configurable, register

Array = NDArray[np.float64]

GROUPS = 10_000  # of scores, for isotonic regression
SHARE = 1e-3  # of Platt's function in an isotonic one, so that it increases everywhere
STEPS = 100  # of Newton's method, which converges in about ten


@register
class Recalibrated(Configurable, ScoresItems, keras.Model):
    """A model whose scores are mapped to expected labels by an increasing function.

    ```
    platt(s) = max_label * sigmoid(slope * s + intercept)
    score = platt(s),  or with knots 0.999 * interpolation(s) + 0.001 * platt(s)
    ```

    The interpolation is linear between `values` at `knots`, and constant beyond them. Scores then
    mean the same in every list, and the order of items stays the same, except for differences
    within rounding. `recalibrate` makes it.

    Args:
        model: The model, trained; it maps features to scores, and also takes a mask if it has the
            attribute `takes_mask`.
        slope: Factor of the scores; positive.
        intercept: Log-odds of a score of 0.
        knots: Increasing scores between which to interpolate; none for Platt's function alone.
        values: The expected label at each knot; they must not decrease.
        max_label: The largest label; positive.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: those of the model.

    Outputs: expected labels of shape `[batch_size, list_size]`, float32; 0 at padding.

    Raises:
        ValueError: If the slope or the largest label is not positive, or knots and values are not
            increasing numbers of the same count.

    Example:
        >>> from tfrank_sel import models
        >>> model = Recalibrated(models.Scorer([0.0], [1.0], [4]), slope=2.0, intercept=-1.0)
        >>> tuple(model(tf.zeros([2, 5, 1])).shape)
        (2, 5)

    Reference:
        [Platt, Probabilistic Outputs for Support Vector Machines, 1999](
        https://www.researchgate.net/publication/2594015), and [Zadrozny and Elkan, Transforming
        Classifier Scores into Accurate Multiclass Probability Estimates, 2002](
        https://dl.acm.org/doi/10.1145/775047.775151).
    """

    takes_mask = True

    def __init__(
        self,
        model: keras.Model,
        slope: Positive,
        intercept: float,
        knots: Sequence[float] = (),
        values: Sequence[float] = (),
        max_label: Positive = 1.0,
        name: str = "recalibrated",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        if (
            len(knots) != len(values)
            or np.any(np.diff(knots) <= 0.0)
            or np.any(np.diff(values) < 0)
        ):
            raise refusal(
                "`knots` and `values` must have the same length, `knots` increase and `values` "
                "not decrease",
                f"knots={list(knots)}, values={list(values)}",
            )
        # float16 cannot represent all features; the model casts what it takes
        super().__init__(name=name, autocast=False, **kwargs)
        self.model = model
        self.slope = slope
        self.intercept = intercept
        self.knots = knots
        self.values = values
        self.max_label = max_label
        self.built = model.built

    def build(self, input_shape: Any) -> None:
        """Creates the weights of the model."""
        if not self.model.built:
            self.model.build(input_shape)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Returns the expected labels of the items."""
        _, mask = features_and_mask(inputs)
        scores = as_lists(self.model(inputs_of(self.model, inputs), training=training))
        labels = self.expected_labels(scores)
        return tf.where(mask, labels, tf.zeros_like(labels))

    def expected_labels(self, scores: tf.Tensor) -> tf.Tensor:
        """Maps scores of the model to expected labels."""
        platt = self.max_label * tf.sigmoid(self.slope * scores + self.intercept)
        if not self.knots:
            return platt
        # one more knot on each side, so that there is always one below and one above
        knots, values = (
            tf.constant([x[0], *x, x[-1]], scores.dtype) for x in (self.knots, self.values)
        )
        after = tf.searchsorted(knots[1:-1], tf.reshape(scores, [-1]), side="right") + 1
        after = tf.reshape(after, tf.shape(scores))
        left, right = tf.gather(knots, after - 1), tf.gather(knots, after)
        part = tf.clip_by_value(tf.math.divide_no_nan(scores - left, right - left), 0.0, 1.0)
        low, high = tf.gather(values, after - 1), tf.gather(values, after)
        return (1.0 - SHARE) * ((1.0 - part) * low + part * high) + SHARE * platt


def recalibrate(
    model: keras.Model,
    lists: Iterable[tuple[Any, ...]],
    method: Literal["isotonic", "platt"] = "isotonic",
) -> Recalibrated:
    """Fits the expected label of an item by its score, and returns a model that predicts it.

    Take held-out lists, such as those for validation: on the lists that a model was trained on, its
    scores agree with the labels too well.

    Args:
        model: The trained model, which maps features to scores.
        lists: Batches of inputs, labels and possibly weights of lists or items, such as a
            `tf.data.Dataset`. Labels are at least 0; they are padding below 0 and at NaN.
        method: `platt` fits a sigmoid by maximum likelihood, with Platt's prior, which suits few
            items. `isotonic` fits any increasing function by least squares (the pool-adjacent-
            violators algorithm), linear between the means of its steps; take it if there are
            thousands of items. Scores of more than 10,000 values are first averaged in 10,000
            groups of neighbours.

    Returns:
        The model with the function; it shares the weights of `model`.

    Raises:
        ValueError: If `method` is another word, if there are fewer than two different labels or
            scores, if scores are not finite, or if labels do not rise with the scores.

    Example:
        >>> from tfrank_sel import models
        >>> scorer = keras.Sequential([keras.layers.Flatten()])  # a feature is the score
        >>> features = tf.constant([[[0.0], [0.0], [3.0], [3.0]]])
        >>> labels = tf.constant([[0.0, 0.0, 1.0, 0.0]])
        >>> model = models.recalibrate(scorer, [(features, labels)])
        >>> print(model(features).numpy().round(2))
        [[0.  0.  0.5 0.5]]
    """
    if method not in ("isotonic", "platt"):
        raise refusal("`method` must be 'isotonic' or 'platt'", method=method)
    scores, labels, weights = _items(model, lists)
    if not np.isfinite(scores).all():
        raise refusal("scores must be finite", scores[~np.isfinite(scores)][0])
    counts = len(np.unique(labels)), len(np.unique(scores))
    if min(counts) < 2:
        raise refusal(
            "Expected at least two different labels and two different scores of items of positive "
            "weight",
            f"{counts[0]} and {counts[1]} of {len(labels)} items",
        )
    max_label = max(float(labels.max()), 1.0)
    slope, intercept = _platt(scores, labels / max_label, weights)
    if not slope > 0.0:
        raise refusal("labels must rise with the scores", f"a slope of {slope:.3g} of the log-odds")
    knots, values = _isotonic(scores, labels, weights) if method == "isotonic" else ([], [])
    return Recalibrated(model, slope, intercept, knots, values, max_label)


def _items(model: keras.Model, lists: Iterable[tuple[Any, ...]]) -> tuple[Array, Array, Array]:
    """The scores, labels and weights of all valid items of positive weight."""
    blocks = []
    for inputs, labels, *rest in lists:
        scores = model(inputs_of(model, inputs), training=False)
        weights = rest[0] if rest else None
        batch = ListBatch.of(labels, scores, weights, min_label=0.0, dtype="float32")
        of_items = batch.weights * batch.list_weights[:, tf.newaxis]
        valid = (batch.mask & (of_items > 0.0)).numpy()
        parts = (batch.scores, batch.labels, tf.broadcast_to(of_items, valid.shape))
        blocks.append(np.stack([x.numpy()[valid] for x in parts]).astype(np.float64))
    scores, labels, weights = np.concatenate(blocks or [np.zeros([3, 0])], axis=1)
    return scores, labels, weights


def _platt(scores: Array, labels: Array, weights: Array) -> tuple[float, float]:
    """The slope and intercept of the log-odds of labels in [0, 1], by Newton's method."""
    weights = weights / weights.mean()
    centre, width = scores.mean(), scores.std()
    x = np.stack([(scores - centre) / width, np.ones_like(scores)])
    ones, zeros = weights @ labels, weights @ (1.0 - labels)
    # Platt's prior keeps the targets away from 0 and 1.
    high, low = (ones + 1.0) / (ones + 2.0), 1.0 / (zeros + 2.0)
    targets = low + labels * (high - low)

    def loss(log_odds: Array) -> float:
        return float(weights @ (np.logaddexp(0.0, log_odds) - targets * log_odds))

    coefficients = np.array([0.0, np.log((ones + 1.0) / (zeros + 1.0))])
    for _ in range(STEPS):
        p = 1.0 / (1.0 + np.exp(-(coefficients @ x)))
        gradient = x @ (weights * (p - targets))
        step = np.linalg.solve((x * (weights * p * (1.0 - p))) @ x.T, gradient)
        # where p is near 0 or 1, Newton's step overshoots: it is halved until the loss falls
        here = loss(coefficients @ x)
        while (after := loss((coefficients - step) @ x)) > here and abs(step).max() > 1e-12:
            step /= 2.0
        coefficients = coefficients - step
        if here - after <= 1e-12 * abs(here):
            break
    slope = coefficients[0] / width
    return float(slope), float(coefficients[1] - slope * centre)


def _isotonic(scores: Array, labels: Array, weights: Array) -> tuple[list[float], list[float]]:
    """Mean score and mean label of the steps of the best increasing function."""
    different, places = np.unique(scores, return_inverse=True)
    places = places * min(GROUPS, len(different)) // len(different)
    parts = (np.bincount(places, weights * x) for x in (np.ones_like(scores), scores, labels))
    blocks: list[tuple[float, float, float]] = []  # weight, weighted score, weighted label
    for block in zip(*parts, strict=True):
        # means, compared without a division
        while blocks and blocks[-1][2] * block[0] >= block[2] * blocks[-1][0]:
            block = tuple(a + b for a, b in zip(blocks.pop(), block, strict=True))
        blocks.append(block)
    total, score, label = np.array(blocks).T
    return (score / total).tolist(), (label / total).tolist()
