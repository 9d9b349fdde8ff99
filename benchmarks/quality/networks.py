"""One network, trained with any loss on all folds and seeds at once."""

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.quality.data import PARTS, Bucket, Lists, buckets
from benchmarks.quality.selection import SEEDS, Scores, Trial, chosen, ndcg
from benchmarks.quality.stacked import Networks, Settings
from tfrank_sel import models

# four settings for each fold and seed, as the trees have
LEARNING_RATES = (1e-3, 3e-3)
DROPOUTS = (0.1, 0.4)
HIDDEN = (64, 32)
BATCH_SIZE, SMALL_BATCH = 32, 8  # the latter for sets with less than FEW training lists
FEW = 256
EPOCHS = 30

# of labels `[lists, list_size]`, -1 at padding, scores, and weights of lists: a scalar
Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def train(
    loss: Loss,
    folds: Sequence[dict[str, Lists]],
    *,
    within: bool,
    seeds: Sequence[int] = SEEDS,
    outputs: int = 1,
    jit_compile: bool = True,
) -> Scores:
    """Returns the scores of the test lists of each fold and seed, by the best setting.

    With two outputs, the score is their difference.
    """
    runs = list(itertools.product(range(len(folds)), seeds, LEARNING_RATES, DROPOUTS))
    data = []
    for fold in folds:
        of_fold = models.moments(np.concatenate([x.features for x in fold["train"]]))
        data.append({part: buckets(fold[part], of_fold, within) for part in PARTS})
    inputs = data[0]["train"][0].features.shape[-1]
    settings = [Settings(10 * seed + fold, rate, drop) for fold, seed, rate, drop in runs]
    widths, objective = (inputs, *HIDDEN, outputs), _objective(loss, outputs)
    networks = Networks(widths, settings, objective, jit_compile=jit_compile)
    random = np.random.default_rng(0)
    is_small = min(len(fold["train"]) for fold in folds) < FEW
    batch_size = SMALL_BATCH if is_small else BATCH_SIZE
    stages: dict[str, list[Any]] = {"vali": [], "test": []}
    for epoch in range(EPOCHS):
        for features, labels in _epoch([data[run[0]]["train"] for run in runs], batch_size, random):
            networks.step(features, labels)
        for part, found in stages.items():
            found.append(_scored(networks, [data[run[0]][part] for run in runs]))
        if sys.stderr.isatty():
            print(f"\repoch {epoch + 1}/{EPOCHS}", end="", file=sys.stderr)
    trials = []
    for number, (fold, seed, *setting) in enumerate(runs):
        validation, test = ([scores[number] for scores in found] for found in stages.values())
        values = ndcg(folds[fold]["vali"], validation)
        trials.append(Trial(fold, seed, tuple(setting), values, test))
    return chosen(trials)


def _objective(loss: Loss, count: int) -> Callable[[Any, tf.Tensor], tf.Tensor]:
    """The sum over networks of the mean over the lists of a batch."""

    def objective(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        is_list = tf.cast(tf.reduce_any(labels >= 0.0, axis=-1), tf.float32)
        weights = is_list / tf.maximum(tf.reduce_sum(is_list, axis=1, keepdims=True), 1.0)
        size = labels.shape[-1]
        shape = [-1, size] if count == 1 else [-1, size, count]
        flat = tf.reshape(labels, [-1, size]), tf.reshape(outputs, shape)
        return loss(*flat, tf.reshape(weights, [-1, 1]))

    return objective


def _epoch(
    parts: Sequence[Sequence[Bucket]], batch_size: int, random: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches of all networks, each of lists of one bucket, in random order."""
    plan = []
    for of_runs in zip(*parts, strict=True):
        count = max(math.ceil(len(bucket.places) / batch_size) for bucket in of_runs)
        orders = [_filled(random.permutation(len(x.places)), count * batch_size) for x in of_runs]
        plan += [(of_runs, [order[i::count] for order in orders]) for i in range(count)]
    for i in random.permutation(len(plan)):
        yield tuple(map(np.stack, zip(*map(_chosen, *plan[i]), strict=True)))


def _chosen(bucket: Bucket, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return bucket.features[rows], bucket.labels[rows]


def _filled(order: np.ndarray, size: int) -> np.ndarray:
    """Fills up an order of lists to whole batches with the list that has no items."""
    return np.concatenate([order, np.full(size - len(order), len(order))])


def _scored(networks: Networks, parts: Sequence[Sequence[Bucket]]) -> list[list[np.ndarray]]:
    """Scores of each network for the lists of its part."""
    scores: list[list[Any]] = [[None] * sum(len(x.places) for x in part) for part in parts]
    for of_runs in zip(*parts, strict=True):
        longest = max(len(bucket.labels) for bucket in of_runs)
        if longest == 1:  # no list
            continue
        # as many lists for each network: the last ones have no items
        rows = [np.minimum(np.arange(longest), len(bucket.places)) for bucket in of_runs]
        features = np.stack([x.features[of_run] for x, of_run in zip(of_runs, rows, strict=True)])
        found = networks.predict(features).numpy()
        found = found[..., 0] if found.shape[-1] == 1 else found[..., 1] - found[..., 0]
        for run, bucket in enumerate(of_runs):
            for row, place in enumerate(bucket.places):
                scores[run][place] = found[run, row, bucket.labels[row] >= 0.0]
    return scores
