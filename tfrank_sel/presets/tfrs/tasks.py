"""Tasks: layers that compute a loss and update metrics."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.arguments import Checked, Natural, Positive
from tfrank_sel.errors import refusal
from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.presets.tfrs.metrics import FactorizedTopK

# added to a logit that must not, or must, be among the largest
_FAR = np.finfo(np.float32).max / 100.0


class Retrieval(Checked, keras.layers.Layer):
    """Loss and metrics of two towers, whose negatives are the other candidates of the batch.

    The logit of query `i` and candidate `j` is `q_i . c_j / temperature - log(p_j)`, where `p_j` is
    the probability of a candidate as a negative. The label is 1 for `i = j`, else 0.

    Args:
        loss: Loss of labels and logits, `[num_queries, num_candidates]`; if `None`, the sum of the
            cross-entropies. Losses of this package take them, too.
        metrics: `FactorizedTopK`, one or several.
        batch_metrics: Metrics of labels and logits.
        loss_metrics: Metrics of the loss, such as a mean.
        temperature: Positive number that divides the products.
        num_hard_negatives: Number of negatives of the largest logits that are kept; all if `None`.
        remove_accidental_hits: Whether a negative that is the same candidate as the positive is
            left out; needs `candidate_ids`.
        name: Name of the layer.
    """

    def __init__(
        self,
        loss: Callable[..., Tensor] | None = None,
        metrics: FactorizedTopK | Sequence[FactorizedTopK] | None = None,
        batch_metrics: Sequence[keras.metrics.Metric] | None = None,
        loss_metrics: Sequence[keras.metrics.Metric] | None = None,
        temperature: Positive | None = None,
        num_hard_negatives: Natural | None = None,
        remove_accidental_hits: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.built = True
        self._loss = loss or keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")
        self.factorized_metrics = [metrics] if isinstance(metrics, FactorizedTopK) else metrics
        self._batch_metrics = list(batch_metrics or ())
        self._loss_metrics = list(loss_metrics or ())
        self._temperature = temperature
        self._num_hard_negatives = num_hard_negatives
        self._remove_accidental_hits = remove_accidental_hits

    def call(
        self,
        query_embeddings: Tensor,
        candidate_embeddings: Tensor,
        sample_weight: Tensor | None = None,
        candidate_sampling_probability: Tensor | None = None,
        candidate_ids: Tensor | None = None,
        compute_metrics: bool = True,
        compute_batch_metrics: bool = True,
        score_mask: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch, and updates the metrics.

        Args:
            query_embeddings: `[num_queries, num_factors]`, or several vectors of a query,
                `[num_queries, num_heads, num_factors]`, of which the best counts; then, `metrics`
                are not updated.
            candidate_embeddings: `[num_candidates, num_factors]`; the candidate of query `i` is in
                row `i`, and further rows are negatives only.
            sample_weight: Weights of the queries in loss and metrics, `[num_queries]`.
            candidate_sampling_probability: `[num_candidates]`.
            candidate_ids: `[num_candidates]`.
            compute_metrics: Whether to update `metrics`, which compare with all candidates.
            compute_batch_metrics: Whether to update `batch_metrics`.
            score_mask: Whether a candidate counts for a query, `[num_queries, num_candidates]`.

        Raises:
            ValueError: If accidental hits are to be removed without `candidate_ids`, or the shapes
                do not match.
        """
        _check_shapes(query_embeddings, candidate_embeddings)
        logits = tf.einsum("q...k,ck->q...c", query_embeddings, candidate_embeddings)
        has_heads = logits.shape.rank == 3
        if has_heads:
            logits = tf.reduce_max(logits, axis=1)
        if logits.dtype.size < 4:
            # float16 cannot hold `_FAR`.
            logits = tf.cast(logits, tf.float32)
        labels = tf.eye(tf.shape(logits)[0], tf.shape(logits)[1], dtype=logits.dtype)
        of_loss = labels
        if self._temperature is not None:
            logits /= self._temperature
        if candidate_sampling_probability is not None:
            probability = tf.cast(candidate_sampling_probability, logits.dtype)
            logits -= tf.math.log(tf.clip_by_value(probability, 1e-6, 1.0))
        if self._remove_accidental_hits:
            if candidate_ids is None:
                raise refusal("`candidate_ids` must be given to remove accidental hits", "None")
            ids = tf.reshape(candidate_ids, [-1])
            of_queries = ids[: tf.shape(logits)[0], tf.newaxis]
            is_same = (of_queries == ids) & (labels == 0.0)
            logits = tf.where(is_same, logits - _FAR, logits)
            of_loss = tf.where(is_same, math.nan, of_loss)
        if score_mask is not None:
            logits = tf.where(score_mask, logits, -_FAR)
            of_loss = tf.where(score_mask, of_loss, math.nan)
        if self._num_hard_negatives is not None:
            count = tf.minimum(self._num_hard_negatives + 1, tf.shape(logits)[1])
            _, hardest = tf.math.top_k(logits + labels * _FAR, count, sorted=False)
            logits, labels, of_loss = (
                tf.gather(x, hardest, batch_dims=1) for x in (logits, labels, of_loss)
            )
        # losses of this package leave out a label of NaN; some have no value of so far a logit
        is_listwise = isinstance(self._loss, ListwiseLoss)
        loss = self._loss(of_loss if is_listwise else labels, logits, sample_weight=sample_weight)
        for metric in self._loss_metrics:
            metric.update_state(loss)
        if compute_metrics and not has_heads:
            positives = candidate_embeddings[: tf.shape(query_embeddings)[0]]
            for metric in self.factorized_metrics or ():
                metric.update_state(query_embeddings, positives, candidate_ids, sample_weight)
        if compute_batch_metrics:
            for metric in self._batch_metrics:
                metric.update_state(labels, logits, sample_weight=sample_weight)
        return loss


def _check_shapes(queries: Any, candidates: Any) -> None:
    q, c = (tf.TensorShape(getattr(x, "shape", [])) for x in (queries, candidates))
    fit = q.rank in (None, 2, 3) and c.is_compatible_with([None, None])
    if fit and q.rank and c.rank:
        fit = q[-1:].is_compatible_with(c[-1:]) and (q[0] or 0) <= (c[0] or math.inf)
    if not fit:
        raise refusal(
            "`query_embeddings` must have shape [num_queries, num_factors] or [num_queries, "
            "num_heads, num_factors], and `candidate_embeddings` [num_candidates, num_factors] "
            "with a candidate for each query",
            f"query_embeddings {q}, candidate_embeddings {c}",
        )


class Ranking(Checked, keras.layers.Layer):
    """Loss and metrics of predictions.

    Args:
        loss: Loss; binary cross-entropy of probabilities if `None`.
        metrics: Metrics of labels and predictions.
        prediction_metrics: Metrics of predictions.
        label_metrics: Metrics of labels.
        loss_metrics: Metrics of the loss.
        name: Name of the layer.
    """

    def __init__(
        self,
        loss: Callable[..., Tensor] | None = None,
        metrics: Sequence[keras.metrics.Metric] | None = None,
        prediction_metrics: Sequence[keras.metrics.Metric] | None = None,
        label_metrics: Sequence[keras.metrics.Metric] | None = None,
        loss_metrics: Sequence[keras.metrics.Metric] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.built = True
        self._loss = loss or keras.losses.BinaryCrossentropy()
        self._ranking_metrics = list(metrics or ())
        self._prediction_metrics = list(prediction_metrics or ())
        self._label_metrics = list(label_metrics or ())
        self._loss_metrics = list(loss_metrics or ())

    def call(
        self,
        labels: Tensor,
        predictions: Tensor,
        sample_weight: Tensor | None = None,
        training: bool = False,
        compute_metrics: bool = True,
    ) -> Tensor:
        """Returns the loss of a batch, and updates the metrics."""
        del training
        loss = self._loss(labels, predictions, sample_weight=sample_weight)
        if compute_metrics:
            for metric in self._ranking_metrics:
                metric.update_state(labels, predictions, sample_weight=sample_weight)
            for metrics, values in (
                (self._prediction_metrics, predictions),
                (self._label_metrics, labels),
            ):
                for metric in metrics:
                    metric.update_state(values, sample_weight=sample_weight)
            for metric in self._loss_metrics:
                metric.update_state(loss)
        return loss
