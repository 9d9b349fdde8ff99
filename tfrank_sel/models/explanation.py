"""Why one item of a list is above another: Shapley values of the difference of their scores."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfrank_sel.errors import refusal
from tfrank_sel.listwise import as_lists
from tfrank_sel.models.preparation import features_and_mask, inputs_of
from tfrank_sel.numerics import entry_point

# Scores of the items of a list, from its features and its mask.
Score = Callable[[dict[str, tf.Tensor], tf.Tensor], tf.Tensor]

PAIRS = 8  # of orders of the features, each with its reverse
CELLS = 1 << 21  # values of items that are scored at once


class Contributions(NamedTuple):
    """What each feature contributes to the difference of two scores.

    Args:
        values: Contributions `[batch_size, num_features]`, float32, which sum to the difference.
        errors: Their standard errors, of the same shape.
    """

    values: tf.Tensor
    errors: tf.Tensor


def explain(
    model: keras.Model, inputs: Any, item: Any, against: Any, *, pairs: int = PAIRS
) -> Contributions:
    """Explains why an item is above another one of its list, by feature.

    The contribution of a feature is its Shapley value in the game

    ```
    v(S) = score(a_S) - score(b)
    ```

    where `a_S` stands at the place of item `a`, with the features in `S` of `a` and all others of
    `b`. So `v` is 0 without features, and the difference of the two scores with all of them. The
    other items of the list stay, so that effects of the list count. No background data are needed,
    and a feature with equal values contributes 0.

    It averages over `pairs` random orders of the features and their reverses. That is exact if at
    most two features interact. Each pair scores `2 * (num_features + 1)` lists.

    Args:
        model: Maps features to scores; it gets the mask only if it has the attribute `takes_mask`.
        inputs: As in `Preparation`. The features are the columns of the numbers, and then those of
            `texts`, if there are any.
        item: Index of an item in each list, `[batch_size]`, or one for all lists.
        against: Index of another item in each list, of the same form.
        pairs: Number of pairs of orders, at least 2.

    Raises:
        ValueError: If `pairs` is below 2.
        tf.errors.InvalidArgumentError: If an index is not that of an item.

    Example:
        >>> scorer = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
        >>> features = tf.constant([[[3.0, 1.0], [1.0, 2.0]]])
        >>> explain(scorer, features, item=0, against=1).values.numpy().tolist()
        [[2.0, -1.0]]

    Reference:
        [Castro et al., Polynomial calculation of the Shapley value based on sampling, 2009](
        https://doi.org/10.1016/j.cor.2008.04.004), and [Mitchell et al., Sampling Permutations for
        Shapley Value Estimation, 2022](https://arxiv.org/abs/2104.12199).
    """
    if pairs < 2:
        raise refusal("`pairs` must be at least 2", pairs)
    _, mask = features_and_mask(inputs)
    is_dict = isinstance(inputs, Mapping)
    values = {x: inputs[x] for x in inputs if x != "mask"} if is_dict else {"features": inputs}
    names = sorted(values, key=lambda name: name == "texts")
    ends = np.cumsum([0, *(values[name].shape[-1] for name in names)])
    columns = {x: np.arange(ends[i], ends[i + 1]) for i, x in enumerate(names)}

    def score(values: dict[str, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        lists = {**values, "mask": mask} if is_dict else values["features"]
        return as_lists(model(inputs_of(model, lists), training=False))

    batch = tf.shape(mask)[:1]
    pair = [tf.broadcast_to(tf.cast(x, tf.int32), batch) for x in (item, against)]
    return contributions(score, values, mask, tf.stack(pair, axis=1), columns, pairs)


def contributions(
    score: Score,
    values: Mapping[str, tf.Tensor],
    mask: tf.Tensor,
    pair: tf.Tensor,
    features: Mapping[str, ArrayLike],
    pairs: int = PAIRS,
) -> Contributions:
    """Explains the difference of the scores of two items of each list: see `explain`.

    Args:
        score: Maps values and a mask to scores `[batch_size, list_size]`.
        values: Tensors `[batch_size, list_size, ...]`, or `[batch_size, ...]` of the query.
        mask: `[batch_size, list_size]`, True for an item.
        pair: Indices of an item and of the one against, int32 `[batch_size, 2]`.
        features: For each tensor of items, the number of the feature that it is, or the numbers of
            those in its last dimension. Numbers begin at 0, without a gap.
        pairs: Number of pairs of orders.
    """
    count = 1 + max(int(np.max(numbers)) for numbers in features.values())
    orders = np.random.default_rng(0).permuted([range(count)] * pairs, axis=1)
    places = np.argsort(np.stack([orders, orders[:, ::-1]], axis=1)).reshape(-1, count)
    places = tf.constant(places, tf.int32)
    pair = _check_pair(pair, mask)
    # The number of items of a list times its columns.
    cells = tf.shape(mask)[1] * count
    at_once = tf.clip_by_value(CELLS // tf.maximum(cells, 1), 1, count + 1)

    def of_list(parts: Any) -> tuple[tf.Tensor, tf.Tensor]:
        values, mask, pair = parts
        item, against = tf.unstack(pair)

        def mix(x: tf.Tensor, is_own: tf.Tensor) -> tf.Tensor:
            shape = [at_once, *[1] * (x.shape.rank - is_own.shape.rank), *is_own.shape[1:]]
            row = tf.where(tf.reshape(is_own, shape), x[item], x[against])
            places = tf.stack([tf.range(at_once), tf.fill([at_once], item)], axis=1)
            return tf.tensor_scatter_nd_update(repeat(x), places, row)

        def repeat(x: tf.Tensor) -> tf.Tensor:
            return tf.repeat(x[tf.newaxis], at_once, axis=0)

        def of_order(places: tf.Tensor) -> tf.Tensor:
            def gaps(start: tf.Tensor) -> tf.Tensor:
                # the features that come first in the order, one more for each list
                is_own = places < (start + tf.range(at_once))[:, tf.newaxis]
                lists = {
                    name: mix(x, tf.gather(is_own, features[name], axis=1))
                    if name in features
                    else repeat(x)
                    for name, x in values.items()
                }
                scores = tf.cast(score(lists, repeat(mask)), tf.float64)
                return scores[:, item] - scores[:, against]

            differences = _map(gaps, tf.range(0, count + 1, at_once), tf.float64)
            differences = tf.reshape(differences, [-1])
            return tf.gather(differences[1:] - differences[:-1], places)

        effects = _map(of_order, places, tf.float64)
        means = tf.reduce_mean(tf.reshape(effects, [pairs, 2, count]), axis=1)
        error = tf.math.reduce_std(means, axis=0) / np.sqrt(pairs - 1)
        return tf.cast(tf.reduce_mean(means, axis=0), tf.float32), tf.cast(error, tf.float32)

    lists = dict(values), mask, pair
    return Contributions(*_map(of_list, lists, (tf.float32, tf.float32)))


def _map(function: Callable[[Any], Any], each: Any, dtype: Any) -> Any:
    return tf.map_fn(entry_point(function), each, fn_output_signature=dtype)


def _check_pair(pair: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the indices; the graph raises an error for those that are not of an item."""
    inside = (pair >= 0) & (pair < tf.shape(mask)[1])
    is_item = inside & tf.gather(mask, tf.where(inside, pair, 0), batch_dims=1)
    expected = "`item` and `against` must be indices of items of the list. Received:"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_item), [expected, pair])]):
        return tf.identity(pair)
