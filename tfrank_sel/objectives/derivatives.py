"""Gradient and curvature of a loss over lists that lie one after the other."""

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from tensorflow import Tensor

from tfrank_sel import losses
from tfrank_sel.errors import received, refusal
from tfrank_sel.links.composite import CompositeSoftmax
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.losses.bases import ScoreVectorLoss
from tfrank_sel.losses.pairwise import PairwiseLoss
from tfrank_sel.losses.sampled import SampledLoss
from tfrank_sel.objectives import closed_forms
from tfrank_sel.objectives.lists import (
    DATA_SETS,
    Array,
    arrays,
    as_scores,
    batches,
    check_labels,
    content,
)
from tfrank_sel.ops import masking

PAIRS = 2**22  # the sum of squares of widths, from which 150 trees repay a compilation of a second
STEP = 1 / 32  # of a central difference: float32 keeps four digits of it
SEPARABLE = (  # losses of a diagonal Hessian
    losses.DecomposedMatchingLoss,
    losses.FenchelYoungLoss,
    losses.MatchingLoss,
    losses.MeanSquaredLoss,
    losses.RG2Loss,
    losses.SelectiveSigmoidCrossEntropyLoss,
    losses.SelectiveSigmoidLoss,
    losses.SigmoidCrossEntropyLoss,
)


@functools.singledispatch
def hessian_diagonal(
    loss: ListwiseLoss, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor
) -> Tensor | None:
    """Computes the second derivative of `per_list` in each score, `[batch_size, list_size]`.

    Returns `None` for a loss without a closed form.
    """
    return None


@hessian_diagonal.register
def _(
    loss: losses.SoftmaxLoss, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor
) -> Tensor:
    if loss.lambda_weight is not None:
        labels = loss.lambda_weight.items(labels, scores, mask)
    targets = tf.where(mask, weights * loss.targets(labels, mask), 0.0)
    x = scores / loss.temperature
    # p * (1 - p), whose second factor keeps its digits where p nears 1
    spread = masking.softmax(x, mask) * masking.softmax_complement(x, mask)
    return tf.reduce_sum(targets, axis=-1, keepdims=True) * spread / loss.temperature**2


@hessian_diagonal.register
def _(
    loss: losses.RGCrossLoss, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor
) -> Tensor:
    total = tf.reduce_sum(weights, axis=-1, keepdims=True)
    gains = tf.where(mask & (total > 0.0), loss.gain(labels), 0.0)
    shares = tf.math.divide_no_nan(weights, total)
    anchor = loss.alpha * tf.cast(mask & (loss.gain(labels) > 0.0), scores.dtype)
    # half of the variance of the logits has the second derivative v_i - v_i**2
    return tf.reduce_sum(gains, axis=-1, keepdims=True) * shares * (1.0 - shares) + anchor


@hessian_diagonal.register
def _(
    loss: losses.SelectiveSoftmaxLoss, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor
) -> Tensor:
    link = CompositeSoftmax(loss.scaling, loss.gamma, loss.log_rho, loss.allow_nonconvex)
    return link.sensitivity(scores, mask, weights)


@hessian_diagonal.register
def _(loss: PairwiseLoss, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    return loss.curvature(labels, scores, mask, weights)


def _of_separable(
    loss: ListwiseLoss, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor
) -> Tensor:
    """Adds up the rows of a diagonal Hessian."""
    with tf.GradientTape() as outer:
        outer.watch(scores)
        with tf.GradientTape() as inner:
            inner.watch(scores)
            value = loss.per_list(labels, scores, mask, weights)
        # each slope depends on its own score only, so the derivative of their sum is the diagonal
        slope = inner.gradient(value, scores)
    return outer.gradient(slope, scores, unconnected_gradients="zero")


for kind in SEPARABLE:
    hessian_diagonal.register(kind, _of_separable)


def by_probes(
    gradient: Callable[[ListBatch], Tensor], batch: ListBatch, signs: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Computes the gradient, and estimates the diagonal of the Hessian `H` from other gradients.

    Args:
        gradient: Computes the gradient of lists in their scores.
        batch: The lists.
        signs: Vectors `z` of signs, of the shape of the scores. The diagonal is the mean of
            `z * (H z)` over them.
    """
    # Hutchinson: E[z_i z_j] is 1 for i = j and else 0, so the mean of z_i (H z)_i is H_ii
    z = tf.stack(signs)
    moves = STEP * tf.concat([tf.zeros_like(z[:1]), z, -z], axis=0)
    copies = [tf.broadcast_to(x, [1 + 2 * len(signs), *x.shape]) for x in batch]
    moved = ListBatch(*copies)._replace(scores=batch.scores + moves)
    # all in one batch, so that the formula is compiled once
    slopes = gradient(ListBatch(*(tf.reshape(x, [-1, *x.shape[2:]]) for x in moved)))
    at, up, down = tf.split(tf.reshape(slopes, moves.shape), [1, len(signs), len(signs)])
    return at[0], tf.reduce_mean(z * (up - down), axis=0) / (2.0 * STEP)


def random_signs(count: int, shape: Tensor, seed: Tensor, dtype: tf.DType) -> list[Tensor]:
    """Returns vectors of random signs, `[lists, width]`, orthogonal in any `count` neighbours.

    The mean over the vectors `z` of `z * (H z)` estimates the diagonal of `H` without bias. It is
    exact for lists of at most `count` items; otherwise only items whose distance is a multiple of
    `count` disturb each other.

    Args:
        count: Number of vectors; a power of two.
        shape: Number of lists, and their width.
        seed: Seed of the signs, two integers.
        dtype: Type of the vectors.
    """
    uniform = tf.random.stateless_uniform(shape, seed, alg="philox")
    signs = tf.where(uniform < 0.5, tf.ones([], dtype), -tf.ones([], dtype))
    # its columns are orthogonal: in the mean, z_i z_j vanishes unless i = j modulo `count`
    hadamard: NDArray[Any] = np.ones([1, 1])
    while len(hadamard) < count:
        hadamard = np.kron(hadamard, [[1, 1], [1, -1]])
    index = tf.range(shape[1]) % count
    return [signs * tf.gather(tf.constant(row, dtype), index) for row in hadamard]


class Derivatives:
    """First and second derivatives of a loss in the scores of items.

    The loss is the sum over the lists of their losses, times their weights: it is not divided by
    the number of lists. The second derivatives are the diagonal of the Hessian `H`: in closed form
    for pointwise and pairwise losses, `SoftmaxLoss`, `RGCrossLoss`, `RG2Loss`,
    `SelectiveSoftmaxLoss` and scalar matching losses. For any other loss they are the mean of
    `z * (H z)` over `probes` vectors `z` of random signs, by central differences of the gradient.

    They are made positive: each is at least its absolute value and `floor` times the mean of these
    over the list. In a list without curvature, all are the mean of the absolute gradient, so that a
    Newton step has a length of about 1.

    Args:
        loss: The loss. Its `reduction` is ignored.
        probes: Number of probes, a power of two; used only without a closed form. The result is
            exact for lists of at most so many items.
        floor: Minimum of the second derivatives, relative to their mean over the list.
        seed: Seed of the probes. The probes also depend on the scores, and on nothing else.

    Raises:
        TypeError: If `loss` is not a loss of this package.
        ValueError: If the loss takes several scores for an item, if the lists of a batch depend on
            each other, if the value depends on padding, or if `probes` or `floor` is out of range.

    Example:
        >>> derivatives = objectives.Derivatives(losses.MatchingLoss(links.Identity()))
        >>> derivatives([1.0, 2.0, 3.0], [2.0, 2.0, 0.0], group=[2, 1])
        (array([ 0.5,  0. , -3. ], dtype=float32), array([0.5, 0.5, 1. ], dtype=float32))
    """

    def __init__(
        self, loss: ListwiseLoss, probes: int = 4, floor: float = 0.01, seed: int = 0
    ) -> None:
        _check(loss, probes, floor)
        self.loss = loss
        self.probes = probes
        self.floor = floor
        self.seed = seed
        self._prepared = functools.lru_cache(DATA_SETS)(self._prepare)
        self._closed_form = functools.lru_cache(DATA_SETS)(self._derive)
        self._graphs = [
            tf.function(self._derivatives, jit_compile=is_compiled, autograph=False)
            for is_compiled in (False, True)
        ]

    def __deepcopy__(self, memo: Any) -> "Derivatives":
        return self  # a function: `lightgbm.train` copies it, and a copy would compile again

    def __reduce__(self) -> tuple[type["Derivatives"], tuple[Any, ...]]:
        return type(self), (self.loss, self.probes, self.floor, self.seed)

    def __call__(
        self,
        labels: ArrayLike,
        scores: ArrayLike,
        weights: ArrayLike | None = None,
        group: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """Computes the derivatives in each score.

        Args:
            labels: Label of each item, `[num_items]`; any real number that the loss can use. NaN is
                padding, and has derivatives 0.
            scores: Score of each item, `[num_items]`.
            weights: Weights per item, `[num_items]`, or per list, `[num_lists]`; 1 if `None`.
            group: Number of items of each list, `[num_lists]`, in the order of the items.

        Returns:
            The gradient and the diagonal of the Hessian, `[num_items]`.

        Raises:
            ValueError: If the loss cannot use a label, such as a negative one, or sizes differ.
        """
        lists = content(labels, weights, group)
        values = as_scores(scores, np.size(labels))
        if closed_forms.has_derivatives(self.loss):
            gradient, diagonal = self._closed_form(*lists)(values)
            return gradient.astype(np.float32), diagonal.astype(np.float32)
        prepared = self._prepared(*lists)
        if not len(values):
            return np.zeros(0, np.float32), np.zeros(0, np.float32)
        seed = np.array([self.seed, zlib.crc32(values.data)], np.int64)
        scores = tf.constant(values, self.loss.dtype)
        pairs = sum(index.shape.num_elements() * index.shape[-1] for index in prepared[1])
        gradient, diagonal = self._graphs[pairs > PAIRS](scores, tf.constant(seed), *prepared)
        return np.asarray(gradient, np.float32), np.asarray(diagonal, np.float32)

    def _derive(self, *lists: Any) -> closed_forms.ItemDerivatives:
        labels, weights, sizes = arrays(*lists)
        check_labels(self.loss, labels)
        return closed_forms.derivatives(self.loss, labels, weights, sizes, self.floor)

    def _prepare(
        self, labels: bytes, weights: bytes | None, group: bytes
    ) -> tuple[Tensor, list[Tensor], list[ListBatch]]:
        """Returns the slot of each item in all slots, the slots of `batches`, and their batches."""
        slots, of_slots = [], []
        for y_true, sample_weight, index in batches(self.loss, labels, weights, group):
            made = self.loss.batch_of(y_true, np.zeros_like(y_true), sample_weight, self.loss.dtype)
            # chunks are cut from every field, so none may be left to broadcast
            full = made._replace(
                weights=tf.broadcast_to(made.weights, y_true.shape),
                list_weights=tf.broadcast_to(made.list_weights, y_true.shape[:1]),
            )
            chunks = index.shape[:2]
            of_slots.append(ListBatch(*(tf.reshape(x, [*chunks, *x.shape[1:]]) for x in full)))
            slots.append(index)
        items = np.concatenate([np.zeros(0, np.int32), *map(np.ravel, slots)])
        places = np.empty(np.frombuffer(labels, np.float64).size + 1, np.int32)
        # empty slots write to the place behind the last item, which is cut off
        places[items] = np.arange(len(items), dtype=np.int32)
        return tf.constant(places[:-1]), [tf.constant(x) for x in slots], of_slots

    def _derivatives(
        self,
        scores: Tensor,
        seed: Tensor,
        places: Tensor,
        slots: Sequence[Tensor],
        batches: Sequence[ListBatch],
    ) -> tuple[Tensor, Tensor]:
        """Computes the derivatives of all lists, in one graph."""
        # empty slots have the index behind the last item
        scores = tf.concat([scores, [0.0]], axis=0)
        of_widths = []
        for i, (index, batch) in enumerate(zip(slots, batches, strict=True)):
            padded = tf.where(batch.mask, tf.gather(scores, index), self.loss.padding)
            chunks = batch._replace(scores=padded), _seeds(seed + [0, i], index.shape[0])
            of_widths.append(_in_turn(self._of_lists, chunks))
        flat = (
            tf.concat([tf.reshape(x, [-1]) for x in parts], axis=0)
            for parts in zip(*of_widths, strict=True)
        )
        gradient, diagonal = (tf.gather(x, places) for x in flat)
        return gradient, diagonal

    def _of_lists(self, chunk: tuple[ListBatch, Tensor]) -> tuple[Tensor, Tensor]:
        """Computes the derivatives of a batch of lists."""
        batch, seed = chunk
        diagonal = hessian_diagonal(self.loss, *batch[:4])
        if diagonal is not None:
            gradient = self._gradient(batch)
            diagonal *= tf.abs(batch.list_weights)[:, tf.newaxis]
        else:
            shape = tf.shape(batch.scores)
            signs = random_signs(self.probes, shape, seed, batch.scores.dtype)
            gradient, diagonal = by_probes(self._gradient, batch, signs)
        return tf.where(batch.mask, gradient, 0.0), self._positive(diagonal, gradient, batch.mask)

    def _gradient(self, batch: ListBatch) -> Tensor:
        with tf.GradientTape() as tape:
            tape.watch(batch.scores)
            value = tf.reduce_sum(batch.list_weights * self.loss.per_list(*batch[:4]))
        return tape.gradient(value, batch.scores, unconnected_gradients="zero")

    def _positive(self, diagonal: Tensor, gradient: Tensor, mask: Tensor) -> Tensor:
        """Computes absolute values above the floor, also if all second derivatives are 0."""
        sizes = tf.abs(diagonal)
        mean, slope = (
            masking.masked_mean(x, mask)[:, tf.newaxis] for x in (sizes, tf.abs(gradient))
        )
        least = tf.where(mean > 0.0, self.floor * mean, slope)
        return tf.where(mask, tf.maximum(sizes, least), 0.0)


def _in_turn(function: Callable[[Any], Any], chunks: Any) -> Any:
    """Applies a function to chunks, one at a time."""
    first = tf.nest.flatten(chunks)[0]
    if first.shape[0] == 1:
        return function(tf.nest.map_structure(lambda x: x[0], chunks))
    kinds = (chunks[0].scores.dtype,) * 2
    return tf.map_fn(function, chunks, fn_output_signature=kinds, parallel_iterations=1)


def _seeds(seed: Tensor, count: int) -> Tensor:
    """Derives a seed for each chunk."""
    return seed + tf.stack([tf.range(count, dtype=tf.int64), tf.zeros(count, tf.int64)], axis=1)


def _check(loss: ListwiseLoss, probes: int, floor: float) -> None:
    if not isinstance(loss, ListwiseLoss):
        raise TypeError(received("`loss` must be a `losses.ListwiseLoss`", loss=loss))
    if isinstance(loss, ScoreVectorLoss):
        raise ValueError(
            f"{type(loss).__name__} takes several scores for an item, but trees give one."
        )
    if isinstance(loss, SampledLoss):
        raise ValueError(f"{type(loss).__name__} draws new noise at each call: it has no Hessian.")
    if loss.padding is None:
        raise ValueError(
            f"{type(loss).__name__} cannot be an objective with these arguments: the value of a "
            "list depends on other lists, on padding or on the number of items."
        )
    if probes < 1 or probes & (probes - 1):
        raise refusal("`probes` must be a power of two", probes=probes)
    if not floor > 0.0:
        raise refusal("`floor` must be positive", floor=floor)
