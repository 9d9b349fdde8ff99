"""Two towers of features, trained against all items without negatives."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel.distribution import SingleProcess
from tfrank_sel.models.als import progress
from tfrank_sel.models.als.factorizer import RGFactorizer
from tfrank_sel.models.als.interactions import as_matrix
from tfrank_sel.models.als.rows import GainRows

_ROWS = 1 << 12  # of features at a time, for the vectors of a whole side


def fit_towers(
    model: RGFactorizer,
    interactions: Any,
    towers: tuple[keras.Model, keras.Model],
    features: tuple[Any, Any],
    optimizer: keras.optimizers.Optimizer,
    *,
    epochs: int,
    batch_size: int = 512,
    validation: Any = None,
) -> RGFactorizer:
    """Minimises the objective of a factorisation over networks that give the vectors.

    An epoch trains the users' tower with the items' vectors fixed, then the items' tower with the
    users' vectors fixed. Given the other side, the loss of a batch needs only its own positives
    and one matrix of all vectors of the other side, computed once per half-epoch:

    ```
    sum_u a_u * (pull . p_u + p_u' M p_u / 2) + sum_j (c_j / 2 * o_j**2 - l_j * o_j)
        + sum_u ridge_u / 2 * |p_u|**2
    ```

    So the loss over all items is exact, without sampling, and the cost of a step does not depend
    on their number. With embeddings of identifiers as towers, the minimum is that of
    `RGFactorizer.fit`.

    Args:
        model: The factoriser, whose objective, regularization, exponents and seed are used; its
            `num_factors` is the length of the towers' outputs. It gets the vectors.
        interactions: Positives, as in `as_matrix`; users and items are the rows of `features`,
            some of which may have no interactions.
        towers: The networks of users and of items, from a batch of features to
            `[batch_size, num_factors]`; they are trained.
        features: The features of all users and of all items: an array, or a structure of arrays
            such as a dict, by row.
        optimizer: The optimizer; each tower is trained by a copy.
        epochs: Number of epochs.
        batch_size: Number of users, or of items, in a step.
        validation: Held-out positives of the same users and items.

    Returns:
        `model`, with vectors of all users and items, and `history_` with values of each epoch.

    Raises:
        ValueError: If shapes do not match.

    Example:
        >>> from tfrank_sel.models.als import RGFactorizer, fit_towers
        >>> keras.utils.set_random_seed(0)
        >>> rng = np.random.default_rng(0)
        >>> tastes, topics = np.eye(3)[rng.integers(0, 3, 60)], np.eye(3)[rng.integers(0, 3, 40)]
        >>> taken = np.nonzero((tastes @ topics.T) * (rng.random([60, 40]) < 0.5))
        >>> towers = [keras.Sequential([keras.Input([3]), keras.layers.Dense(4)]) for _ in "ui"]
        >>> adam = keras.optimizers.Adam(0.02)
        >>> model = RGFactorizer(num_factors=4)
        >>> model = fit_towers(model, taken, towers, (tastes, topics), adam, epochs=20)
        >>> best, _ = model.recommend(range(60), k=1)
        >>> bool(np.all(topics[best[:, 0]] == tastes))
        True
    """
    shape = _count(features[0]), _count(features[1])
    matrix = as_matrix(interactions, shape)
    held_out = None if validation is None else as_matrix(validation, shape)
    sides = [_TowerSide(*side, optimizer) for side in zip(towers, features, strict=True)]
    users, items = model._factors(shape, [side.vectors() for side in sides])
    solver = model._solver(matrix, None, SingleProcess(), model.regularization_)
    random = np.random.default_rng(model.seed)
    history = []
    for _ in range(epochs):
        of_users, of_items = solver.by_user.rows, solver.by_item.rows
        sides[0].train(of_users, model, solver.user_terms(items), items, batch_size, random)
        users[:] = sides[0].vectors()
        sides[1].train(of_items, model, solver.item_terms(users, items), users, batch_size, random)
        items[:] = sides[1].vectors()
        history.append(progress.epoch_metrics(solver, users, items, matrix, held_out))
    progress.warn_if_collapsed(items)
    model._learn(users, items, matrix, (None, None), history_=history)
    return model


def _count(features: Any) -> int:
    return len(tf.nest.flatten(features)[0])


class _TowerSide:
    """The tower, features and optimizer of the users or of the items."""

    def __init__(self, tower: keras.Model, features: Any, optimizer: Any) -> None:
        self.tower, self.features = tower, tf.nest.map_structure(np.asarray, features)
        self.optimizer = type(optimizer).from_config(optimizer.get_config())
        self._forward = tf.function(lambda x: tower(x, training=False), reduce_retracing=True)
        self._step = tf.function(self._update, reduce_retracing=True)

    def vectors(self) -> NDArray[Any]:
        """The vectors of all rows."""
        count = _count(self.features)
        parts = (np.arange(x, min(x + _ROWS, count)) for x in range(0, count, _ROWS))
        return np.concatenate([self._forward(self._of(part)).numpy() for part in parts])

    def _of(self, rows: NDArray[Any]) -> Any:
        return tf.nest.map_structure(lambda x: x[rows], self.features)

    def train(
        self,
        rows: GainRows,
        model: RGFactorizer,
        terms: tuple[NDArray[Any], NDArray[Any]],
        fixed: NDArray[Any],
        batch_size: int,
        random: np.random.Generator,
    ) -> None:
        """Trains one epoch, given the vectors of the other side."""
        counts, objective = np.diff(rows.indptr), model.objective
        for batch in np.array_split(
            random.permutation(len(counts)), math.ceil(len(counts) / batch_size)
        ):
            owner = np.repeat(np.arange(len(batch)), counts[batch])
            before = np.cumsum(counts[batch]) - counts[batch]
            places = np.arange(len(owner)) + (rows.indptr[batch] - before)[owner]
            columns, gains = rows.indices[places], rows.gains[places]
            weights = rows.weights[batch][owner] * rows.column_weights[columns]
            curvatures, slopes = (
                weights * (x[0] + x[1] * gains) for x in (objective.curvature, objective.slope)
            )
            shared = (rows.scales[batch], rows.ridges[batch], *terms)
            numbers = (x.astype(np.float32) for x in (fixed[columns], curvatures, slopes, *shared))
            self._step(self._of(batch), owner, *numbers)

    def _update(
        self,
        features: Any,
        owner: tf.Tensor,
        others: tf.Tensor,
        curvatures: tf.Tensor,
        slopes: tf.Tensor,
        scales: tf.Tensor,
        ridges: tf.Tensor,
        matrix: tf.Tensor,
        pull: tf.Tensor,
    ) -> None:
        with tf.GradientTape() as tape:
            vectors = tf.cast(self.tower(features, training=True), tf.float32)
            scores = tf.reduce_sum(tf.gather(vectors, owner) * others, axis=1)
            of_all = (
                tf.linalg.matvec(vectors, pull)
                + tf.reduce_sum((vectors @ matrix) * vectors, axis=1) / 2.0
            )
            loss = tf.reduce_sum(scales * of_all + ridges / 2.0 * tf.reduce_sum(vectors**2, axis=1))
            loss += tf.reduce_sum(curvatures / 2.0 * scores**2 - slopes * scores)
            loss /= tf.cast(tf.shape(vectors)[0], tf.float32)
        weights = self.tower.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
