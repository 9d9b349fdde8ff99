"""Scores of lists by a trained model, and their NDCG."""

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import metrics
from tfrank_sel.data.lists import Lists, padded
from tfrank_sel.metrics.ties import AVERAGED

CUTOFF = 10  # of NDCG


class Scorer:
    """A model as one graph for lists of all sizes, which can be pickled.

    Args:
        model: Maps `features`, `mask` and, if there are any, `texts` to scores `[batch_size,
            list_size]`.
        num_features: Number of numbers of an item.
        num_texts: Number of texts of an item.
    """

    def __init__(self, model: keras.Model, num_features: int, num_texts: int) -> None:
        self._arguments = model, num_features, num_texts
        signature = {
            "features": tf.TensorSpec([None, None, num_features], tf.float32),
            "mask": tf.TensorSpec([None, None], tf.bool),
        }
        if num_texts:
            signature["texts"] = tf.TensorSpec([None, None, num_texts], tf.string)
        score = functools.partial(model, training=False)
        self.graph = tf.function(score, input_signature=[signature])
        ndcg = metrics.NDCG(k=CUTOFF, name="ndcg", ties=AVERAGED)
        self._evaluate = metrics.Evaluator([ndcg])

    def __reduce__(self) -> tuple[type["Scorer"], tuple[Any, ...]]:
        return Scorer, self._arguments

    def scores(self, lists: Lists) -> np.ndarray:
        """Returns the score of each item, list by list, float32."""
        scores = np.empty(len(lists.features), np.float32)
        for rows, inputs, mask in lists.batches():
            scores[rows] = self.graph(inputs).numpy()[mask]
        return scores

    def ndcg(self, lists: Lists) -> float:
        """Returns the mean NDCG@10 of lists with labels; that of a list without relevance is 0."""
        return float(self.ndcgs(lists).mean())

    def ndcgs(self, lists: Lists) -> np.ndarray:
        """Returns the NDCG@10 of each list with labels, in the order of `Lists.batches`."""
        scores, values = self.scores(lists), []
        for rows, _, mask in lists.batches():
            labels = padded(lists.labels[rows], mask, np.nan)
            values.append(self._evaluate(labels, padded(scores[rows], mask, 0.0))["ndcg"].values)
        return np.concatenate(values)
