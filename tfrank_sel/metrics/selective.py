"""Errors by region of the observed score, to check a selective loss where it matters."""

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any, Unpack

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Bound, Count, check_arguments, number_array
from tfrank_sel.errors import refusal
from tfrank_sel.keras_bases import MetricOptions
from tfrank_sel.links.base import Link
from tfrank_sel.listwise import ListBatch
from tfrank_sel.metrics.averaging import Averaging
from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.metrics.evaluator import by_value
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


class _Options(MetricOptions, total=False):
    averaging: Averaging


class _RegionMetric(ListwiseMetric):
    """A mean over the items whose observed score lies in a region."""

    _direction = "down"
    takes_classes = False
    compares_items = False

    lower: Bound = -math.inf
    upper: Bound = math.inf
    label_map: Link | None = None

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise refusal("`lower` must be below `upper`", lower=self.lower, upper=self.upper)

    @property
    def min_label(self) -> float:
        """The minimum label of a valid item; any score is valid."""
        return -math.inf if self.label_map is None else 0.0

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras, and treats items outside the region as padding."""
        batch = super().batch_of(y_true, y_pred, sample_weight, dtype)
        labels = batch.observed_scores(self.label_map)
        mask = self.inside(labels, batch.mask)
        return ListBatch(
            labels=xp.where(mask, labels, 0.0),
            scores=xp.where(mask, batch.scores, 0.0),
            mask=mask,
            weights=xp.where(mask, batch.weights, 0.0),
            list_weights=batch.list_weights,  # an `Evaluator` makes it 0 for a list without items
        )

    @property
    def input_key(self) -> Hashable:
        """Metrics of one region read the same batch of the same input."""
        return super().input_key, self.lower, self.upper, by_value(self.label_map)

    def inside(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Whether an item is valid and its observed score is in the region."""
        return mask & (labels >= self.lower) & (labels < self.upper)


@register
class RegionDivergence(_RegionMetric):
    """Mean matching divergence of the items whose observed score lies in a region.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    value = sum_i w_i * (H(z_i) - H(s_i) - (z_i - s_i) * h(s_i)) / sum_i w_i, lower <= s_i < upper
    ```

    where `h` is the link and `H` its potential. The metric is the mean over lists; a list without
    an item in the region is not counted.

    Args:
        link: The increasing function `h`.
        lower: The least score of the region.
        upper: The score above it, which does not belong to it.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `lower` is not below `upper`.

    Inputs: as in `ListwiseMetric`, but labels are scores: any real number is valid, NaN is padding.
    With a `label_map`, labels are relevances, and below 0 they are padding, too.

    Example:
        >>> metric = metrics.RegionDivergence(links.Identity(), lower=0.0)
        >>> y_true = tf.constant([[1.0, 2.0, -1.0]])  # the last item is below the region
        >>> y_pred = tf.constant([[3.0, 2.0, 9.0]])
        >>> float(metric(y_true, y_pred))  # the mean of (3 - 1)**2 / 2 and 0
        1.0

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 2.
    """

    def __init__(
        self,
        link: Link,
        lower: Bound = -math.inf,
        upper: Bound = math.inf,
        label_map: Link | None = None,
        **kwargs: Unpack[_Options],
    ) -> None:
        super().__init__(lower, upper, label_map, **kwargs)
        self.link = link

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the divergence of each item."""
        mask = self.inside(labels, mask)
        s, z = (xp.where(mask, x, self.link.origin) for x in (labels, scores))
        return _mean(self.link.divergence(z, s), mask, weights)


@register
class RegionAbsoluteError(_RegionMetric):
    """Mean absolute error of the items whose observed score lies in a region.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    value = sum_i w_i * abs(z_i - s_i) / sum_i w_i, lower <= s_i < upper
    ```

    The metric is the mean over lists; a list without an item in the region is not counted.

    Args:
        lower: The least score of the region.
        upper: The score above it, which does not belong to it.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `lower` is not below `upper`.

    Inputs: as in `RegionDivergence`.

    Example:
        >>> metric = metrics.RegionAbsoluteError(upper=0.0)
        >>> y_true = tf.constant([[-1.0, -2.0, 5.0]])  # the last item is above the region
        >>> y_pred = tf.constant([[-1.5, -2.0, 9.0]])
        >>> float(metric(y_true, y_pred))
        0.25

    Reference:
        [Willmott and Matsuura, Advantages of the mean absolute error, 2005](
        https://www.int-res.com/abstracts/cr/v30/n1/p79-82/), restricted to a region.
    """

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the absolute error of each item."""
        return _mean(xp.abs(scores - labels), self.inside(labels, mask), weights)


@register
class ExcessError(ListwiseMetric):
    """Root mean square of the error of what scores exceed a threshold by.

    For each list of observed scores `y` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    value = sqrt(sum_i w_i * (max(z_i, above) - max(y_i, above))**2 / sum_i w_i)
    ```

    The metric is the mean over lists. All items count, also those that are only taken for high.

    Args:
        above: The threshold, in the unit of the scores; all errors count if it is `-inf`.
        **kwargs: `averaging` and `dtype`, as in `ListwiseMetric`.

    Inputs: as in `ListwiseMetric`, but labels are scores: any real number is valid, NaN is padding.

    Example:
        >>> metric = metrics.ExcessError(above=1.0)
        >>> y_true = tf.constant([[3.0, 0.0]])
        >>> y_pred = tf.constant([[2.0, -9.0]])  # the second is below 1 in both
        >>> round(float(metric(y_true, y_pred)), 4)  # the root of the mean of 1 and 0
        0.7071

    Reference:
        The root mean square error of both scores, no less than `above`. On measures of a region
        that no forecast can hedge: [Taggart, Evaluation of point forecasts for extreme events using
        consistent scoring functions, 2022](https://arxiv.org/abs/2102.00577).
    """

    above: Bound = -math.inf

    _direction = "down"
    takes_classes = False
    compares_items = False

    @property
    def min_label(self) -> float:
        """The minimum label of a valid item; any score is valid."""
        return -math.inf

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the squared error of each item, and takes the root."""
        low = xp.constant(self.above, labels.dtype)
        error = xp.maximum(scores, low) - xp.maximum(labels, low)
        return xp.sqrt(_mean(xp.square(error), mask, weights))


@check_arguments
def by_region(
    edges: Sequence[float], link: Link | None = None, label_map: Link | None = None
) -> list[ListwiseMetric]:
    """Makes the metrics of each region between edges, below the first and from the last.

    Args:
        edges: Increasing scores, such as those of `quantile_edges`.
        link: Link whose divergence to add; only absolute errors if `None`.
        label_map: Link that maps a label to a score; if `None`, labels are scores.

    Returns:
        The metrics, to compile a model with, from the lowest region to the highest.

    Raises:
        TypeError: If `edges` is no sequence of numbers.
        ValueError: If `edges` is empty or not strictly increasing, or holds NaN or infinity.

    Example:
        >>> [metric.name for metric in metrics.by_region([0.0, 2.5])]
        ['absolute_error_below_0', 'absolute_error_0_to_2.5', 'absolute_error_from_2.5']
    """
    bounds = [-math.inf, *(float(edge) for edge in edges), math.inf]
    regions = list(itertools.pairwise(bounds))
    if len(bounds) == 2 or not all(low < high for low, high in regions):
        raise refusal("`edges` must be non-empty and strictly increasing", edges=list(edges))
    words = {x: f"{x:g}" for x in bounds}
    # Bounds that are equal in six digits need all their digits.
    if len({*words.values()}) < len(words):
        words = {x: repr(x).removesuffix(".0") for x in bounds}
    made: list[ListwiseMetric] = []
    for low, high in regions:
        region = f"{words[low]}_to_{words[high]}"
        if math.isinf(low) or math.isinf(high):
            region = f"below_{words[high]}" if math.isinf(low) else f"from_{words[low]}"
        if link is not None:
            made.append(RegionDivergence(link, low, high, label_map, name=f"divergence_{region}"))
        made.append(RegionAbsoluteError(low, high, label_map, name=f"absolute_error_{region}"))
    return made


@check_arguments
def quantile_edges(scores: Any, regions: Count) -> list[float]:
    """Computes the edges of regions with equal numbers of observed scores (quantiles).

    Args:
        scores: Observed scores of any shape, dense or ragged; NaN is padding.
        regions: The number of regions; at least 2.

    Returns:
        The increasing edges: `regions - 1`, or fewer if scores are tied.

    Raises:
        TypeError: If `regions` is no integer.
        ValueError: If `regions` is below 2, `scores` are no numbers, or all of them are NaN.

    Example:
        >>> metrics.quantile_edges([[1.0, 2.0, 3.0], [4.0, 5.0, float("nan")]], regions=2)
        [3.0]
    """
    flat = scores.flat_values if isinstance(scores, xp.RaggedTensor) else scores
    values = number_array("scores", flat).ravel()
    values = values[~np.isnan(values)]
    if regions < 2 or values.size == 0:
        raise refusal(
            "`regions` must be at least 2, and `scores` must hold a number that is not NaN",
            f"regions={regions}, {values.size} scores",
        )
    inner = np.quantile(values, np.linspace(0.0, 1.0, regions + 1)[1:-1])
    edges: list[float] = np.unique(inner).tolist()
    return edges


def _mean(values: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    total = masking.masked_sum(xp.multiply_no_nan(values, weights), mask)
    return xp.divide_no_nan(total, masking.masked_sum(weights, mask))
