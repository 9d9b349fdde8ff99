"""Forms of a top-k loss for lists with several relevant items.

For a list with one relevant item, all forms give the same loss. An item is relevant if
its label is positive; all others of the list compete with it.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from tfrank_sel.ops import masking
from tfrank_sel.ops.selection import Selection
from tfrank_sel.serialization import register

# of (selection, margin, labels, scores, mask, weights), the loss of each list, `[batch_size]`
Form = Callable[[Selection, float, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@register
def mean_over_relevant(
    selection: Selection,
    margin: float,
    labels: tf.Tensor,
    scores: tf.Tensor,
    mask: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    """Requires each relevant item to be among the `k` best of itself and the irrelevant items.

    ```
    loss = sum_i w_i * y_i * hinge(margin + (T - s_i) / k) / sum_i y_i
    ```

    where `T` is the `k`-th largest score of the irrelevant items, so that relevant items do not
    compete with each other.
    """
    kth, _ = selection.kth_largest_beside(_only(scores, mask & (labels <= 0.0)), None)
    exists = kth > -math.inf
    wanted = tf.where(exists, kth, 0.0) + margin * selection.k
    # wanted - scores, without the rounding of what is wanted to the dtype of the scores
    head = tf.cast(wanted, scores.dtype)
    rest = tf.cast(wanted - tf.cast(head, wanted.dtype), scores.dtype)
    missing = (head[:, tf.newaxis] - scores) + rest[:, tf.newaxis]
    losses = selection.hinge(missing / selection.k)
    return tf.where(exists, mean_by_label(weights * losses, labels, mask), 0.0)


@register
def hit_at_k(
    selection: Selection,
    margin: float,
    labels: tf.Tensor,
    scores: tf.Tensor,
    mask: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    """Requires at least one relevant item to be among the `k` best of the list.

    ```
    loss = w * hinge(margin + N_k - max_{r >= 1} (R_r + N_{k-r}))
    ```

    where `R_m` and `N_m` are the sums of the `m` largest scores of the relevant and of the other
    items, divided by `k`, and `w` is the mean of the relevant items' weights.
    """
    relevant, others = _best_means(selection, labels, scores, mask)
    hit = selection.maximum((relevant + tf.reverse(others, axis=[1]))[:, 1:])
    loss = _hinge_of_difference(selection, margin + others[:, selection.k], hit)
    return mean_by_label(weights, labels, mask) * tf.cast(loss, scores.dtype)


@register
def recall_structured(
    selection: Selection,
    margin: float,
    labels: tf.Tensor,
    scores: tf.Tensor,
    mask: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    """Requires as many relevant items as possible to be among the `k` best of the list.

    ```
    loss = w * hinge(max_{r < q} (margin * (q - r) / q + R_r + N_{k-r}) - (R_q + N_{k-q}))
    ```

    where `q` is the smaller of `k` and the number of relevant items; the rest is as in `hit_at_k`.
    """
    relevant, others = _best_means(selection, labels, scores, mask)
    found = tf.range(selection.k + 1, dtype=relevant.dtype)
    most = tf.reduce_sum(tf.cast(relevant > -math.inf, relevant.dtype), axis=1, keepdims=True) - 1.0
    sets = relevant + tf.reverse(others, axis=[1])
    nothing = tf.constant(-math.inf, sets.dtype)
    best = tf.reduce_max(tf.where(found == most, sets, nothing), axis=1)
    lacking = margin * (1.0 - found / tf.maximum(most, 1.0))
    rival = selection.maximum(tf.where(found < most, sets + lacking, nothing))
    loss = _hinge_of_difference(selection, rival, best)
    return mean_by_label(weights, labels, mask) * tf.cast(loss, scores.dtype)


def _best_means(
    selection: Selection, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The sums of the largest scores of the relevant and of the other items, divided by `k`."""
    relevant = labels > 0.0
    groups = (_only(scores, mask & relevant), _only(scores, mask & ~relevant))
    return tuple(selection.best_means(x) for x in groups)


def _hinge_of_difference(selection: Selection, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The hinge of `a - b`; 0 if one of them does not exist."""
    exist = (a > -math.inf) & (b > -math.inf)
    a, b = tf.where(exist, a, 0.0), tf.where(exist, b, 0.0)
    return tf.where(exist, selection.hinge(a - b), 0.0)


def _only(scores: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    return tf.where(which, scores, tf.constant(-math.inf, scores.dtype))


def mean_by_label(x: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Averages over the relevant items of each list, weighted by their labels; 0 without any."""
    total = masking.masked_sum(labels, mask & (labels > 0.0))
    return tf.math.divide_no_nan(masking.masked_sum(x * labels, mask & (labels > 0.0)), total)
