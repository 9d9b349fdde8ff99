"""Item vectors in closed form, beside a model of states that is trained by gradients."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import scipy.sparse as sp
import tensorflow as tf

from tfrank_sel.arguments import AtLeast0, Checked, Count, Cutoff
from tfrank_sel.distribution import SingleProcess
from tfrank_sel.losses.catalogue import CatalogueLoss
from tfrank_sel.losses.rg import RG2Loss, RGCrossLoss
from tfrank_sel.models.als.factorizer import RGFactorizer
from tfrank_sel.models.als.objectives import RG2, RGCross
from tfrank_sel.refusals import refusal

_OBJECTIVES: dict[type, Any] = {RG2Loss: RG2, RGCrossLoss: RGCross}


class ItemSolver(Checked, keras.callbacks.Callback):
    """Callback that solves the item vectors in closed form at the end of each epoch.

    The model, such as a `SequenceEncoder`, gives a state `p_s` for each position of a sequence, or
    for each user. It is compiled with a `losses.CatalogueLoss` of an RG loss and of an `Embedding`
    of the items. An epoch trains the other weights by gradients. Then the item vectors become
    those that minimise, with these states,

    ```
    sum_s loss(p_s, q) + 1/2 * sum_i lam * n_i**nu * |q_i|**2
    ```

    where `n_i` counts the targets that are item `i` (at least 1), `lam` is `regularization` and
    `nu` is `count_exponent`. That is the step of `RGFactorizer` over the items: up to 128 factors
    it is exact, except that RG^x has an upper bound instead of its squared mean; above it takes
    three conjugate gradient steps from the current vectors. No step increases the objective,
    except for rounding. Item vectors may start from those of an `RGFactorizer`.

    Args:
        inputs: The inputs of `fit`: an array, or a structure of arrays, by row; or a
            `tf.data.Dataset` of batches of inputs and targets.
        targets: The targets of `fit`, numbers of items; negative ones are padding. `None` with a
            data set.
        regularization: `lam`, not negative.
        count_exponent: `nu`: 0 for a plain ridge, 1 for one in proportion to the targets.
        batch_size: Number of rows of `inputs` of which states are computed at a time; positive.
        num_threads: Number of threads; the number of processors if `None`.

    Raises:
        ValueError: If an argument is out of range, the inputs and targets do not fit, the model is
            compiled with another loss, or a system is singular.

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
        *,
        regularization: AtLeast0 = 1.0,
        count_exponent: float = 0.5,
        batch_size: Count = 256,
        num_threads: Cutoff = None,
    ) -> None:
        super().__init__()
        if isinstance(inputs, tf.data.Dataset) != (targets is None):
            raise refusal(
                "`targets` must be None with a `tf.data.Dataset`, and given otherwise",
                inputs=type(inputs).__name__,
            )
        if targets is not None:
            targets = np.asarray(targets)
            if targets.ndim not in (1, 2) or targets.dtype.kind not in "iu":
                raise refusal(
                    "`targets` must be integers, [rows] or [rows, n]",
                    f"{targets.dtype} of shape {targets.shape}",
                )
            inputs = tf.nest.map_structure(np.asarray, inputs)
            shapes = [x.shape for x in tf.nest.flatten(inputs)]
            if any(shape[:1] != targets.shape[:1] for shape in shapes):
                raise refusal(f"`inputs` must have {len(targets)} rows, as `targets`", shapes)
        self.inputs = inputs
        self.targets = targets
        self.regularization = regularization
        self.count_exponent = count_exponent
        self.batch_size = batch_size
        self.num_threads = num_threads

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Leaves the item vectors out of the training by gradients."""
        loss = self.model.loss
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
        self._was_trainable = loss.items.trainable
        loss.items.trainable = False
        self.model.make_train_function(force=True)  # the step of an earlier fit trains them

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Lets a later `fit` without this callback train the item vectors, as before."""
        self.model.loss.items.trainable = self._was_trainable
        self.model.train_function = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Solves the item vectors."""
        loss = self.model.loss
        rows, first = loss.loss, int(loss.items.mask_zero)
        states, numbers = self._states(first)
        table = loss.items.get_weights()[0]
        items = np.array(table[first:], np.float32)
        there = numbers >= first
        pairs = np.nonzero(there)[0], numbers[there] - first
        gains = np.full(len(pairs[0]), float(rows.gain(tf.ones([]))), np.float32)
        factorizer = RGFactorizer(
            _OBJECTIVES[type(rows)](rows.alpha, rows.target),
            items.shape[1],
            self.regularization,
            self.count_exponent,
            num_threads=self.num_threads,
        )
        weights = np.ones(len(items))
        if loss.item_weights is not None:
            weights = np.asarray(loss.item_weights[first:], float)
            weights *= len(weights) / weights.sum()
        matrix = sp.csr_matrix((gains, pairs), (len(states), len(items)))
        solver = factorizer._solver(matrix, None, SingleProcess(), weights)
        solver.renew_items(states, items)
        table[first:] = items
        loss.items.set_weights([table])

    def _states(self, first: int) -> tuple[np.ndarray, np.ndarray]:
        """The states that have a target, and their targets, `[states, n]`."""
        states, numbers = [], []
        for inputs, targets in self._batches():
            found = np.asarray(self.model.predict_on_batch(inputs), np.float32)
            found = found.reshape(-1, found.shape[-1])
            of_rows = np.asarray(targets).reshape(len(found), -1)
            there = np.any(of_rows >= first, axis=1)
            states.append(found[there])
            numbers.append(of_rows[there])
        return np.concatenate(states), np.concatenate(numbers)

    def _batches(self) -> Iterator[tuple[Any, Any]]:
        """The inputs and the targets."""
        if self.targets is None:
            yield from self.inputs
            return
        for begin in range(0, len(self.targets), self.batch_size):
            rows = slice(begin, begin + self.batch_size)
            yield (
                tf.nest.map_structure(lambda x, rows=rows: x[rows], self.inputs),
                self.targets[rows],
            )
