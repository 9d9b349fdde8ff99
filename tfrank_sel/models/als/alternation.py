"""Item vectors in closed form, beside a model of states that is trained by gradients."""

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import scipy.sparse as sp
import tensorflow as tf

from tfrank_sel.arguments import AtLeast0, Checked, Count, Cutoff
from tfrank_sel.distribution import SingleProcess
from tfrank_sel.errors import refusal
from tfrank_sel.losses.catalogue import CatalogueLoss
from tfrank_sel.losses.rg import RG2Loss, RGCrossLoss
from tfrank_sel.models.als.factorizer import RGFactorizer
from tfrank_sel.models.als.objectives import RG2, RGCross

_OBJECTIVES: dict[type, Any] = {RG2Loss: RG2, RGCrossLoss: RGCross}


class ItemSolver(Checked, keras.callbacks.Callback):
    """Callback that solves the item vectors in closed form at the end of each epoch.

    The model, such as a `SequenceEncoder`, gives a state `p_s` for each position of a sequence, or
    for each user. It is compiled with a `losses.CatalogueLoss` of an RG loss and of an `Embedding`
    of the items. An epoch trains the other weights by gradients. Then the item vectors become
    those that minimise, with these states,

    ```
    sum_s w_s * loss(p_s, q) + 1/2 * sum_i lam * n_i**nu * |q_i|**2
    ```

    where `w_s` is the weight of a state, `n_i` counts the targets of states of positive weight that
    are item `i` (at least 1), `lam` is `regularization` and `nu` is `count_exponent`. That is the
    step of `RGFactorizer` over the items: up to 128 factors it is exact, except that RG^x has an
    upper bound instead of its squared mean; above it takes three conjugate gradient steps from the
    current vectors. No step increases the objective, except for rounding. Item vectors may start
    from those of an `RGFactorizer`.

    Args:
        inputs: The inputs of `fit`: an array, or a structure of arrays, by row; or a
            `tf.data.Dataset` of batches of inputs, targets and, if there are any, weights. Of one
            that has no end, the first `steps_per_epoch` batches are taken.
        targets: The targets of `fit`, numbers of items; negative ones are padding. `None` with a
            data set.
        sample_weight: The weights of `fit`, not negative: `[rows]`, or `[rows, length]` for those
            of positions. `None` with a data set.
        regularization: `lam`, not negative.
        count_exponent: `nu`: 0 for a plain ridge, 1 for one in proportion to the targets.
        batch_size: Number of rows of `inputs` of which states are computed at a time; positive.
        num_threads: Number of threads; the number of processors if `None`.

    Raises:
        ValueError: If an argument is out of range, the inputs and targets do not fit, only one of
            `fit` and this callback has weights, the model is compiled with another loss, or a
            system is singular.

    Example:
        >>> from tfrank_sel import losses, models
        >>> from tfrank_sel.models.als import ItemSolver
        >>> keras.utils.set_random_seed(0)
        >>> items = np.random.default_rng(0).integers(0, 9, [200, 1]) + np.arange(5)
        >>> inputs, targets = items[:, :4] % 9 + 1, items[:, 1:] % 9 + 1  # a cycle of nine items
        >>> encoder = models.SequenceEncoder(num_items=9, num_factors=8, max_length=4)
        >>> loss = losses.CatalogueLoss(losses.RGCrossLoss(alpha=0.01), encoder.items)
        >>> encoder.compile(keras.optimizers.Adam(0.01), loss)
        >>> solver = ItemSolver(inputs, targets)
        >>> history = encoder.fit(inputs, targets, epochs=5, verbose=0, callbacks=[solver])
        >>> best, _ = encoder.best([[3, 4, 5]], k=1)
        >>> int(best[0, 0])
        6
    """

    def __init__(
        self,
        inputs: Any,
        targets: Any = None,
        sample_weight: Any = None,
        *,
        regularization: AtLeast0 = 1.0,
        count_exponent: float = 0.5,
        batch_size: Count = 256,
        num_threads: Cutoff = None,
    ) -> None:
        super().__init__()
        is_set = isinstance(inputs, tf.data.Dataset)
        if is_set != (targets is None) or (is_set and sample_weight is not None):
            raise refusal(
                "`targets` must be None with a `tf.data.Dataset`, and given otherwise; a data set "
                "has its own weights",
                inputs=type(inputs).__name__,
            )
        self._is_weighted = sample_weight is not None
        if is_set:
            self._is_weighted = len(inputs.element_spec) > 2
        else:
            targets = np.asarray(targets)
            if targets.ndim not in (1, 2) or targets.dtype.kind not in "iu":
                raise refusal(
                    "`targets` must be integers, [rows] or [rows, n]",
                    f"{targets.dtype} of shape {targets.shape}",
                )
            weights = np.ones(len(targets)) if sample_weight is None else sample_weight
            inputs, sample_weight = tf.nest.map_structure(np.asarray, (inputs, weights))
            shapes = [x.shape for x in tf.nest.flatten((inputs, sample_weight))]
            if any(shape[:1] != targets.shape[:1] for shape in shapes):
                raise refusal(
                    f"`inputs` and `sample_weight` must have {len(targets)} rows, as `targets`",
                    shapes,
                )
        self.inputs = inputs
        self.targets = targets
        self.sample_weight = sample_weight
        self.regularization = regularization
        self.count_exponent = count_exponent
        self.batch_size = batch_size
        self.num_threads = num_threads

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Makes a step that leaves the item vectors out of the training by gradients."""
        loss, plain = self.model.loss, self.model.train_function
        if not (
            isinstance(loss, CatalogueLoss)
            and type(loss.loss) in _OBJECTIVES
            and hasattr(loss.items, "embeddings")
        ):
            raise refusal(
                "the model must be compiled with a `CatalogueLoss` of an `RG2Loss` or "
                "`RGCrossLoss` and an `Embedding`",
                loss=loss,
            )
        optimizer = self.model.optimizer
        if not getattr(optimizer, "built", False):  # for a later step that trains the items, too
            optimizer.build(self.model.trainable_variables)
        self.model.make_train_function(force=True)
        step, self.model.train_function = self.model.train_function, plain

        def of_others(batches: Any) -> Any:
            self.model.train_function = plain
            self._check_weights(batches.element_spec)
            was_trainable = loss.items.trainable
            loss.items.trainable = False
            try:
                return step(batches)
            finally:
                loss.items.trainable = was_trainable

        self._step = of_others

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Lets the next step, and no other, leave out the item vectors.

        A `fit` that is stopped by an error leaves nothing behind: Keras does not tell callbacks.
        """
        self.model.train_function = self._step

    def _check_weights(self, batch: Any) -> None:
        """Checks that `fit` has weights if, and only if, this callback has some."""
        if self._is_weighted != (len(batch) > 2):
            raise refusal(
                "`sample_weight` must be given to both `fit` and `ItemSolver`, or to neither",
                "weights of `ItemSolver` alone" if self._is_weighted else "weights of `fit` alone",
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Solves the item vectors."""
        loss = self.model.loss
        rows, first = loss.loss, int(loss.items.mask_zero)
        states, numbers, weights = self._states(first)
        table = loss.items.get_weights()[0]
        items = np.array(table[first:], np.float32)
        is_item = numbers >= first
        pairs = np.nonzero(is_item)[0], numbers[is_item] - first
        gains = np.full(len(pairs[0]), float(rows.gain(tf.ones([]))), np.float32)
        factorizer = RGFactorizer(
            _OBJECTIVES[type(rows)](rows.alpha, rows.target),
            items.shape[1],
            self.regularization,
            self.count_exponent,
            num_threads=self.num_threads,
        )
        of_items = np.ones(len(items))
        if loss.item_weights is not None:
            of_items = np.asarray(loss.item_weights[first:], float)
            of_items *= len(of_items) / of_items.sum()
        matrix = sp.csr_matrix((gains, pairs), (len(states), len(items)))
        solver = factorizer._solver(matrix, weights, SingleProcess(), self.regularization, of_items)
        solver.renew_items(states, items)
        table[first:] = items
        loss.items.set_weights([table])

    def set_model(self, model: keras.Model) -> None:
        """Makes the graph of the states of a model, once for all epochs."""
        super().set_model(model)

        def read(inputs: Any, targets: Any, weights: Any = None) -> Any:
            states = model(inputs, training=False)
            return model.loss.by_state(targets, states, weights)

        self._read = tf.function(read, reduce_retracing=True, autograph=False)

    def _states(self, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The states that count, their targets, `[states, n]`, and their weights."""
        parts = []
        for batch in self._batches():
            numbers, states, weights = (x.numpy() for x in self._read(*batch))
            if not np.all(weights >= 0.0):
                raise refusal("`sample_weight` must not be negative", weights.min())
            has_item = np.any(numbers >= first, axis=1) & (weights > 0.0)
            parts.append(
                (states[has_item].astype(np.float32), numbers[has_item], weights[has_item])
            )
        states, numbers, weights = map(np.concatenate, zip(*parts, strict=True))
        return states, numbers, weights

    def _batches(self) -> Iterator[Any]:
        """The inputs, the targets and the weights."""
        if self.targets is None:
            has_end = int(self.inputs.cardinality()) >= 0
            steps = None if has_end or not self.params else self.params["steps"]
            yield from itertools.islice(self.inputs, steps)
            return
        data = self.inputs, self.targets, self.sample_weight
        for begin in range(0, len(self.targets), self.batch_size):
            rows = slice(begin, begin + self.batch_size)
            yield tf.nest.map_structure(lambda x, rows=rows: x[rows], data)
