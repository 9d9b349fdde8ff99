"""The best candidates of queries, by their products."""

from typing import Any

import keras
import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.refusals import refusal


class _TopK(keras.Model):
    """Search for the `k` best of indexed candidates."""

    def __init__(
        self, query_model: keras.Model | None = None, k: int = 10, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.query_model, self._k, self._is_indexed = query_model, k, False

    def call(self, queries: Any, k: int | None = None) -> tuple[Tensor, Tensor]:
        """Returns scores and identifiers, `[num_queries, k]`, in descending order of the scores.

        Raises:
            ValueError: If nothing is indexed.
        """
        if not self._is_indexed:
            raise refusal("`index` must be called before a search", "no candidates")
        vectors = queries if self.query_model is None else self.query_model(queries)
        return self._best(vectors, int(self._k if k is None else k))

    def query_with_exclusions(
        self, queries: Any, exclusions: Tensor, k: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """As a call, without the candidates whose identifiers are in `exclusions` of the query.

        Args:
            queries: As in a call.
            exclusions: Identifiers, `[num_queries, num_exclusions]`.
            k: As in a call.
        """
        k = self._k if k is None else k
        scores, ids = self(queries, k=k + exclusions.shape[1])
        is_out = tf.reduce_any(ids[:, :, tf.newaxis] == exclusions[:, tf.newaxis], axis=2)
        kept = tf.where(is_out, scores.dtype.min, scores)
        _, places = tf.math.top_k(kept, tf.minimum(int(k), tf.shape(kept)[1]))
        return tuple(tf.gather(x, places, batch_dims=1) for x in (scores, ids))

    def is_exact(self) -> bool:
        """Whether all of the best candidates are found."""
        return True


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
            ValueError: If `candidates` is not a matrix, or `identifiers` has another length.
        """
        candidates, identifiers = _whole(candidates), _whole(identifiers)
        if len(candidates.shape) != 2:
            raise refusal("`candidates` must be a matrix", f"shape {candidates.shape}")
        if identifiers is None:
            identifiers = tf.range(len(candidates))
        if len(identifiers) != len(candidates):
            raise refusal(
                "`candidates` must have an identifier each",
                f"{len(candidates)} candidates, {len(identifiers)} identifiers",
            )
        # variables of TensorFlow, since Keras has none of texts
        self._candidates = tf.Variable(candidates, trainable=False)
        self._identifiers = tf.Variable(identifiers, trainable=False)
        self._is_indexed = True
        return self

    def index_from_dataset(self, candidates: tf.data.Dataset) -> "BruteForce":
        """As `index`, of batches of vectors, or of pairs of identifiers and vectors."""
        if not isinstance(candidates.element_spec, tuple):
            return self.index(candidates)
        parts = list(candidates)
        return self.index(tf.concat([x for _, x in parts], 0), tf.concat([x for x, _ in parts], 0))

    def _best(self, vectors: Tensor, k: int) -> tuple[Tensor, Tensor]:
        products = tf.matmul(vectors, self._candidates, transpose_b=True)
        scores, places = tf.math.top_k(products, min(k, self._candidates.shape[0]))
        return scores, tf.gather(self._identifiers, places)


class Streaming(_TopK):
    """Exact search among the candidates of a dataset, which each call reads anew.

    Args:
        query_model: Model of the queries' vectors; the layer takes vectors if `None`.
        k: Number of candidates if a call names none.
        name: Name of the layer.
    """

    def index_from_dataset(self, candidates: tf.data.Dataset) -> "Streaming":
        """Replaces the candidates by batches of vectors, or of pairs of identifiers and vectors."""
        if not isinstance(candidates.element_spec, tuple):
            numbered = candidates.unbatch().enumerate().batch(1024)
            candidates = numbered.map(lambda number, x: (tf.cast(number, tf.int32), x))
        self._dataset, self._is_indexed = candidates, True
        return self

    def index(
        self, candidates: tf.data.Dataset, identifiers: tf.data.Dataset | None = None
    ) -> "Streaming":
        """As `index_from_dataset`, with batches of identifiers of their own."""
        zipped = identifiers is not None
        return self.index_from_dataset(
            tf.data.Dataset.zip((identifiers, candidates)) if zipped else candidates
        )

    def _best(self, vectors: Tensor, k: int) -> tuple[Tensor, Tensor]:
        ids_spec, _ = self._dataset.element_spec

        def better(best: tuple[Tensor, Tensor], batch: tuple[Tensor, Tensor]) -> Any:
            ids, candidates = batch
            products = tf.matmul(vectors, candidates, transpose_b=True)
            ids = tf.broadcast_to(ids, tf.shape(products))
            scores, ids = tf.concat([best[0], products], 1), tf.concat([best[1], ids], 1)
            scores, places = tf.math.top_k(scores, tf.minimum(k, tf.shape(scores)[1]))
            return scores, tf.gather(ids, places, batch_dims=1)

        count = tf.shape(vectors)[0]
        start = tf.zeros([count, 0], vectors.dtype), tf.zeros([count, 0], ids_spec.dtype)
        return self._dataset.reduce(start, better)


def _whole(given: Any) -> Any:
    """The rows of a dataset together; other values as a tensor, and `None` as it is."""
    if isinstance(given, tf.data.Dataset):
        return tf.concat(list(given), axis=0)
    return given if given is None else tf.convert_to_tensor(given)
