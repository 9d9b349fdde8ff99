"""How often the true candidate is among the best of all."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.arguments import Checked, Count
from tfrank_sel.errors import refusal
from tfrank_sel.presets.tfrs.layers.factorized_top_k import BruteForce, Streaming


class FactorizedTopK(Checked, keras.layers.Layer):
    """Share of the queries whose candidate is among the `k` best of all candidates.

    Args:
        candidates: A layer with an index, or a dataset of batches of candidates' vectors, or of
            pairs of identifiers and vectors. A dataset is read anew for each batch, so that vectors
            of a tower in training are its newest.
        ks: Values of `k`.
        name: Name of the layer, and the beginning of the metrics' names.

    Raises:
        TypeError: If an argument has another type.
        ValueError: If `ks` is empty, or one of them is not positive.
    """

    def __init__(
        self,
        candidates: BruteForce | Streaming | tf.data.Dataset,
        ks: Sequence[Count] = (1, 5, 10, 50, 100),
        name: str = "factorized_top_k",
    ) -> None:
        super().__init__(name=name)
        if len(ks) == 0:
            raise refusal("`ks` must not be empty", ks=ks)
        self._ks = tuple(map(int, ks))
        if isinstance(candidates, tf.data.Dataset):
            candidates = Streaming(k=max(self._ks)).index_from_dataset(candidates)
        self._candidates = candidates
        self._shares = [
            keras.metrics.Mean(name=f"{name}/top_{k}_categorical_accuracy") for k in self._ks
        ]

    def update_state(
        self,
        query_embeddings: Tensor,
        true_candidate_embeddings: Tensor,
        true_candidate_ids: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> None:
        """Counts a batch.

        Args:
            query_embeddings: `[num_queries, num_factors]`.
            true_candidate_embeddings: `[num_queries, num_factors]`.
            true_candidate_ids: Identifiers, `[num_queries]`, to be found among those of the best;
                if `None`, the score of the true candidate is compared with the best scores.
            sample_weight: Weights of the queries, `[num_queries]`.
        """
        scores, ids = self._candidates(query_embeddings, k=max(self._ks))
        if true_candidate_ids is None:
            products = query_embeddings * true_candidate_embeddings
            true_scores = tf.reduce_sum(products, axis=1, keepdims=True)
            scores = tf.concat([true_scores, scores], axis=1)
            first = tf.zeros_like(true_scores[:, 0], tf.int32)
            hits = [tf.math.in_top_k(first, scores, k) for k in self._ks]
        else:
            own_ids = tf.reshape(true_candidate_ids, [-1, 1])[: tf.shape(ids)[0]]
            if own_ids.dtype.is_integer and ids.dtype.is_integer:
                own_ids, ids = tf.cast(own_ids, tf.int64), tf.cast(ids, tf.int64)
            is_true = own_ids == ids
            hits = [tf.reduce_any(is_true[:, :k], axis=1) for k in self._ks]
        for share, hit in zip(self._shares, hits, strict=True):
            share.update_state(tf.cast(hit, tf.float32), sample_weight)

    def result(self) -> list[Any]:
        """The share for each `k`."""
        return [share.result() for share in self._shares]

    def reset_state(self) -> None:
        """Forgets all batches."""
        for share in self._shares:
            share.reset_state()

    reset_states = reset_state
