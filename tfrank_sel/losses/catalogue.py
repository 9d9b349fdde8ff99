"""Losses over all items of a catalogue, from states and item vectors, without all logits."""

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Count
from tfrank_sel.errors import refusal
from tfrank_sel.losses.bases import ListwiseLoss, ReducedLoss, weights_of_valid
from tfrank_sel.losses.rg import RGLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import class_labels
from tfrank_sel.serialization import UNSET, Named, register

_RANKS = (3, 2), (2, 1), (2, 2)  # of states and of indices
OfRows = Callable[[Tensor, Tensor, Tensor], Tensor]  # of states, indices and item vectors


@register
class CatalogueLoss(Named, ReducedLoss):
    """A loss of the logits `states @ items.T` of all items, which are never in memory together.

    A model gives a state `p` for each position of a sequence, or for each user. Its list has all
    items, with logits `o_i = p . q_i` and the item vectors `q`. Value and gradient, of states and
    of item vectors, are those of `loss` on all logits.

    `RG2Loss` and `RGCrossLoss` are quadratic in the logits, so that only the mean and the
    covariance of the item vectors are needed, which all states share:

    ```
    mu = p . m,  m2 - mu**2 = p' C p,  m = sum_i v_i * q_i / V,
    C = sum_i v_i * (q_i - m) (q_i - m)' / V
    ```

    Memory and time of a step then grow with the catalogue only by one product of the item vectors.
    The logits of any other loss are computed for a few states at a time, and again for the
    gradient: memory has a bound, and time is 1.7 times that with all logits for `SoftmaxLoss`.

    Args:
        loss: The loss of a list: any whose labels may be indices, such as `RGCrossLoss`,
            `SoftmaxLoss`, or `SmoothTopKLoss`. Its `reduction` is not used.
        items: The item vectors: a `keras.layers.Embedding`, or a function without arguments that
            returns `[num_items, num_factors]`, such as a tower over the features of all items. With
            `mask_zero=True`, row 0 of an embedding is padding and no item. Train the layer as a
            part of the model: the model trains only its own weights.
        item_weights: Weight of each row of the item vectors, also that of padding, as `loss` takes
            the weights of items: base weights of an RG loss, such as a power of the popularity. 1
            if `None`.
        logits_at_once: Maximum number of logits in memory, of losses that need them; but always
            those of one state.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: `y_pred` are states, `[batch_size, length, num_factors]` or
    `[batch_size, num_factors]`. `y_true` are integers: the index of the item at each position,
    `[batch_size, length]`; or those of one or several different items for each state,
    `[batch_size]` or `[batch_size, n]`. An index of -1 is padding. A state without an index, or
    where the Keras mask of `y_pred` is False, counts neither in the sum nor in the mean.
    `sample_weight` is a scalar, `[batch_size]`, `[batch_size, 1]` or `[batch_size, length]`.

    Raises:
        ValueError: If shapes or types do not fit, or a loaded model has no item vectors. A model
            keeps its loss without them: `compile` it again.

    Example:
        >>> items = tf.Variable([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
        >>> loss = losses.CatalogueLoss(losses.SoftmaxLoss(), lambda: items)
        >>> y_true = tf.constant([[3, -1]])  # the second position is padding
        >>> round(float(loss(y_true, tf.zeros([1, 2, 2]))), 4)  # log(5): all logits are 0
        1.6094

    Reference:
        [NDCG-Consistent Softmax Approximation with Accelerated Convergence, 2025](
        https://arxiv.org/abs/2506.09454).
    """

    loss: ListwiseLoss
    items: Any = None
    item_weights: Sequence[float] | None = None
    logits_at_once: Count = 1 << 22
    reduction: str | None = field(default="sum_over_batch_size", kw_only=True)
    name: str = field(default=UNSET, kw_only=True)
    dtype: str = field(default=UNSET, kw_only=True)

    def __post_init__(self) -> None:
        if not self.loss.takes_classes:
            raise refusal("`loss` must be one whose labels may be indices", loss=self.loss)
        if not (self.items is None or hasattr(self.items, "embeddings") or callable(self.items)):
            raise refusal("`items` must be an Embedding, or a function", items=self.items)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal loss, without the item vectors."""
        without = CatalogueLoss(**{**self.arguments(), "items": None})
        return super(CatalogueLoss, without).get_config()

    @xp.entry_point
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        indices, states, weights = self.by_state(y_true, y_pred, sample_weight)
        is_valid = xp.reduce_any(indices >= self._first, axis=1)
        states = xp.where(is_valid[:, xp.newaxis], xp.cast(states, self.dtype), 0.0)
        weights = weights * xp.cast(is_valid, self.dtype)
        weights = weights_of_valid(weights, is_valid, self.reduction)
        return self.reduce(self._of_states(indices, states), weights, y_pred)

    def by_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns indices `[states, n]`, states `[states, num_factors]` and weights `[states]`."""
        indices, states = _indices(y_true, y_pred), xp.convert_to_tensor(y_pred)
        weights = xp.cast(1.0 if sample_weight is None else sample_weight, self.dtype)
        if xp.rank(states) == 3:
            indices, states, weights = class_labels.flatten_sequences(indices, y_pred, weights)
        else:
            indices = class_labels.apply_mask(indices, y_pred)
        if xp.rank(indices) == 1:
            indices = indices[:, xp.newaxis]
        weights = xp.broadcast_to(xp.reshape(weights, [-1]), xp.shape(indices)[:1])
        return indices, states, weights

    @functools.cached_property
    def _item_weights(self) -> NDArray[np.float64]:
        return np.asarray(self.item_weights, np.float64)  # of a million items, a tuple takes long

    @property
    def _first(self) -> int:
        """The index of the first item."""
        return int(getattr(self.items, "mask_zero", False))

    def _of_states(self, indices: Tensor, states: Tensor) -> Tensor:
        """Computes the loss of each state, from indices `[states, n]`."""
        indices, vectors, weights = indices - self._first, self._vectors(), None
        if not xp.static_shape(vectors).is_compatible_with([None, states.shape[1]]):
            raise refusal(
                "`items` must have vectors as long as the states",
                f"items {vectors.shape}, states {states.shape}",
            )
        if self.item_weights is not None:
            weights = xp.constant(self._item_weights, self.dtype)
            if not xp.static_shape(weights).is_compatible_with(vectors.shape[:1]):
                raise refusal(
                    "`item_weights` must have a number for each row of the item vectors, also "
                    "that of padding",
                    f"{weights.shape[0]} weights, items {vectors.shape}",
                )
            weights = weights[self._first :]
        vectors = vectors[self._first :] if self._first else vectors
        if isinstance(self.loss, RGLoss):
            return self.loss.of_states(states, indices, vectors, weights)

        has_class_form = self.loss.has_class_form and (
            weights is None or not self.loss.weighs_others
        )

        def of_rows(states: Tensor, indices: Tensor, vectors: Tensor) -> Tensor:
            logits = xp.matmul(states, vectors, transpose_b=True)
            if indices.shape[1] == 1 and has_class_form:
                values = self.loss.classes_or_nan(indices[:, 0], logits)
                return values if weights is None else values * _of_one(weights, indices)
            labels = xp.one_hot(indices, xp.shape(logits)[1], dtype=logits.dtype)
            of_items = None if weights is None else xp.broadcast_to(weights, xp.shape(logits))
            labels = xp.reduce_sum(labels, axis=1)
            batch = self.loss.batch_of(labels, logits, of_items, self.dtype)
            return self.loss.or_nan(batch.labels, batch.scores, batch.mask, batch.weights)

        size = vectors.shape[0] or xp.shape(vectors)[0]
        rows = self.logits_at_once // size
        rows = max(1, rows) if isinstance(rows, int) else xp.maximum(1, rows)
        return _by_rows(of_rows, states, indices, vectors, rows)

    def _vectors(self) -> Tensor:
        if self.items is None:
            raise refusal("`items` must be given: compile the loaded model again", items=None)
        keras = sys.modules.get("keras")  # which has made an embedding
        if keras and isinstance(self.items, keras.layers.Embedding) and not self.items.built:
            raise refusal("`items` must be built: call the model first", self.items.name)
        is_function = not hasattr(self.items, "embeddings")
        return xp.cast(self.items() if is_function else self.items.embeddings, self.dtype)


def _indices(y_true: Any, y_pred: Any) -> Tensor:
    """The indices of the items of each state."""
    is_ragged = any(isinstance(x, xp.RaggedTensor) for x in (y_true, y_pred))
    indices = y_true if is_ragged else xp.convert_to_tensor(y_true)
    rank, of_states = len(y_pred.shape), y_pred.shape[:-1]
    if (
        is_ragged
        or not xp.is_integer(indices.dtype)
        or (rank, xp.rank(indices)) not in _RANKS
        or not xp.static_shape(indices)[: rank - 1].is_compatible_with(of_states)
    ):
        raise refusal(
            "`y_true` must be dense integers [batch_size, length] and `y_pred` states [batch_size, "
            "length, num_factors]; or integers [batch_size] or [batch_size, n], and states "
            "[batch_size, num_factors]",
            f"y_true {indices.dtype.name} {indices.shape}, y_pred {y_pred.shape}",
        )
    return class_labels.as_int32(indices)


def _of_one(weights: Tensor, indices: Tensor) -> Tensor:
    """The weight of the item of each state."""
    is_class = (indices >= 0) & (indices < xp.shape(weights)[0])
    return xp.gather(weights, xp.where(is_class, indices, 0))[:, 0]


def _by_rows(
    of_rows: OfRows, states: Tensor, indices: Tensor, vectors: Tensor, rows: int | Tensor
) -> Tensor:
    """Applies a function to a few states at a time, and again to compute its gradient.

    The gradient of one block of states is taken before the next block starts: a plain loop would
    keep the logits of all blocks for its gradient.
    """
    count = states.shape[0] or xp.shape(states)[0]
    blocks = -(-count // rows)
    if isinstance(blocks, int):  # XLA needs sizes of blocks that it knows
        blocks = max(blocks, 1)
        rows = -(-count // blocks)  # few states are not padded to a full block
    missing = [[0, blocks * rows - count], [0, 0]]
    padded = xp.pad(indices, missing, constant_values=-1)
    of_block = xp.reshape(padded, xp.stack([blocks, rows, xp.shape(indices)[1]]))
    of_block = xp.ensure_shape(of_block, [None, None, indices.shape[1]])

    @xp.custom_gradient
    def run(states: Tensor, vectors: Tensor) -> tuple[Tensor, object]:
        values = xp.map_fn(
            lambda block: of_rows(block[0], block[1], vectors),
            (states, of_block),
            fn_output_signature=states.dtype,
            parallel_iterations=1,
        )

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            def step(i: Tensor, total: Tensor, parts: xp.TensorArray) -> tuple[Any, ...]:
                def of_rows_here(states: Tensor, vectors: Tensor) -> Tensor:
                    return of_rows(states, of_block[i], vectors)

                pull_back = xp.vjp(of_rows_here, states[i], vectors)[1]
                of_states, of_vectors = pull_back(upstream[i])
                return i + 1, total + of_vectors, parts.write(i, of_states)

            parts = xp.TensorArray(states.dtype, blocks, element_shape=states.shape[1:])
            start = xp.constant(0), xp.zeros_like(vectors), parts
            _, total, parts = xp.while_loop(
                lambda i, *_: i < blocks, step, start, parallel_iterations=1
            )
            return parts.stack(), total

        return values, gradient

    of_blocks = xp.reshape(xp.pad(states, missing), xp.stack([blocks, rows, states.shape[1]]))
    return xp.reshape(run(of_blocks, vectors), [-1])[:count]
