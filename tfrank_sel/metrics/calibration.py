"""Calibration metrics: whether predicted probabilities agree with what is observed.

Unlike those of a ranking, they compare the items of all lists together. `LogitNorm` measures the
size of logits.
"""

import abc
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrank_sel import keras_bases, numerics as xp
from tfrank_sel.errors import refusal
from tfrank_sel.metrics.base import ListwiseMetric, relevances
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking
from tfrank_sel.serialization import UNSET, Named, register

TENTHS = tuple(x / 10 for x in range(1, 10))


class Reliability(NamedTuple):
    """Mean predictions and labels of each bin that has an item.

    Attributes:
        weights: Sum of the weights of the items of each bin.
        predictions: Their mean prediction.
        labels: Their mean label.
    """

    weights: NDArray[np.float64]
    predictions: NDArray[np.float64]
    labels: NDArray[np.float64]


class ItemMetric(Named, keras_bases.Metric, abc.ABC):
    """A measure of the items of all lists together; a subclass has `sums`.

    Args:
        from_logits: Whether `y_pred` are logits, whose sigmoid is the prediction. If False, they
            are predictions.
        name: Name of the metric, as in `ListwiseMetric`.
        dtype: The dtype of the computation.

    Inputs: as in `ListwiseMetric`, where the weight of an item is multiplied by that of its list.
    Labels are what is predicted: 0, 1, or a probability between.

    Raises:
        ValueError: If the shapes of the inputs do not match.
    """

    name: str = field(default=UNSET, kw_only=True)
    dtype: str = field(default=UNSET, kw_only=True)

    @property
    @abc.abstractmethod
    def from_logits(self) -> bool:
        """Whether `y_pred` are logits."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sums."""
        return (2,)

    def __post_init__(self) -> None:
        self.totals = self.add_weight(
            name="totals", shape=self.shape, initializer="zeros", dtype=self.dtype
        )

    @xp.entry_point
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds the sums of a batch of lists."""
        batch = relevances(y_true, y_pred, sample_weight, self.dtype)
        of_lists = batch.list_weights[:, xp.newaxis]
        weights = xp.where(batch.mask, xp.multiply_no_nan(of_lists, batch.weights), 0.0)
        # NaN * 0 is NaN
        labels, scores = (xp.where(weights != 0.0, x, 0.0) for x in (batch.labels, batch.scores))
        predictions = xp.sigmoid(scores) if self.from_logits else scores
        items = (xp.reshape(x, [-1]) for x in (labels, predictions, weights))
        self.totals.assign_add(self.sums(*items))

    def result(self) -> Tensor:
        """Computes the measure of all items since the last reset; 0 if there are none."""
        return self.of_sums(xp.convert_to_tensor(self.totals))

    def reset_state(self) -> None:
        """Forgets all batches."""
        self.totals.assign(xp.zeros(self.shape, self.dtype))  # Keras 2 resets scalars only

    @abc.abstractmethod
    def sums(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """Adds up what the measure needs of `[items]`, where padding has weight 0."""

    def of_sums(self, totals: Tensor) -> Tensor:
        """Computes the measure from the sums: the ratio of two, unless a subclass has others."""
        return xp.divide_no_nan(totals[0], totals[1])


@register
class BrierScore(ItemMetric):
    """Mean squared difference between the predicted probabilities and the labels of the items.

    ```
    value = sum_i w_i * (p_i - y_i)**2 / sum_i w_i
    ```

    It falls if predictions are better calibrated, and if they differ more between relevant and
    irrelevant items.

    Args:
        from_logits: Whether `y_pred` are logits, whose sigmoid is the prediction `p`.
        name: Name of the metric.
        dtype: The dtype of the computation.

    Inputs: as in `ItemMetric`.

    Example:
        >>> brier = metrics.BrierScore()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 0.0, 9.0]])
        >>> float(brier(y_true, y_pred))
        0.25

    Reference:
        [Brier, Verification of Forecasts Expressed in Terms of Probability, 1950](
        https://doi.org/10.1175/1520-0493(1950)078%3C0001:VOFEIT%3E2.0.CO;2).
    """

    from_logits: bool = True

    _direction = "down"

    def sums(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        errors = weights * xp.square(predictions - labels)
        return xp.stack([xp.reduce_sum(errors), xp.reduce_sum(weights)])


@register
class PCOC(ItemMetric):
    """Predicted clicks over observed clicks: 1 if predictions are right on average.

    ```
    value = sum_i w_i * p_i / sum_i w_i * y_i
    ```

    Above 1, the model predicts too much; below 1, too little. It is 0 if no label is positive.

    Args:
        from_logits: Whether `y_pred` are logits, whose sigmoid is the prediction `p`. If False,
            labels and predictions may be any numbers of at least 0.
        name: Name of the metric.
        dtype: The dtype of the computation.

    Inputs: as in `ItemMetric`.

    Example:
        >>> pcoc = metrics.PCOC()
        >>> y_true = tf.constant([[1.0, 0.0, 0.0, 0.0]])
        >>> float(pcoc(y_true, tf.zeros([1, 4])))  # predicts 4 * 0.5
        2.0

    Reference:
        [Graepel et al., Web-Scale Bayesian Click-Through Rate Prediction, 2010](
        https://icml.cc/Conferences/2010/papers/901.pdf), and others since.
    """

    from_logits: bool = True

    def sums(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        return xp.stack([xp.reduce_sum(weights * predictions), xp.reduce_sum(weights * labels)])


@register
class ECE(ItemMetric):
    """Expected calibration error: mean gap between prediction and label in bins of predictions.

    ```
    value = sum_b abs(sum_{i in b} w_i * (p_i - y_i)) / sum_i w_i
    ```

    Args:
        edges: Increasing edges between the bins, by default 0.1 to 0.9. If most predictions are
            small, as of click rates, take bins of equal numbers of items:
            `quantile_edges(predictions, 10)`.
        from_logits: Whether `y_pred` are logits, whose sigmoid is the prediction `p`. If False,
            labels and predictions may be any numbers.
        name: Name of the metric.
        dtype: The dtype of the computation.

    Inputs: as in `ItemMetric`.

    Raises:
        ValueError: If `edges` do not increase.

    Example:
        >>> ece = metrics.ECE()
        >>> y_true = tf.constant([[1.0, 0.0, 0.0, 0.0]])
        >>> float(ece(y_true, tf.zeros([1, 4])))  # predicts 0.5, observes 0.25
        0.25
        >>> ece.reliability().labels
        array([0.25])

    Reference:
        [Guo et al., On Calibration of Modern Neural Networks, 2017](
        https://arxiv.org/abs/1706.04599).
    """

    edges: Sequence[float] = TENTHS
    from_logits: bool = True

    _direction = "down"

    def __post_init__(self) -> None:
        if not (np.diff(self.edges) > 0.0).all():
            raise refusal("`edges` must increase", edges=list(self.edges))
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, ...]:
        """Three sums of each bin."""
        return 3, len(self.edges) + 1

    def sums(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        edges = xp.constant(list(self.edges), predictions.dtype)
        bins = xp.searchsorted(edges, predictions, side="right")
        parts = xp.stack([weights, weights * predictions, weights * labels], axis=1)
        return xp.transpose(xp.unsorted_segment_sum(parts, bins, len(self.edges) + 1))

    def of_sums(self, totals: Tensor) -> Tensor:
        weights, predictions, labels = xp.unstack(totals)
        gaps = xp.reduce_sum(xp.abs(predictions - labels))
        return xp.divide_no_nan(gaps, xp.reduce_sum(weights))

    def reliability(self) -> Reliability:
        """Returns the means of the bins since the last reset, for a reliability diagram."""
        totals = np.asarray(xp.convert_to_tensor(self.totals), np.float64)
        weights, predictions, labels = totals[:, totals[0] > 0.0]
        return Reliability(weights, predictions / weights, labels / weights)


@register
class LogitNorm(ListwiseMetric):
    """Root mean square of the logits of a list, to check whether an RG loss approximates softmax.

    For each list of scores `s` in `y_pred`, for any labels:

    ```
    norm = sqrt(sum_i w_i * (s_i - c)**2 / sum_i w_i)
    ```

    where `c` is 0, or the weighted mean of the scores if `centered`. `RG2Loss` expands the softmax
    around 0. Its error is half the squared mean score, at most half the squared norm, for each unit
    of gain; `RGCrossLoss` expands around the mean and has an error of third order. So the expansion
    is accurate if the norm is well below 1. If the norm is larger, the loss penalises high scores
    that softmax would allow, and the ranking gets worse: use more regularisation or a lower
    learning rate.

    Args:
        centered: Whether to measure around the mean, for `RGCrossLoss`, instead of around 0.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Example:
        >>> norm = metrics.LogitNorm()
        >>> y_true = tf.constant([[0.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 4.0, 9.0]])
        >>> round(float(norm(y_true, y_pred)), 4)  # sqrt((3**2 + 4**2) / 2)
        3.5355

    Reference:
        [NDCG-Consistent Softmax Approximation with Accelerated Convergence, 2025](
        https://arxiv.org/abs/2506.09454).
    """

    centered: bool = False

    _direction = "down"

    compares_items = False

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the weighted mean of the squares."""
        scores = xp.where(weights != 0.0, scores, 0.0)  # NaN * 0 is NaN
        shares = xp.divide_no_nan(weights, xp.reduce_sum(weights, axis=-1, keepdims=True))
        centre = masking.masked_sum(shares * scores, mask)[:, None]
        from_centre = scores - centre if self.centered else scores
        return xp.sqrt(masking.masked_sum(shares * xp.square(from_centre), mask))
