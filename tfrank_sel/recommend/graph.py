"""A recommender as a SavedModel: its retrievers, features and trees in one graph.

Items are numbered from 1, because 0 is padding, also in tables, whose first row is 0.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import refusal
from tfrank_sel.export import recommenders
from tfrank_sel.models import BoostedTrees
from tfrank_sel.recommend import scores
from tfrank_sel.recommend.scores import Array, Lookup, Products, System, Values

if TYPE_CHECKING:
    from tfrank_sel.recommend.recommender import Recommender

Tensors = dict[str, Tensor]


def export(
    model: "Recommender", path: StrPath, k: int, metadata: Mapping[str, Any] | None = None
) -> None:
    """Writes a SavedModel, as `Recommender.export` says."""
    graph = Graph(model, k)
    user = tf.TensorSpec([None], tf.string, name="user")
    texts = [tf.TensorSpec([None, None], tf.string, name=x) for x in ("history", "exclude")]
    none = tf.constant([[""]])
    graph.recommend(none[0], none, none)  # makes the variables, which a trace cannot do
    # one trace, which both signatures call
    answer = tf.function(graph.recommend, [user, *texts], autograph=False).get_concrete_function()

    def of_user(user: Tensor) -> Tensors:
        none = tf.fill([tf.size(user), 0], "")
        return answer(user, none, none)

    def of_history(user: Tensor, history: Tensor, exclude: Tensor) -> Tensors:
        return answer(user, history, exclude)

    endpoints: Any = {
        "serving_default": (of_user, [user]),
        "recommend": (of_history, [user, *texts]),
    }
    recommenders.write(graph, endpoints, path, metadata)


class Graph(tf.Module):
    """A recommender in a graph, with the tables that it reads.

    Args:
        model: The fitted recommender.
        k: Number of items to return.
    """

    def __init__(self, model: "Recommender", k: int) -> None:
        super().__init__()
        self._sources, self._repeats, self._k = model.sources_, model.repeats, k
        taken = model.taken_
        self._lookups: dict[int, Callable[[Tensor], Tensor]] = {}
        self._number_of_item, self._number_of_user = map(
            self.lookup, (taken.item_ids, taken.user_ids)
        )
        self._name_of_item = recommenders.names(taken.item_ids.tolist())
        self._trees = BoostedTrees.from_lightgbm(model.trees_)
        self._taken = taken.items, np.append(0, taken.offsets)
        self._variables: dict[str, tf.Variable] = {}

    def variable(
        self, values: Array, padded: bool = False, transposed: bool = False
    ) -> tf.Variable:
        """Returns the variable of an array, the same one for equal arrays.

        Args:
            values: The array.
            padded: Whether a first row of 0 precedes its rows.
            transposed: Whether its rows, with that of 0, become columns.
        """
        content = hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()
        key = f"{values.dtype} {values.shape} {padded} {transposed} {content}"
        if key not in self._variables:
            rows = np.concatenate([np.zeros_like(values[:1]), values]) if padded else values
            rows = np.ascontiguousarray(rows.T) if transposed else rows
            self._variables[key] = tf.Variable(rows, trainable=False)
        return self._variables[key]

    def lookup(self, ids: Array) -> Callable[[Tensor], Tensor]:
        """Returns a function from ids to their numbers, 0 for others."""
        if id(ids) not in self._lookups:
            name = f"ids_{len(self._lookups)}"
            self._lookups[id(ids)] = recommenders.lookup(self, name, ids.tolist())
        return self._lookups[id(ids)]

    def recommend(self, user: Tensor, history: Tensor, exclude: Tensor) -> Tensors:
        """Returns the best items of users, as `Recommender.export` says."""
        sizes = tf.stack([tf.shape(x)[0] for x in (user, history, exclude)])
        rule = "`user`, `history` and `exclude` must have as many rows. Received:"
        row = tf.where(tf.reduce_any(history != "", axis=1), 0, self._number_of_user(user))
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.reduce_all(sizes == sizes[0]), [rule, sizes])]
        ):
            rows = user, row, self._number_of_item(history), self._number_of_item(exclude)
            # one after the other, so that none needs memory for the longest history of all
            kinds = tf.TensorSpec([self._k], tf.int32), tf.TensorSpec([self._k], tf.float32)
            numbers, values = tf.map_fn(
                self._recommend, rows, fn_output_signature=kinds, parallel_iterations=1
            )
        return {"items": self._name_of_item(numbers), "scores": values}

    def _recommend(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """The numbers and scores of the best items of one user."""
        user, row, given, excluded = inputs
        items, ends = map(self.variable, self._taken)
        stored = items[ends[row] : ends[row + 1]]
        # one of both is empty; with padding, since some operations need an item
        history = tf.concat([tf.zeros_like(row)[tf.newaxis], given, stored], axis=0)[tf.newaxis]
        out = tf.zeros_like(history) if self._repeats else history
        out = tf.concat([out, excluded[tf.newaxis]], axis=1)
        histories = Histories(self, history, user[tf.newaxis])
        numbers, is_candidate, features = self._pairs(histories, out)
        values = tf.where(is_candidate, self._trees(features), tf.float32.min)
        missing = [[0, 0], [0, tf.maximum(self._k - tf.shape(values)[1], 0)]]
        values = tf.pad(values, missing, constant_values=tf.float32.min)
        # equal scores keep the order of the items, which is ascending
        best, places = tf.math.top_k(values, self._k)
        numbers = tf.gather(tf.pad(numbers, missing), places, batch_dims=1)
        return tf.where(best > tf.float32.min, numbers, 0)[0], best[0]

    def _pairs(self, histories: Any, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The numbers of candidates, whether each is one, and its features, as `pairs.unite`."""
        views = {name: source.scores(histories) for name, source in self._sources.items()}
        candidates = [
            best(self, next(iter(views[name].values())), source.count, out)
            for name, source in self._sources.items()
            if source.count
        ]
        numbers, is_candidate = distinct(tf.concat(candidates, axis=1))
        index = tf.maximum(numbers - 1, 0)
        length = tf.math.count_nonzero(histories.numbers, axis=1, keepdims=True, dtype=tf.float64)
        columns = [tf.broadcast_to(tf.math.log1p(length), tf.shape(index))]
        for name, source in self._sources.items():
            columns += [at(self, view, index) for view in views[name].values()]
            if source.count:
                first = columns[-len(views[name])]
                is_above = first[:, tf.newaxis] > first[:, :, tf.newaxis]
                is_above &= is_candidate[:, tf.newaxis]
                columns.append(tf.math.count_nonzero(is_above, axis=2))
        features = tf.stack([tf.cast(x, tf.float32) for x in columns], axis=2)
        return numbers, is_candidate, features


class Histories:
    """The items that users took, in a graph, in place of `data.Sequences`.

    Args:
        graph: The graph.
        numbers: Numbers of the items in order of time, 0 for none, int32 `[users, length]`.
        user_ids: Ids of the users, strings `[users]`.
    """

    def __init__(self, graph: Graph, numbers: Tensor, user_ids: Tensor) -> None:
        self.graph, self.numbers, self.user_ids = graph, numbers, user_ids

    def histories(self, max_length: int) -> Tensor:
        """Returns the last items of each user, as `data.Sequences.histories`."""
        padded = tf.pad(self.numbers, [[0, 0], [max_length, 0]])
        order = tf.argsort(tf.cast(padded > 0, tf.int32), axis=1, stable=True)
        last = tf.gather(padded, order[:, -max_length:], batch_dims=1)
        return tf.ensure_shape(last, [None, max_length])


class Weights:
    """The weight of each item of each history, in place of a CSR matrix.

    Args:
        graph: The graph.
        numbers: Numbers of rows of tables, 0 for none, `[users, length]`.
        weights: Their weights, float64; 0 of none.
    """

    def __init__(self, graph: Graph, numbers: Tensor, weights: Tensor) -> None:
        self.graph, self.numbers, self.weights = graph, numbers, weights

    def __sub__(self, other: "Weights") -> "Weights":
        return Weights(self.graph, self.numbers, self.weights - other.weights)

    def multiply(self, factors: Tensor) -> "Weights":
        """Returns the weights multiplied by factors that can be broadcast to them."""
        return Weights(self.graph, self.numbers, self.weights * factors)


class Links:
    """Sums of rows of a sparse table, in place of `scores.Sums`.

    Args:
        weights: The rows of each user, and their weights.
        table: A CSR matrix.
    """

    def __init__(self, weights: Weights, table: Any) -> None:
        variable = weights.graph.variable
        has_weight = tf.where(weights.weights != 0.0)
        numbers = tf.gather_nd(weights.numbers, has_weight)
        ends = variable(table.indptr, padded=True)
        places = tf.ragged.range(tf.gather(ends, numbers), tf.gather(ends, numbers + 1))
        of_entry = places.value_rowids()
        weight = tf.gather(tf.gather_nd(weights.weights, has_weight), of_entry)
        # a user, a column and a value for each entry of the rows
        self._rows = tf.gather(has_weight[:, 0], of_entry)
        self._columns = tf.cast(tf.gather(variable(table.indices), places.values), tf.int64)
        self._values = weight * tf.cast(tf.gather(variable(table.data), places.values), tf.float64)
        # some operations need a column, also of a table without categories
        self._shape = tf.shape(weights.numbers, tf.int64)[0], max(1, table.shape[1])

    def at(self, columns: Tensor) -> Tensor:
        """Returns the sums in some columns of each user, float32 `[users, columns]`."""
        users, width = self._shape
        keys = tf.range(users)[:, tf.newaxis] * width + tf.cast(columns, tf.int64)
        count = tf.size(columns)
        slots = tf.range(count)
        # of a column that is asked for several times, one slot has the sum
        slots = tf.math.unsorted_segment_max(slots, tf.reshape(keys, [-1]), users * width)
        of_entries = tf.gather(slots, self._rows * width + self._columns)
        # negative slots, of columns that are not asked for, are left out
        sums = tf.math.unsorted_segment_sum(self._values, of_entries, count)
        return tf.cast(tf.gather(sums, tf.gather(slots, keys)), tf.float32)

    def best(self, count: int, out: Tensor) -> Tensor:
        """Returns the numbers of the columns of the largest sums, 0 where there are no more."""
        users, width = self._shape[0], self._shape[1] + 1
        keys = self._rows * width + self._columns + 1
        sums = tf.math.unsorted_segment_sum(self._values, keys, users * width)
        sums = tf.reshape(tf.cast(sums, tf.float32), [-1, width])
        values, numbers = largest(sums, count, out)
        return tf.where(values > 0.0, numbers, 0)


def at(graph: Graph, view: Any, items: Tensor) -> Tensor:
    """Returns the scores of items of each user, `[users, items]`.

    Args:
        graph: The graph.
        view: `scores.Scores`, of tensors where they depend on histories, or `Links`.
        items: Indices of items, from 0, `[users, items]`.
    """
    if isinstance(view, Links):
        return view.at(items)
    if isinstance(view, Products):
        vectors = tf.cast(tf.gather(graph.variable(view.items, padded=True), items + 1), tf.float64)
        users = tf.cast(view.users, tf.float64)
        return tf.cast(tf.linalg.matvec(vectors, users), tf.float32)
    if isinstance(view, Values):
        columns = [] if view.users is None else [tf.cast(view.users, tf.float64)[:, tf.newaxis]]
        if view.items is not None:
            columns.append(tf.cast(tf.gather(graph.variable(view.items), items), tf.float64))
        return tf.broadcast_to(sum(columns), tf.shape(items))
    if not isinstance(view, Lookup):
        raise refusal("a SavedModel needs scores of `recommend.scores`", type(view).__name__)
    sums: Any
    sums, is_missing = view.sums, tf.zeros(tf.shape(items), tf.bool)
    if view.users is not None:
        rows = view.users[:, tf.newaxis]
        is_missing |= rows < 0
        sums = Links(Weights(graph, rows + 1, tf.ones(tf.shape(rows), tf.float64)), sums.matrix)
    if view.items is not None:
        items = tf.gather(graph.variable(view.items), items)
        is_missing |= items < 0
    return tf.where(is_missing, np.nan, sums.at(tf.maximum(items, 0)))


def best(graph: Graph, view: Any, count: int, out: Tensor) -> Tensor:
    """Returns the numbers of the items of the highest scores of each user, in any order.

    Args:
        graph: The graph.
        view: As in `at`.
        count: Number of items.
        out: Numbers of items that are left out, 0 for none, `[users, length]`.
    """
    if isinstance(view, Links):
        return view.best(count, out)
    if isinstance(view, Products):
        users = tf.cast(view.users, tf.float32)
        # TensorFlow transposes in each call otherwise, which takes longer than the product
        values = tf.linalg.matmul(users, graph.variable(view.items, padded=True, transposed=True))
        is_left = tf.reduce_any(users != 0.0, axis=1, keepdims=True)
    elif isinstance(view, Values) and view.items is not None and view.users is None:
        items = graph.variable(view.items, padded=True)
        values = tf.broadcast_to(items, [tf.shape(out)[0], items.shape[0]])
        is_left = tf.constant([[True]])
    else:
        return tf.zeros([tf.shape(out)[0], 0], tf.int32)
    # as in `Products.best`, what a matrix product finds is scored again
    values, numbers = largest(values, count + scores.SPARE, out)
    numbers = tf.sort(tf.where(is_left & (values > -np.inf), numbers, 0), axis=1)
    values = tf.cast(at(graph, view, tf.maximum(numbers - 1, 0)), tf.float32)
    values = tf.where(numbers > 0, values, -np.inf)
    _, places = tf.math.top_k(values, tf.minimum(count, tf.shape(values)[1]))
    return tf.gather(numbers, places, batch_dims=1)


def largest(values: Tensor, count: int, out: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the largest values of each user, -inf where there are no more, and their columns.

    Args:
        values: float32 `[users, 1 + items]`; the first column is that of padding.
        count: Number of values.
        out: Columns that are left out, that of padding among them, `[users, length]`.
    """
    rows = tf.broadcast_to(tf.range(tf.shape(out)[0])[:, tf.newaxis], tf.shape(out))
    places = tf.stack([rows, out], axis=2)
    values = tf.tensor_scatter_nd_update(
        values, places, tf.fill(tf.shape(out), np.float32(-np.inf))
    )
    return tf.math.top_k(values, min(count, values.shape[1]))


def distinct(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Returns numbers in ascending order, and whether each is above 0 and the first of its value.

    Args:
        numbers: int32 `[rows, length]`.
    """
    numbers = tf.sort(numbers, axis=1)
    return numbers, numbers != tf.pad(numbers, [[0, 0], [1, 0]])[:, :-1]


@scores.weigh.register
def _weigh(histories: Histories, decay: float = 1.0, most: int | None = None) -> Weights:
    is_kept = histories.numbers > 0
    age = tf.cumsum(tf.cast(is_kept, tf.float64), axis=1, exclusive=True, reverse=True)
    if most is not None:
        is_kept &= age < most
    weights = tf.where(is_kept, tf.cast(decay, tf.float64) ** age, 0.0)
    return Weights(histories.graph, histories.numbers, weights)


@scores.multiply.register
def _multiply(weights: Weights, table: Any) -> Any:
    if sp.issparse(table):
        return Links(weights, table)
    rows = tf.gather(weights.graph.variable(table, padded=True), weights.numbers)
    subscripts = "ul,ul...->u..."
    return tf.einsum(subscripts, weights.weights, tf.cast(rows, tf.float64))


@scores.join.register
def _join(histories: Histories, ids: Array, columns: Mapping[str, Array]) -> Tensors:
    graph = histories.graph
    rows = graph.lookup(ids)(histories.user_ids) - 1
    rows = tf.where(rows < 0, len(ids), rows)  # where `extend` has what is missing
    tables = {name: graph.variable(scores.extend(values)) for name, values in columns.items()}
    return {name: tf.gather(table, rows) for name, table in tables.items()}


@scores.solve.register
def _solve(histories: Histories, system: System) -> Tensor:
    items, eigenvalues, pull, curvature, slope, terms = system
    numbers, is_new = distinct(histories.numbers)
    own = tf.gather(histories.graph.variable(items, padded=True), tf.where(is_new, numbers, 0))
    own = tf.cast(own, tf.float64)
    count = tf.math.count_nonzero(is_new, axis=1)
    of_counts = terms(np.arange(len(items) + 1.0))
    scale, ridge = (tf.gather(histories.graph.variable(x), count)[:, tf.newaxis] for x in of_counts)
    root = tf.math.rsqrt(scale * eigenvalues.astype(np.float64) + ridge)
    right = (slope * tf.reduce_sum(own, axis=1) - scale * pull.astype(np.float64)) * root
    own *= np.sqrt(curvature) * root[:, tf.newaxis]

    def by_items() -> Tensor:
        system_of_items = tf.linalg.matmul(own, own, transpose_b=True)
        solution = _solve_shifted(system_of_items, tf.linalg.matvec(own, right))
        return right - tf.linalg.matvec(own, solution, transpose_a=True)

    def by_factors() -> Tensor:
        return _solve_shifted(tf.linalg.matmul(own, own, transpose_a=True), right)

    few = tf.shape(own)[1] < len(eigenvalues)
    return tf.cond(few, by_items, by_factors) * root


def _solve_shifted(products: Tensor, right: Tensor) -> Tensor:
    """The solution of a system of the unit matrix and products."""
    system = products + tf.eye(tf.shape(right)[1], dtype=right.dtype)
    factor = tf.linalg.cholesky(system)
    return tf.linalg.cholesky_solve(factor, right[..., tf.newaxis])[..., 0]
