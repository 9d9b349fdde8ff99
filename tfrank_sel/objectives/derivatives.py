"""Gradient and curvature of a loss over lists that lie one after the other."""

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.losses.bases import ScoreVectorLoss
from tfrank_sel.losses.sampled import SampledLoss
from tfrank_sel.objectives import curvature
from tfrank_sel.objectives.labels import check_labels
from tfrank_sel.objectives.lists import DATA_SETS, Array, Lists, as_scores, content
from tfrank_sel.ops import masking


class Prepared(NamedTuple):
    """A set of lists, laid out for a loss.

    Attributes:
        places: Those of `Lists`.
        slots: Those of `Lists`.
        batches: Labels, masks and weights, each of the shape of the slots.
    """

    places: tf.Tensor
    slots: list[tf.Tensor]
    batches: list[ListBatch]


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
        self._compiled = tf.function(self._derivatives, jit_compile=True, autograph=False)

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
        lists = self._prepared(*content(labels, weights, group))
        values = as_scores(scores, len(lists.places))
        if not len(values):
            return np.zeros(0, np.float32), np.zeros(0, np.float32)
        seed = np.array([self.seed, zlib.crc32(values.data)], np.int64)
        scores = tf.constant(values, self.loss.dtype)
        gradient, diagonal = self._compiled(scores, tf.constant(seed), *lists)
        return np.asarray(gradient, np.float32), np.asarray(diagonal, np.float32)

    def _prepare(self, labels: bytes, weights: bytes | None, group: bytes) -> Prepared:
        lists = Lists.of(labels, weights, group)
        check_labels(self.loss, lists.labels)
        batches = []
        for y_true, sample_weight, index in lists.padded():
            made = self.loss.batch_of(y_true, np.zeros_like(y_true), sample_weight, self.loss.dtype)
            full = made._replace(
                weights=tf.broadcast_to(made.weights, y_true.shape),
                list_weights=tf.broadcast_to(made.list_weights, y_true.shape[:1]),
            )
            chunks = index.shape[:2]
            batches.append(ListBatch(*(tf.reshape(x, [*chunks, *x.shape[1:]]) for x in full)))
        return Prepared(tf.constant(lists.places), [tf.constant(x) for x in lists.slots], batches)

    def _derivatives(
        self,
        scores: tf.Tensor,
        seed: tf.Tensor,
        places: tf.Tensor,
        slots: Sequence[tf.Tensor],
        batches: Sequence[ListBatch],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the derivatives of all lists, in one graph."""
        scores = tf.concat([scores, [0.0]], axis=0)
        found = []
        for i, (index, batch) in enumerate(zip(slots, batches, strict=True)):
            padded = tf.where(batch.mask, tf.gather(scores, index), self.loss.padding)
            chunks = batch._replace(scores=padded), _seeds(seed + [0, i], index.shape[0])
            found.append(_in_turn(self._of_lists, chunks))
        flat = (
            tf.concat([tf.reshape(x, [-1]) for x in parts], axis=0)
            for parts in zip(*found, strict=True)
        )
        gradient, diagonal = (tf.gather(x, places) for x in flat)
        return gradient, diagonal

    def _of_lists(self, chunk: tuple[ListBatch, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the derivatives of a batch of lists."""
        batch, seed = chunk
        diagonal = curvature.diagonal(self.loss, *batch[:4])
        if diagonal is not None:
            gradient = self._gradient(batch)
            diagonal *= tf.abs(batch.list_weights)[:, tf.newaxis]
        else:
            shape = tf.shape(batch.scores)
            signs = curvature.probes(self.probes, shape, seed, batch.scores.dtype)
            gradient, diagonal = curvature.estimate(self._gradient, batch, signs)
        return tf.where(batch.mask, gradient, 0.0), self._positive(diagonal, gradient, batch.mask)

    def _gradient(self, batch: ListBatch) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(batch.scores)
            value = tf.reduce_sum(batch.list_weights * self.loss.per_list(*batch[:4]))
        return tape.gradient(value, batch.scores, unconnected_gradients="zero")

    def _positive(self, diagonal: tf.Tensor, gradient: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Computes absolute values above the floor, also if all second derivatives are 0."""
        found = tf.abs(diagonal)
        mean, slope = (
            masking.masked_mean(x, mask)[:, tf.newaxis] for x in (found, tf.abs(gradient))
        )
        least = tf.where(mean > 0.0, self.floor * mean, slope)
        return tf.where(mask, tf.maximum(found, least), 0.0)


def _in_turn(function: Callable[[Any], Any], chunks: Any) -> Any:
    """Applies a function to chunks, one at a time."""
    first = tf.nest.flatten(chunks)[0]
    if first.shape[0] == 1:
        return function(tf.nest.map_structure(lambda x: x[0], chunks))
    kinds = (chunks[0].scores.dtype,) * 2
    return tf.map_fn(function, chunks, fn_output_signature=kinds, parallel_iterations=1)


def _seeds(seed: tf.Tensor, count: int) -> tf.Tensor:
    """Derives a seed for each chunk."""
    return seed + tf.stack([tf.range(count, dtype=tf.int64), tf.zeros(count, tf.int64)], axis=1)


def _check(loss: ListwiseLoss, probes: int, floor: float) -> None:
    if not isinstance(loss, ListwiseLoss):
        raise TypeError(f"`loss` must be a `losses.ListwiseLoss`. Received: loss={loss!r}")
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
        raise ValueError(f"`probes` must be a power of two. Received: probes={probes}")
    if not floor > 0.0:
        raise ValueError(f"`floor` must be positive. Received: floor={floor}")
