"""Contrastive softmax losses: one positive against negatives."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.errors import refusal
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, one_class
from tfrank_sel.serialization import register


@register
class InfoNCELoss(ListwiseLoss):
    """Contrastive loss of each positive of a list against the negatives of that list.

    For each list of relevances `y` in `y_true` and similarities `s` in `y_pred`:

    ```
    loss = mean_{i: y_i > 0} w_i * log(1 + sum_{j: y_j = 0} exp((s_j - s_i) / temperature))
    ```

    It is 0 for a list without a positive or without a negative. A negative that duplicates a
    positive is masked by a label of NaN. With one positive it is the `SoftmaxLoss`; several
    positives do not compete with one another. `exp(-loss)` is a lower bound of the reciprocal rank,
    the average precision and the NDCG of the list.

    Args:
        temperature: Divides the similarities; positive.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Inputs: as in `ListwiseLoss`. Only the weights of positives count.

    Example:
        >>> loss = losses.InfoNCELoss(temperature=0.5)
        >>> y_true = tf.constant([[1.0, 0.0, float("nan")]])  # the last is the positive again
        >>> y_pred = tf.constant([[0.5, 0.5, 0.5]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [van den Oord et al., Representation Learning with Contrastive Predictive Coding, 2018](
        https://arxiv.org/abs/1807.03748).
    """

    ignores_level = True

    temperature: Positive = 1.0

    has_class_form = True

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes the loss of one positive item, a cross-entropy."""
        return one_class.cross_entropy(classes, masking.logits(scores, None, self.temperature))

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the losses of the positives of each list."""
        positive = mask & (labels > 0.0)
        negative = mask & ~positive
        # relative to the hardest negative: the value is the same, and large scores keep their
        # digits
        hardest = xp.reduce_max(
            xp.where(negative, scores, xp.limits(scores.dtype).min), -1, keepdims=True
        )
        hardest = xp.where(xp.reduce_any(negative, axis=-1, keepdims=True), hardest, 0.0)
        x = (scores - xp.stop_gradient(hardest)) / self.temperature
        top = masking.log_sum_exp(x, negative)[:, xp.newaxis]
        contrasts = xp.where(
            xp.reduce_any(negative, axis=-1, keepdims=True), xp.softplus(top - x), 0.0
        )
        return masking.masked_mean(weights * contrasts, positive)


@register
class InBatchInfoNCELoss(ListwiseLoss):
    """Contrastive loss among the pairs of a batch, with the positives on the diagonal.

    For the matrix `S` of similarities in `y_pred`, of query `i` with item `j`, row `i` has

    ```
    x_ij   = S_ij / temperature - log q_j
    loss_i = -w_ii * log softmax(x[i, :])_i
    loss_i = (loss_i - w_ii * log softmax(x[:, i])_i) / 2    if symmetric
    ```

    where `q_j` is the probability with which item `j` is drawn as a negative, and items `j != i`
    that equal item `i` (accidental hits) are left out of the softmax: `y_true` identifies the
    items.

    A batch of interactions draws popular items more often as negatives. Without `log q`, the
    learned similarity is lower by the logarithm of the popularity. With `log q`, which corrects
    every column, also that of the positive, the loss estimates the softmax over all items. In the
    columns of the symmetric form, queries compete, and `log q` has no effect.

    Args:
        temperature: Divides the similarities; positive.
        symmetric: Whether to also contrast items with queries.
        log_q: Logarithm of the probability of each item by its identity, `[num_items]`; identities
            are then integers from 0 on. Adding a constant to all changes nothing, so you can pass
            log counts. If `None`, all are equal. If frequencies are unknown before training, or
            drift, omit `log_q` and let `models.LogQCorrection` estimate them.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, `log_q` is not a finite vector, or `y_pred` is
            not square.

    Inputs: `y_true` holds an identity of the item of each pair, `[batch_size]` or
    `[batch_size, 1]`, of any dtype, but integers below `num_items` if there is a `log_q`; `y_pred`
    is `[batch_size, batch_size]`. Pairs that a Keras mask of `y_pred` excludes are left out.
    `sample_weight` is as in `ListwiseLoss`.

    Example:
        >>> loss = losses.InBatchInfoNCELoss(symmetric=True)
        >>> y_true = tf.constant([7, 8, 7])  # the first and the last pair have the same item
        >>> round(float(loss(y_true, tf.zeros([3, 3]))), 4)  # (2 * log(2) + log(3)) / 3
        0.8283
        >>> log_q = np.log([0.75, 0.25])  # item 0 is drawn three times as often
        >>> loss = losses.InBatchInfoNCELoss(log_q=log_q)
        >>> value = loss(tf.constant([0, 1]), tf.zeros([2, 2]))
        >>> round(float(value), 4)  # the mean of log(1 + 3 / 1) and log(1 + 1 / 3)
        0.837

    Reference:
        [van den Oord et al., Representation Learning with Contrastive Predictive Coding, 2018](
        https://arxiv.org/abs/1807.03748); [Yi et al., Sampling-Bias-Corrected Neural Modeling for
        Large Corpus Item Recommendations, 2019](https://doi.org/10.1145/3298689.3346996), for
        `log q`; [Radford et al., Learning Transferable Visual Models From
        Natural Language Supervision, 2021](https://arxiv.org/abs/2103.00020), for the symmetric
        form.
    """

    takes_classes = False

    temperature: Positive = 1.0
    symmetric: bool = False
    log_q: Sequence[float] | None = None

    padding = None  # in the symmetric form, the value of a list depends on the other lists

    def __post_init__(self) -> None:
        if self.log_q is not None and (
            np.ndim(self.log_q) != 1 or not np.all(np.isfinite(self.log_q))
        ):
            raise refusal("`log_q` must be finite, of shape [num_items]", self.log_q)

    def of_numbers(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Converts scores and weights; an identity need not be a number."""
        _, y_pred, sample_weight = super().of_numbers(0, y_pred, sample_weight)
        return y_true, y_pred, sample_weight

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Converts identities to labels: 1 on the diagonal, NaN for repeated items, else 0."""
        if isinstance(y_true, xp.RaggedTensor):
            raise refusal(
                "`y_true` must have shape [batch_size] or [batch_size, 1]",
                f"a ragged tensor, y_true.shape={y_true.shape}",
            )
        identities = xp.reshape(xp.convert_to_tensor(y_true), [-1])
        again = identities[:, xp.newaxis] == identities
        size = xp.shape(again)[0]
        labels = xp.where(again, xp.constant(math.nan, dtype), 0.0)
        labels = xp.set_diag(labels, xp.ones([size], dtype))
        batch = super().batch_of(labels, y_pred, sample_weight, dtype)
        if self.log_q is None:
            return batch
        # `per_list` divides by the temperature, which is not to divide log q
        log_q = xp.gather(xp.constant(self.log_q, dtype), xp.cast(identities, xp.int64))
        scores = masking.centre(batch.scores, batch.mask, None if self.symmetric else -1)
        scores = xp.where(batch.mask, scores - self.temperature * log_q, 0.0)
        return batch._replace(scores=scores)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the loss of each pair."""

        def entropies(targets: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
            x = masking.logits(scores, mask, self.temperature)
            return masking.cross_entropy(targets, x, mask)

        fields = weights * labels, scores, mask
        if not self.symmetric:
            return entropies(*fields)
        return 0.5 * (entropies(*fields) + entropies(*map(xp.transpose, fields)))


def mutual_information_bound(loss: Tensor, num_candidates: int) -> Tensor:
    """Computes a lower bound of the mutual information of queries and items, `log(n) - loss`.

    Args:
        loss: Mean InfoNCE loss, with one positive per list.
        num_candidates: The number `n` of items that each query is compared with, the positive
            among them: the batch size for an `InBatchInfoNCELoss`.

    Returns:
        The bound, in nats. It is at most `log(n)`, for any mutual information.

    Example:
        >>> round(losses.mutual_information_bound(0.5, num_candidates=8), 4)
        1.5794
    """
    return math.log(num_candidates) - loss
