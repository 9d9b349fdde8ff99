"""Distillation of an ensemble of boosted trees into a small network, by loss.

    python -m benchmarks.quality.distillation --data MQ2008

`--data` is the folder of a LETOR set with five folds. One training list in three has labels. The
teacher of a fold is the mean of LightGBM's rankers (lambdarank) of five seeds, trained on these.
Students are the networks of `benchmarks.quality`; they learn from labels, or from the teacher's
scores of all training lists, standardised in each list. Learning rate, dropout and epoch are chosen
on validation lists with labels. NDCG@10 is the mean over queries and three seeds, with the 95 %
interval of the difference to the student of the same labels, by paired bootstrap.
"""

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.quality import networks
from benchmarks.quality.data import Lists, folds
from benchmarks.quality.judging import interval
from tfrank_sel import links, losses, metrics

Array = NDArray[Any]
Fold = dict[str, Lists]

TREES = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 30,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "num_threads": 1,
    "verbose": -1,
}
LABELS = losses.RGCrossLoss
LOSSES: dict[str, losses.ListwiseLoss] = {
    "`SelectiveSoftmaxLoss(links.Constant())`": losses.SelectiveSoftmaxLoss(
        links.Constant(), reduction="sum"
    ),
    "`PairwiseMSELoss()`": losses.PairwiseMSELoss(reduction="sum"),
    "`ADRMSELoss()`": losses.ADRMSELoss(reduction="sum"),
    "`ADRMSELoss(temperature=0.1)`": losses.ADRMSELoss(0.1, reduction="sum"),
    "`SpearmanLoss()`": losses.SpearmanLoss(reduction="sum"),
    "`SpearmanLoss(temperature=0.1)`": losses.SpearmanLoss(0.1, reduction="sum"),
    "`ListMLELoss()`": losses.ListMLELoss(reduction="sum"),
    "`RGCrossLoss()`": losses.RGCrossLoss(reduction="sum"),
}


def with_labels(lists: Lists) -> Lists:
    """One list in three."""
    return lists[::3]


def teacher_scores(fold: Fold, part: str) -> list[Array]:
    """The teacher's scores of the lists of a part, standardised in each list."""
    import lightgbm

    known = with_labels(fold["train"])
    features = np.concatenate([x.features for x in known])
    labels, sizes = np.concatenate([x.labels for x in known]), [len(x.labels) for x in known]
    members = [
        lightgbm.train(TREES | {"seed": seed}, lightgbm.Dataset(features, labels, group=sizes), 100)
        for seed in range(5)
    ]
    raw = (np.mean([member.predict(x.features) for member in members], axis=0) for x in fold[part])
    return [(x - x.mean()) / (x.std() or 1.0) for x in raw]


def taught(fold: Fold) -> Fold:
    """Replaces the labels to train on by the teacher's scores, from 0 on: others are padding."""
    pairs = zip(fold["train"], teacher_scores(fold, "train"), strict=True)
    lists = [dataclasses.replace(x, labels=(s - s.min()).astype(np.float32)) for x, s in pairs]
    return fold | {"train": lists}


def student(loss: losses.ListwiseLoss, data: Sequence[Fold]) -> networks.Scores:
    """The scores of the test lists of each fold and seed."""

    def masked(labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return loss(tf.where(labels >= 0.0, labels, np.nan), scores, weights)

    return networks.train(masked, data, within=False)


def ndcgs(data: Sequence[Fold], scores: networks.Scores) -> Array:
    """NDCG@10 of each test list of all folds, the mean over seeds."""
    values: dict[int, list[Array]] = {}
    for (number, _), found in scores.items():
        labels = tf.ragged.constant([x.labels.tolist() for x in data[number]["test"]])
        rows = tf.ragged.constant([np.float32(x).tolist() for x in found])
        of_lists = metrics.NDCG(10).evaluate(labels, rows).values.numpy()
        values.setdefault(number, []).append(of_lists)
    return np.concatenate([np.mean(values[number], axis=0) for number in sorted(values)])


def rows(data: Sequence[Fold]) -> Iterator[tuple[str, Array]]:
    """The NDCG@10 of each test list, by what the student learns from."""
    known = [fold | {"train": with_labels(fold["train"])} for fold in data]
    yield "labels of one list in three", ndcgs(data, student(LABELS(reduction="sum"), known))
    yield "labels of all lists", ndcgs(data, student(LABELS(reduction="sum"), data))
    of_teacher = {(i, 0): teacher_scores(fold, "test") for i, fold in enumerate(data)}
    yield "(the teacher)", ndcgs(data, of_teacher)
    by_teacher = [taught(fold) for fold in data]
    for name, loss in LOSSES.items():
        yield f"the teacher, {name}", ndcgs(data, student(loss, by_teacher))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="Folder of a LETOR set.")
    base = None
    print("| the student learns from | NDCG@10 | - the first row (95 %) |\n|---|---|---|")
    for name, values in rows(folds(parser.parse_args().data)):
        base = values if base is None else base
        low, high = interval(values - base)
        gap = "" if base is values else f"{(values - base).mean():+.4f} ({low:+.4f} to {high:+.4f})"
        print(f"| {name} | {values.mean():.4f} | {gap} |", flush=True)


if __name__ == "__main__":
    main()
