"""Top-k losses, which are small if the relevant items are among the k best."""

import abc
import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, Unpack

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import AtLeast0, Count, Positive
from tfrank_sel.errors import refusal
from tfrank_sel.keras_bases import LossOptions
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, one_class, soft_topk, symmetric
from tfrank_sel.serialization import register


class Selection(Protocol):
    """Selects items by scores, `[batch_size, list_size]`, where -inf is an absent item."""

    @property
    def k(self) -> int:
        """The number of selected items."""

    def kth_largest_beside(self, x: Tensor, item: Tensor | None) -> tuple[Tensor, Tensor]:
        """The `k`-th largest score of all items but one, and the score of that item, in float64.

        The index of the item is `[batch_size]`, int32, or -1; or `None`, for no item in any list.
        The score is -inf for a list of fewer than `k` other items.
        """

    def best_means(self, x: Tensor) -> Tensor:
        """The sums of the `m` largest scores divided by `k`, `[batch_size, k + 1]`, in float64."""

    def maximum(self, x: Tensor) -> Tensor:
        """The largest number of each row."""

    def hinge(self, x: Tensor) -> Tensor:
        """`max(0, x)`."""


class HardSelection(NamedTuple):
    """The `k` items with the largest scores; among equal scores, the first items.

    Attributes:
        k: Number of items; positive.
    """

    k: int

    def kth_largest_beside(self, x: Tensor, item: Tensor | None) -> tuple[Tensor, Tensor]:
        x = xp.cast(x, xp.float64)
        if item is None:
            return _largest(x, self.k)[:, -1], xp.zeros(xp.shape(x)[:1], x.dtype)
        column = xp.range(xp.shape(x)[1], dtype=item.dtype)
        here = column == item[:, xp.newaxis]
        score = xp.reduce_sum(xp.where(here, x, 0.0), axis=1)
        nothing = xp.constant(-math.inf, x.dtype)
        return _largest(xp.where(here, nothing, x), self.k)[:, -1], score

    def best_means(self, x: Tensor) -> Tensor:
        sums = xp.cumsum(_largest(xp.cast(x, xp.float64), self.k), axis=1)
        return xp.pad(sums, [[0, 0], [1, 0]]) / self.k

    def maximum(self, x: Tensor) -> Tensor:
        return xp.reduce_max(x, axis=-1)

    def hinge(self, x: Tensor) -> Tensor:
        return xp.relu(x)


class SoftSelection(NamedTuple):
    """A sample of `k` items, each set of them with odds `exp(mean score / tau)`.

    Attributes:
        k: Number of items; positive.
        tau: Temperature, a positive scalar in float64.
    """

    k: int
    tau: Tensor

    def kth_largest_beside(self, x: Tensor, item: Tensor | None) -> tuple[Tensor, Tensor]:
        if item is None:
            item = xp.fill([xp.shape(x)[0]], -1)
        return symmetric.soft_kth_largest_beside(x, item, self.k, self.k * self.tau)

    def best_means(self, x: Tensor) -> Tensor:
        logs = symmetric.log_symmetric(xp.cast(x, xp.float64) / (self.k * self.tau), self.k)
        return self.tau * logs

    def maximum(self, x: Tensor) -> Tensor:
        tau = xp.cast(self.tau, x.dtype)
        top = xp.reduce_max(x, axis=-1, keepdims=True)
        # The largest score cancels, so its gradient is stopped.
        top = xp.stop_gradient(xp.where(top > -math.inf, top, 0.0))
        total = xp.reduce_sum(xp.exp((x - top) / tau), axis=-1)
        some = total > 0.0
        logs = top[..., 0] + tau * xp.log(xp.where(some, total, 1.0))
        return xp.where(some, logs, -math.inf)

    def hinge(self, x: Tensor) -> Tensor:
        tau = xp.cast(self.tau, x.dtype)
        return tau * xp.softplus(x / tau)


def _largest(x: Tensor, k: int) -> Tensor:
    """The `k` largest scores, of which those beyond the list's size are -inf."""
    padded = xp.pad(x, [[0, 0], [0, k]], constant_values=xp.constant(-math.inf, x.dtype))
    return xp.top_k(padded, k).values


# A form of the loss for lists with several relevant items, those of positive labels; all others of
# the list compete with them. With one relevant item, all forms are equal. It takes (selection,
# margin, labels, scores, mask, weights) and returns the loss of each list, `[batch_size]`.
Form = Callable[[Selection, float, Tensor, Tensor, Tensor, Tensor], Tensor]


@register
def mean_over_relevant(
    selection: Selection,
    margin: float,
    labels: Tensor,
    scores: Tensor,
    mask: Tensor,
    weights: Tensor,
) -> Tensor:
    """Requires each relevant item to be among the `k` best of itself and the irrelevant items.

    ```
    loss = sum_i w_i * y_i * hinge(margin + (T - s_i) / k) / sum_i y_i
    ```

    where `T` is the `k`-th largest score of the irrelevant items, so that relevant items do not
    compete with each other.
    """
    kth, _ = selection.kth_largest_beside(_only(scores, mask & (labels <= 0.0)), None)
    exists = kth > -math.inf
    required = xp.where(exists, kth, 0.0) + margin * selection.k
    # required - scores, without the rounding of `required` to the dtype of the scores
    scores = xp.where(mask, scores, 0.0)
    head = xp.cast(required, scores.dtype)
    rest = xp.cast(required - xp.cast(head, required.dtype), scores.dtype)
    missing = (head[:, xp.newaxis] - scores) + rest[:, xp.newaxis]
    losses = selection.hinge(missing / selection.k)
    return xp.where(exists, mean_by_label(weights * losses, labels, mask), 0.0)


@register
def hit_at_k(
    selection: Selection,
    margin: float,
    labels: Tensor,
    scores: Tensor,
    mask: Tensor,
    weights: Tensor,
) -> Tensor:
    """Requires at least one relevant item to be among the `k` best of the list.

    ```
    loss = w * hinge(margin + N_k - max_{r >= 1} (R_r + N_{k-r}))
    ```

    where `R_m` and `N_m` are the sums of the `m` largest scores of the relevant and of the other
    items, divided by `k`, and `w` is the mean of the relevant items' weights.
    """
    relevant, others = _best_means(selection, labels, scores, mask)
    hit = selection.maximum((relevant + xp.reverse(others, axis=[1]))[:, 1:])
    loss = _hinge_of_difference(selection, margin + others[:, selection.k], hit)
    return mean_by_label(weights, labels, mask) * xp.cast(loss, scores.dtype)


@register
def recall_structured(
    selection: Selection,
    margin: float,
    labels: Tensor,
    scores: Tensor,
    mask: Tensor,
    weights: Tensor,
) -> Tensor:
    """Requires as many relevant items as possible to be among the `k` best of the list.

    ```
    loss = w * hinge(max_{r < q} (margin * (q - r) / q + R_r + N_{k-r}) - (R_q + N_{k-q}))
    ```

    where `q` is the smaller of `k` and the number of relevant items; the rest is as in `hit_at_k`.
    """
    relevant, others = _best_means(selection, labels, scores, mask)
    hits = xp.range(selection.k + 1, dtype=relevant.dtype)
    most = xp.reduce_sum(xp.cast(relevant > -math.inf, relevant.dtype), axis=1, keepdims=True) - 1.0
    sets = relevant + xp.reverse(others, axis=[1])
    nothing = xp.constant(-math.inf, sets.dtype)
    best = xp.reduce_max(xp.where(hits == most, sets, nothing), axis=1)
    lacking = margin * (1.0 - hits / xp.maximum(most, 1.0))
    rival = selection.maximum(xp.where(hits < most, sets + lacking, nothing))
    loss = _hinge_of_difference(selection, rival, best)
    return mean_by_label(weights, labels, mask) * xp.cast(loss, scores.dtype)


def _best_means(
    selection: Selection, labels: Tensor, scores: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The sums of the largest scores of the relevant and of the other items, divided by `k`."""
    relevant = labels > 0.0
    groups = (_only(scores, mask & relevant), _only(scores, mask & ~relevant))
    return tuple(selection.best_means(x) for x in groups)


def _hinge_of_difference(selection: Selection, a: Tensor, b: Tensor) -> Tensor:
    """The hinge of `a - b`; 0 if one of them does not exist."""
    exist = (a > -math.inf) & (b > -math.inf)
    a, b = xp.where(exist, a, 0.0), xp.where(exist, b, 0.0)
    return xp.where(exist, selection.hinge(a - b), 0.0)


def _only(scores: Tensor, which: Tensor) -> Tensor:
    return xp.where(which, scores, xp.constant(-math.inf, scores.dtype))


def mean_by_label(x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Averages over the relevant items of each list, weighted by their labels; 0 without any."""
    total = masking.masked_sum(labels, mask & (labels > 0.0))
    return xp.divide_no_nan(masking.masked_sum(x * labels, mask & (labels > 0.0)), total)


class _TopKLoss(ListwiseLoss):
    """A loss of the `k` best items of a list, or of the `k` most likely classes."""

    takes_any_index = True
    takes_minus_infinity = True
    ignores_level = True

    k: Count
    margin: AtLeast0 = 1.0
    form: Form = mean_over_relevant

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise refusal("`dtype` must be float32 or float64", f"dtype={self.dtype}")

    @property
    @abc.abstractmethod
    def selection(self) -> Selection:
        """The selection of the `k` best items."""

    has_class_form = True

    def check_size(self, shape: xp.TensorShape) -> None:
        super().check_size(shape)
        if shape[1] is not None and self.k >= shape[1]:
            warnings.warn(
                f"{type(self).__name__} is 0 for lists of up to `k` items. Received: k={self.k}, "
                f"y_pred.shape={shape}",
                stacklevel=4,
            )

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the loss of each list."""
        mask = mask & (scores > -math.inf)
        return self.form(self.selection, self.margin, labels, scores, mask, weights)

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes the loss of one relevant item, which is equal in all forms."""
        valid = (classes >= 0) & (classes < xp.shape(scores)[1])
        kth, score = self.selection.kth_largest_beside(scores, xp.where(valid, classes, -1))
        valid = valid & (kth > -math.inf) & (score > -math.inf)
        kth, score = (xp.where(valid, x, 0.0) for x in (kth, score))
        missing = self.margin + (kth - score) / self.k
        return xp.cast(xp.where(valid, self.selection.hinge(missing), 0.0), scores.dtype)


@register
class SmoothTopKLoss(_TopKLoss):
    """Smooth top-k loss: small if the relevant item is among the `k` best.

    For each list of scores `s` and a relevant item `y`, whose competitors are the other items:

    ```
    T    = k * tau * (log sigma_k(e) - log sigma_{k-1}(e)), e_j = exp(s_j / (k * tau)), j != y
    loss = tau * softplus((margin + (T - s_y) / k) / tau)
    ```

    where `sigma_m` is the elementary symmetric polynomial of degree `m`, the sum over all sets of
    `m` competitors of the product of their `e_j`. So `T` is a soft `k`-th largest score of the
    competitors. With `k = 1`, `tau = 1` and `margin = 0` the loss is the softmax cross-entropy.
    With a small `tau` it is close to `TopKHingeLoss`, whose gradient is non-zero for two items: the
    relevant one and the `k`-th best of the others, as the two sums of `k` scores that it compares
    differ in these only. With a large `tau`, more items have a gradient. The loss is 0 for a list
    of up to `k` items, because all of them are among the `k` best.

    The guide to losses, `docs/losses.md`, tells when to use `TopKCrossEntropyLoss` or
    `SoftmaxLoss` instead: if labels are right, this loss has a low top-1 accuracy.

    Args:
        k: Number of best items; positive.
        tau: Temperature, positive. `callbacks.AnnealTau` changes `current_tau` as training goes.
        margin: Margin by which the relevant item must be ahead, in units of the mean score of `k`
            items; at least 0.
        form: Loss of a list with several relevant items. `losses.mean_over_relevant` (the default)
            requires each of them to be among the `k` best of itself and the irrelevant items;
            `losses.hit_at_k` requires one; `losses.recall_structured` requires as many as possible.
            The default averages the original loss over the relevant items: it is as fast, uses
            graded labels and item weights, and its value does not grow with the number of items.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`; `dtype` is float32 or float64.

    Raises:
        ValueError: If `k` or `tau` is not positive, or `margin` is negative.

    Inputs: as in `ListwiseLoss`, where an item is relevant if its label is positive, and in the
    mean over relevant items a label is a weight. For classification, `y_true` is the index of the
    relevant class, `[batch_size]` or `[batch_size, 1]`, and `y_pred` has the scores of all classes,
    `[batch_size, classes]`; a negative index means no relevant class, and the loss is 0.

    Example:
        >>> loss = losses.SmoothTopKLoss(2, tau=0.1)
        >>> y_pred = tf.constant([[5.0, 4.0, 1.0, 0.0]])
        >>> round(float(loss(tf.constant([1]), y_pred)), 4)  # second, by more than k * margin
        0.0007
        >>> round(float(loss(tf.constant([2]), y_pred)), 4)  # third: 1 + (4 - 1) / 2
        2.4993
        >>> float(loss(tf.constant([[0.0, 0.0, 1.0, 0.0]]), y_pred)) == float(
        ...     loss(tf.constant([2]), y_pred)
        ... )
        True

    Reference:
        [Berrada et al., Smooth Loss Functions for Deep Top-k Classification, 2018](
        https://arxiv.org/abs/1802.07595).
    """

    def __init__(
        self,
        k: Count,
        tau: Positive = 1.0,
        margin: AtLeast0 = 1.0,
        form: Form = mean_over_relevant,
        **kwargs: Unpack[LossOptions],
    ) -> None:
        super().__init__(k, margin, form, **kwargs)
        self.tau = tau
        # A variable, so that a compiled training step reads the value that a callback has set
        self.current_tau = xp.Variable(tau, trainable=False, dtype=xp.float64, name="tau")

    @property
    def selection(self) -> Selection:
        """A sample of `k` items at the current temperature."""
        return SoftSelection(self.k, xp.convert_to_tensor(self.current_tau))


@register
class TopKHingeLoss(_TopKLoss):
    """Top-k hinge loss: 0 if the relevant item is among the `k` best by a margin.

    For each list of scores `s` and a relevant item `y`:

    ```
    loss = max(0, margin + (s_(k) - s_y) / k)
    ```

    where `s_(k)` is the `k`-th largest score of the other items. It is the limit of
    `SmoothTopKLoss` as `tau` goes to 0.

    Args:
        k: Number of best items; positive.
        margin: As in `SmoothTopKLoss`.
        form: As in `SmoothTopKLoss`.
        **kwargs: `reduction` and `dtype`, as in `SmoothTopKLoss`.

    Raises:
        ValueError: If `k` is not positive, or `margin` is negative.

    Inputs: as in `SmoothTopKLoss`.

    Example:
        >>> loss = losses.TopKHingeLoss(2)
        >>> y_pred = tf.constant([[5.0, 4.0, 1.0, 0.0]])
        >>> float(loss(tf.constant([2]), y_pred))  # third: 1 + (4 - 1) / 2
        2.5

    Reference:
        [Lapin et al., Top-k Multiclass SVM, 2015](https://arxiv.org/abs/1511.06683); [Berrada et
        al., Smooth Loss Functions for Deep Top-k Classification, 2018](
        https://arxiv.org/abs/1802.07595), equation 4.
    """

    @property
    def selection(self) -> Selection:
        """The `k` items with the largest scores."""
        return HardSelection(self.k)


@register
class TopKCrossEntropyLoss(ListwiseLoss):
    """Cross-entropy of the membership in the top `k`, for several `k` at once.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = -sum_i w_i * y_i * log(sum_k P_k * p_i(k)) / sum_i y_i
    ```

    where `p_i(k)` is the soft membership of item `i` in the top `k` of the list, with
    `sum_i p_i(k) = k` (`tfrank_sel.ops.soft_topk`), of scores divided by `temperature`. With `k`
    of 1 and 5, an item may be anywhere among the best five, and gains most in the first place. A
    loss of one `k` above 1 has no reason to prefer the first place. The loss is 0 for a list
    without a relevant item, and an item of a list of up to `k` items has `p_i(k)` = 1. An item with
    score `-inf` is excluded.

    Work is linear in the list size: some 10 to 20 passes for each `k`, and fewer in long lists.

    Args:
        k: Numbers of top ranks, each positive.
        probabilities: Probability `P_k` of each `k`, positive, with sum 1; all equal if `None`.
        temperature: Divides the scores; positive. As it goes to 0, the memberships become 0 or 1.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If an argument is out of range, or `k` and `probabilities` differ in length.

    Example:
        >>> loss = losses.TopKCrossEntropyLoss(k=[1, 2])
        >>> y_true = tf.constant([[1.0, 0.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # -log((1/3 + 2/3) / 2)
        0.6931

    Reference:
        [Petersen et al., Differentiable Top-k Classification Learning, 2022](
        https://arxiv.org/abs/2206.07290), with the memberships of [Struski et al., LapSum, 2025](
        https://arxiv.org/abs/2503.06242).
    """

    k: Sequence[int] = (1, 5)
    probabilities: Sequence[float] | None = None
    temperature: Positive = 1.0

    takes_minus_infinity = True
    ignores_level = True

    def __post_init__(self) -> None:
        if not len(self.k) or min(self.k) < 1:
            raise refusal("`k` must be one or several positive integers", k=self.k)
        if self.probabilities is not None and (
            len(self.probabilities) != len(self.k)
            or not min(self.probabilities) > 0.0
            or not math.isclose(math.fsum(self.probabilities), 1.0, rel_tol=1e-6)
        ):
            raise refusal(
                f"`probabilities` must be {len(self.k)} positive numbers whose sum is 1, one for "
                "each `k`",
                f"probabilities={self.probabilities}, k={self.k}",
            )

    has_class_form = True

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the losses of the relevant items of each list, weighted by their labels."""
        mask = mask & (scores > -math.inf)
        scores = masking.at_temperature(xp.where(mask, scores, 0.0), mask, self.temperature)
        losses = self._of_each_k(lambda k: soft_topk.log_memberships(scores, k, mask))
        return mean_by_label(weights * losses, labels, mask)

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes the loss of each class."""
        score = one_class.scores_of(classes, scores)
        is_there = one_class.are_there(classes, scores) & (score > -math.inf)
        x = masking.logits(scores, None, self.temperature)
        losses = self._of_each_k(lambda k: soft_topk.log_memberships_of(classes, x, k))
        return xp.where(is_there, losses, 0.0)

    def _of_each_k(self, log_memberships: Callable[[int], Tensor]) -> Tensor:
        shares = self.probabilities or [1.0 / len(self.k)] * len(self.k)
        logs = [
            math.log(share) + log_memberships(k) for k, share in zip(self.k, shares, strict=True)
        ]
        return -xp.reduce_logsumexp(xp.stack(logs), axis=0)
