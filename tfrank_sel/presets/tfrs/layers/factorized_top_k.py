"""The best candidates of queries, by their products."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.arguments import Checked, Count
from tfrank_sel.errors import refusal


class _TopK(Checked, keras.Model):
    """Search for the `k` best of indexed candidates.

    Graphs that Keras or you made of a search use the candidates of today, not of the time of their
    tracing.
    """

    def __init__(
        self,
        query_model: Callable[..., Tensor] | None = None,
        k: Count = 10,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.query_model, self._k, self._is_in_graphs = query_model, k, False
        # The types of identifiers and candidates.
        self._dtypes: Any = None

    def call(self, queries: Any, k: int | None = None) -> tuple[Tensor, Tensor]:
        """Returns scores and identifiers, `[num_queries, k]`, in descending order of the scores.

        Raises:
            ValueError: If nothing is indexed, or the vectors of the queries are not a matrix of the
                dtype of the candidates.
        """
        if self._dtypes is None:
            raise refusal("`index` must be called before a search", "no candidates")
        vectors = queries if self.query_model is None else self.query_model(queries)
        shape, dtype = tf.TensorShape(getattr(vectors, "shape", [])), self._dtypes[1]
        if not shape.is_compatible_with([None, None]) or vectors.dtype != dtype:
            raise refusal(
                f"`queries` must have vectors [num_queries, num_factors] of {dtype.name}, as the "
                "candidates",
                f"shape {shape}, {getattr(vectors, 'dtype', None)}",
            )
        self._is_in_graphs |= not tf.executing_eagerly()
        return self._best(vectors, int(self._k if k is None else k))

    def query_with_exclusions(
        self, queries: Any, exclusions: Tensor, k: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """As a call, without the candidates whose identifiers are in `exclusions` of the query.

        Args:
            queries: As in a call.
            exclusions: Identifiers, `[num_queries, num_exclusions]`.
            k: As in a call.

        Raises:
            ValueError: If `exclusions` is not a matrix.
        """
        exclusions = tf.convert_to_tensor(exclusions)
        if exclusions.shape.rank != 2:
            raise refusal(
                "`exclusions` must have shape [num_queries, num_exclusions]",
                f"shape {exclusions.shape}",
            )
        k = self._k if k is None else k
        scores, ids = self(queries, k=k + exclusions.shape[1])
        is_out = tf.reduce_any(ids[:, :, tf.newaxis] == exclusions[:, tf.newaxis], axis=2)
        kept = tf.where(is_out, scores.dtype.min, scores)
        _, places = tf.math.top_k(kept, tf.minimum(int(k), tf.shape(kept)[1]))
        return tuple(tf.gather(x, places, batch_dims=1) for x in (scores, ids))

    def is_exact(self) -> bool:
        """Whether all of the best candidates are found."""
        return True

    def _is_new(self, identifiers: tf.DType, candidates: tf.DType) -> bool:
        """Whether an index needs other variables, which graphs of the last one would not use."""
        dtypes, before = (identifiers, candidates), self._dtypes
        if dtypes != before and self._is_in_graphs:
            raise refusal(
                "Identifiers and candidates must keep their dtypes after a search in a graph; "
                "make a new layer for others",
                f"{[x.name for x in dtypes]}, before: {[x.name for x in before or ()]}",
            )
        self._dtypes = dtypes
        return dtypes != before


class BruteForce(_TopK):
    """Exact search among candidates that are kept in memory and saved with the layer.

    Args:
        query_model: Model of the queries' vectors; the layer takes vectors if `None`.
        k: Number of candidates if a call names none.
        name: Name of the layer.
    """

    def index(self, candidates: Any, identifiers: Any = None) -> "BruteForce":
        """Replaces the candidates.

        Args:
            candidates: Vectors, `[num_candidates, num_factors]`, or a dataset of batches of them.
            identifiers: Their identifiers, or a dataset of batches of them; if `None`, indices.

        Raises:
            ValueError: If `candidates` is not a matrix of floats, or `identifiers` has another
                length; or if one of them has another dtype than in an index that a graph has used.
        """
        candidates, identifiers = _whole(candidates), _whole(identifiers)
        if candidates is None or not (candidates.shape.rank == 2 and candidates.dtype.is_floating):
            received_candidates = (
                None if candidates is None else (candidates.shape, candidates.dtype.name)
            )
            raise refusal("`candidates` must be a matrix of floats", received_candidates)
        if identifiers is None:
            identifiers = tf.range(len(candidates))
        if identifiers.shape != candidates.shape[:1]:
            raise refusal(
                "`candidates` must have an identifier each",
                f"{len(candidates)} candidates, identifiers of shape {identifiers.shape}",
            )
        if self._is_new(identifiers.dtype, candidates.dtype):
            # variables of TensorFlow, since Keras has none of texts
            self._candidates = tf.Variable(candidates, trainable=False, shape=[None, None])
            self._identifiers = tf.Variable(identifiers, trainable=False, shape=[None])
        else:
            self._candidates.assign(candidates)
            self._identifiers.assign(identifiers)
        return self

    def index_from_dataset(self, candidates: tf.data.Dataset) -> "BruteForce":
        """As `index`, of batches of vectors, or of pairs of identifiers and vectors."""
        if not isinstance(_dataset(candidates).element_spec, tuple):
            return self.index(candidates)
        parts = list(candidates)
        return self.index(tf.concat([x for _, x in parts], 0), tf.concat([x for x, _ in parts], 0))

    def _best(self, vectors: Tensor, k: int) -> tuple[Tensor, Tensor]:
        products = tf.matmul(vectors, self._candidates, transpose_b=True)
        scores, places = tf.math.top_k(products, tf.minimum(k, tf.shape(products)[1]))
        return scores, tf.gather(self._identifiers, places)


class Streaming(_TopK):
    """Exact search among the candidates of a dataset, which each call reads anew.

    Args:
        query_model: Model of the queries' vectors; the layer takes vectors if `None`.
        k: Number of candidates if a call names none.
        name: Name of the layer.
    """

    def index_from_dataset(self, candidates: tf.data.Dataset) -> "Streaming":
        """Replaces the candidates by batches of vectors, or of pairs of identifiers and vectors.

        Raises:
            ValueError: If it is not a dataset of such batches, or if they have other dtypes than
                in an index that a graph has used.
        """
        if not isinstance(_dataset(candidates).element_spec, tuple):
            numbered = candidates.unbatch().enumerate().batch(1024)
            candidates = numbered.map(lambda number, x: (tf.cast(number, tf.int32), x))
        spec = candidates.element_spec
        if [getattr(x, "shape", tf.TensorShape([])).rank for x in spec] != [1, 2]:
            raise refusal(
                "`candidates` must have batches of vectors, [batch_size, num_factors], or of pairs "
                "of identifiers, [batch_size], and vectors",
                spec,
            )
        is_new = self._is_new(*(x.dtype for x in spec))
        # A SavedModel must reach its dataset through an attribute.
        self._dataset = candidates
        if is_new:
            self._current = _Current()
        self._current.assign(candidates)
        return self

    def index(
        self, candidates: tf.data.Dataset, identifiers: tf.data.Dataset | None = None
    ) -> "Streaming":
        """As `index_from_dataset`, with batches of identifiers of their own."""
        if identifiers is None:
            return self.index_from_dataset(candidates)
        both = _dataset(identifiers, "identifiers"), _dataset(candidates)
        return self.index_from_dataset(tf.data.Dataset.zip(both))

    def _best(self, vectors: Tensor, k: int) -> tuple[Tensor, Tensor]:
        of_ids, of_candidates = self._dtypes

        def better(best: tuple[Tensor, Tensor], batch: tuple[Tensor, Tensor]) -> Any:
            ids, candidates = batch
            products = tf.matmul(vectors, candidates, transpose_b=True)
            ids = tf.broadcast_to(ids, tf.shape(products))
            scores, ids = tf.concat([best[0], products], 1), tf.concat([best[1], ids], 1)
            scores, places = tf.math.top_k(scores, tf.minimum(k, tf.shape(scores)[1]))
            return scores, tf.gather(ids, places, batch_dims=1)

        count = tf.shape(vectors)[0]
        start = tf.zeros([count, 0], vectors.dtype), tf.zeros([count, 0], of_ids)
        spec = tf.TensorSpec([None], of_ids), tf.TensorSpec([None, None], of_candidates)
        return self._current.dataset(spec).reduce(start, better)


class _Current(tf.saved_model.experimental.TrackableResource):
    """A variable that holds a dataset: graphs read the one of today, and SavedModel has it."""

    def __init__(self) -> None:
        super().__init__(device="CPU:0")

    def assign(self, dataset: tf.data.Dataset) -> None:
        """Replaces the dataset."""
        self._dataset = dataset
        self._initialize()

    def dataset(self, spec: Any) -> tf.data.Dataset:
        """Returns the dataset of today, whose elements are of a `spec`."""
        held = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.variant)
        return tf.data.experimental.from_variant(held, spec)

    def _create_resource(self) -> Tensor:
        # TensorFlow's name of a resource that is not shared
        anonymous = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
        return tf.raw_ops.VarHandleOp(dtype=tf.variant, shape=[], shared_name=anonymous)

    def _initialize(self) -> None:
        held = tf.data.experimental.to_variant(self._dataset)
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=held)


def _dataset(source: Any, name: str = "candidates") -> tf.data.Dataset:
    if not isinstance(source, tf.data.Dataset):
        raise refusal(f"`{name}` must be a tf.data.Dataset", type(source).__name__)
    return source


def _whole(source: Any) -> Any:
    """The rows of a dataset together; other values as a tensor, and `None` as it is."""
    if isinstance(source, tf.data.Dataset):
        return tf.concat(list(source), axis=0)
    return source if source is None else tf.convert_to_tensor(source)
