"""The likelihood of an order under the Plackett-Luce model."""

from collections.abc import Callable

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.losses.bases.label_ordered import LabelOrderedLoss
from tfrank_sel.ops import label_order, masking, ranking
from tfrank_sel.serialization import register


@register
class ListMLELoss(LabelOrderedLoss):
    """Negative log-likelihood of the order of the labels (ListMLE and p-ListMLE).

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, in the order `1, ..., n` of
    descending labels, and for `x = s / temperature`:

    ```
    loss = w * sum_r c(r) * (log sum_{i >= r} exp(x_i) - x_r)
    w    = sum_i w_i * y_i / sum_i y_i
    ```

    where `c` is the weight of a position, 1 by default. It is 0 for a list without a relevant item.

    Items of equal labels have no order among themselves, but a model would learn the order in which
    the list holds them. Here tied items share their places (Efron's method for ties). Let `G` be a
    group of `m` items of equal labels. The place `r` of the `l`-th of them, counted from 0, has
    their mean score, and the group counts in the sum with the fraction that is left of it:

    ```
    x_r                      ->  mean_{i in G} x_i
    sum_{i >= r} exp(x_i)    ->  (1 - l / m) * sum_{i in G} exp(x_i) + sum_{i behind G} exp(x_i)
    ```

    The order of the items of a list is then irrelevant. The value lies between the mean and the
    maximum of those of all orders of the ties, and is their mean where tied items have equal
    scores.

    Args:
        position_weight: Maps 1-based positions to their weights `c`, at least 0; 1 if `None`. A
            decreasing one, such as `ops.ranking.log2_discount`, makes it p-ListMLE.
        temperature: Divides the scores; positive.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> loss = losses.ListMLELoss()
        >>> y_true = tf.constant([[2.0, 1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 3.0, 3.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(3) + log(2)
        1.7918
        >>> y_true = tf.constant([[1.0, 0.0]])
        >>> float(loss(y_true, tf.constant([[500.0, -500.0]])))  # exact, however sure the model is
        0.0

    Reference:
        [Xia et al., Listwise Approach to Learning to Rank, 2008](
        https://dl.acm.org/doi/10.1145/1390156.1390306); [Lan et al., Position-Aware ListMLE, 2014](
        https://auai.org/uai2014/proceedings/individuals/164.pdf); for ties, [Efron, The Efficiency
        of Cox's Likelihood Function for Censored Data, 1977](https://doi.org/10.2307/2286217).
    """

    position_weight: Callable[[tf.Tensor], tf.Tensor] | None = None
    temperature: Positive = 1.0

    def of_sorted(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Adds up the positions of each list."""
        x, group = scores / self.temperature, label_order.groups(labels, mask)
        positions = ranking.positions(x)
        first, behind = (tf.cast(place, x.dtype) for place in group)
        passed = (positions - 1.0 - first) / (behind - first)
        sums = label_order.sum_exp_behind(x, mask)
        top, total = (label_order.at(part, group.first) for part in sums)
        top_below, below = (label_order.at(part, group.behind) for part in sums)
        left = (1.0 - passed) * total + passed * tf.exp(top_below - top) * below
        log_left = tf.math.log(tf.where(mask, left, 1.0))
        if self.position_weight is None:
            return masking.masked_sum((top - x) + log_left, mask)
        c = tf.broadcast_to(self.position_weight(positions), tf.shape(x))
        up_to = tf.pad(tf.cumsum(c, axis=-1), [[0, 0], [1, 0]])
        share = label_order.at(up_to, group.behind) - label_order.at(up_to, group.first)
        return masking.masked_sum(c * (top + log_left) - share / (behind - first) * x, mask)
