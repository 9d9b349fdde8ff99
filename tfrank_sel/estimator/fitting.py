"""Training of the models of an estimator, in memory and on a scratch folder."""

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import metrics, models
from tfrank_sel.arguments import Count, OpenShare
from tfrank_sel.data.lists import Lists, pad
from tfrank_sel.features import FeatureTypes, Number
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.training import fitting
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.candidates import Candidate
from tfrank_sel.training.lists import PreparedLists
from tfrank_sel.training.settings import TrainingSettings


@dataclasses.dataclass(frozen=True)
class Parameters(TrainingSettings):
    """Settings of training and of an estimator: see `Ranker`."""

    validation_fraction: OpenShare | None = 0.1
    members: Count | None = None
    verbose: int = 0


def train(
    candidate: Candidate,
    learned: Lists,
    held_out: Lists | None,
    features: FeatureTypes | None,
    settings: Parameters,
) -> fitting.Trained:
    """Trains a candidate on lists of an estimator.

    Args:
        candidate: The models to train.
        learned: Lists to learn from, with labels.
        held_out: Lists that decide when to stop; None to train for all epochs.
        features: Type of each feature; None if all are numbers.
        settings: How to train.
    """
    if features is None and np.isnan(learned.features).any():
        features = {str(column): Number() for column in range(learned.features.shape[1])}
    if features is None:
        mean, variance = models.moments(learned.features)
        preparation = models.Preparation(mean, variance, within_list=True)
    else:
        batches = ((inputs,) for _, inputs, _ in learned.batches())
        preparation = models.Preparation.of(batches, features)
    measured = held_out and held_out.dataset()
    hooks = (
        Hooks(on_model=_progress_printer(), verbose=settings.verbose)
        if settings.verbose
        else Hooks()
    )
    with tempfile.TemporaryDirectory() as folder:
        lists = PreparedLists(learned.dataset(), measured, settings, Path(folder))
        return fitting.train(candidate, preparation, lists, hooks)


def _progress_printer() -> Callable[[fitting.MemberFit], None]:
    """A function that prints how the training of each model went, and its time."""
    began = time.perf_counter()

    def tell(fit: fitting.MemberFit) -> None:
        nonlocal began
        before, began = began, time.perf_counter()
        print(f"{fit}, {began - before:.1f} s")

    return tell


# The rank at which NDCG is cut off.
CUTOFF = 10


class GraphScorer:
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

    def __reduce__(self) -> tuple[type["GraphScorer"], tuple[Any, ...]]:
        return GraphScorer, self._arguments

    def scores(self, lists: Lists) -> np.ndarray:
        """Returns the score of each item, list by list, float32."""
        scores = np.empty(len(lists.features), np.float32)
        for rows, inputs, mask in lists.batches():
            scores[rows] = self.graph(inputs).numpy()[mask]
        return scores

    def ndcgs(self, lists: Lists) -> np.ndarray:
        """Returns the NDCG@10 of each list with labels, in the order of `Lists.batches`.

        That of a list without relevance is 0.
        """
        scores, values = self.scores(lists), []
        for rows, _, mask in lists.batches():
            labels = pad(lists.labels[rows], mask, np.nan)
            values.append(self._evaluate(labels, pad(scores[rows], mask, 0.0))["ndcg"].values)
        return np.concatenate(values)
