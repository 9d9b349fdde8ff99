"""Calibration and order of networks by loss, before and after recalibration.

    python -m benchmarks.quality.calibration --data MQ2008

`--data` is the folder of a LETOR set with five folds; an item is relevant if its label is positive.
Networks and the choice of their settings are those of `benchmarks.quality`. Recalibration is fitted
on the validation lists. NDCG@10 is the mean over the test lists of all folds and three seeds; the
other figures are of the items of these lists together, the mean over seeds.
"""

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.quality import networks
from benchmarks.quality.data import Lists, folds
from benchmarks.quality.selection import SEEDS
from tfrank_sel import losses, metrics, models

Fold = dict[str, Lists]
Scored = list[tuple[np.ndarray, np.ndarray]]  # predictions and labels of the items of each list
Row = tuple[str, str | None, list[float]]  # loss, method and figures

LOSSES: dict[str, losses.ListwiseLoss] = {
    "`SoftmaxLoss()`": losses.SoftmaxLoss(reduction="sum"),
    "`CalibratedSoftmaxLoss(1.0)`": losses.CalibratedSoftmaxLoss(1.0, reduction="sum"),
    "`SigmoidCrossEntropyLoss()`": losses.SigmoidCrossEntropyLoss(reduction="sum"),
    "`RCRLoss(alpha=0.5)`": losses.RCRLoss(0.5, reduction="sum"),
    "`JRCLoss(alpha=0.5)`": losses.JRCLoss(0.5, reduction="sum"),
}
SUM = "`SigmoidCrossEntropyLoss()` + `SoftmaxLoss()`, half each"
METHODS = (None, "platt", "isotonic")


def binary(fold: Fold) -> Fold:
    """The fold with labels 0 and 1."""
    return {
        part: [dataclasses.replace(x, labels=(x.labels > 0.0).astype(np.float32)) for x in lists]
        for part, lists in fold.items()
    }


def trained(loss: losses.ListwiseLoss | None, data: Sequence[Fold]) -> networks.Scores:
    """The scores of the validation and then the test lists; of the sum of two losses if `None`."""
    both = [fold | {"test": [*fold["vali"], *fold["test"]]} for fold in data]
    if loss is not None:
        vectors = isinstance(loss, losses.JRCLoss)
        return networks.train(loss, both, within=False, outputs=1 + vectors)
    point, order = LOSSES["`SigmoidCrossEntropyLoss()`"], LOSSES["`SoftmaxLoss()`"]

    def half_each(labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return 0.5 * (point(labels, scores, weights) + order(labels, scores, weights))

    return networks.train(half_each, both, within=False)


def predictions(data: Sequence[Fold], scores: networks.Scores, method: str | None) -> list[Scored]:
    """The predictions and labels of each test list of all folds, by seed."""
    found: list[Scored] = [[] for _ in SEEDS]
    identity = keras.Sequential([keras.layers.Flatten()])
    for (number, seed), rows in sorted(scores.items()):
        vali, test = data[number]["vali"], data[number]["test"]
        held_out, rest = rows[: len(vali)], rows[len(vali) :]
        predict = tf.sigmoid
        if method:
            items = np.concatenate(held_out)[np.newaxis, :, np.newaxis]
            labels = np.concatenate([x.labels for x in vali])[np.newaxis]
            predict = models.recalibrate(identity, [(items, labels)], method).expected_labels
        pairs = zip(rest, test, strict=True)
        found[seed] += [(predict(tf.constant(s, tf.float32)).numpy(), x.labels) for s, x in pairs]
    return found


def measured(scored: Scored) -> list[float]:
    """NDCG@10, ECE, PCOC and Brier score."""
    labels = tf.ragged.constant([y.tolist() for _, y in scored])
    values = tf.ragged.constant([p.tolist() for p, _ in scored])
    calibration = metrics.ECE(from_logits=False), metrics.PCOC(False), metrics.BrierScore(False)
    return [float(metric(labels, values)) for metric in (metrics.NDCG(10), *calibration)]


def rows(data: Sequence[Fold]) -> Iterator[Row]:
    """The figures of each loss and method, the mean over seeds."""
    for name, loss in [*LOSSES.items(), (SUM, None)]:
        scores = trained(loss, data)
        for method in METHODS:
            by_seed = [measured(x) for x in predictions(data, scores, method)]
            yield name, method, np.mean(by_seed, axis=0).tolist()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="Folder of a LETOR set.")
    arguments = parser.parse_args()
    print(f"| loss | recalibration | NDCG@10 | ECE | PCOC | Brier score |\n{'|---' * 6}|")
    data = [binary(fold) for fold in folds(arguments.data)]
    for name, method, (ndcg, ece, pcoc, brier) in rows(data):
        line = f"{ndcg:.4f} | {ece:.4f} | {pcoc:.3f} | {brier:.4f}"
        print(f"| {name} | {method or 'none'} | {line} |", flush=True)


if __name__ == "__main__":
    main()
