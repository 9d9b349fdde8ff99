"""Errors and ranking at high scores, of selective losses, square loss and re-weighting.

    python -m benchmarks.quality.selective_region --table region.md

What decides among high scores differs from what decides among low ones, low scores are noisy, and
lists hold nuisance items: they look like good ones but for a feature that gives them away, and
score low. A linear model cannot fit all. Re-weighting by `exp(t * label)` listens to high labels,
but not to a low label whose prediction is high. A matching loss of the link `exp(t * score)` hears
both. The last rows are boosted trees, 30 of four leaves, which cannot fit all either.

Each loss has eight seeds and the same twelve settings (learning rate and `t`); the one with the
best NDCG@10 on validation lists counts. Test labels have no noise.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import itertools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from benchmarks.quality.stacked import Networks, Settings
from benchmarks.speed.interleaved import machine
from tfrank_sel import links, losses, metrics, objectives
from tfrank_sel.metrics import Evaluator

SEEDS = range(8)
LEARNING_RATES = (1e-3, 3e-3, 1e-2, 3e-2)
STEEPNESSES = (0.5, 1.0, 1.5)
REGION = 1.0  # scores from here on matter
LIST_SIZE = 50
LISTS = {"train": 200, "validation": 100, "test": 500}
FEATURES = 12
BATCH_SIZE = 20
STEPS = 1500
TREES, LEAVES = 30, 4
TREE_RATES = (0.1, 0.2, 0.3, 0.5)
PARAMETERS = {"num_leaves": LEAVES, "num_threads": 1, "seed": 0, "verbose": -1}
JUDGED = (("validation", True), ("test", False))  # part, and whether its labels have noise

Batch = tuple[np.ndarray, np.ndarray]
Objective = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def lists(split: str, seed: int, *, is_noisy: bool) -> Batch:
    """Features `[lists, items, FEATURES]` and scores `[lists, items]`; a third are nuisances."""
    random = np.random.default_rng([seed, list(LISTS).index(split)])
    high, low = np.random.default_rng(0).normal(size=(2, FEATURES - 1)) / 2.0
    features = random.normal(size=(LISTS[split], LIST_SIZE, FEATURES)).astype(np.float32)
    is_nuisance = random.random(features.shape[:2]) < 1.0 / 3.0
    features[..., -1] = is_nuisance
    core = features[..., :-1]
    core[is_nuisance & (core @ high < 0.0)] *= -1.0  # they look like good ones
    scores = np.where(core @ high > 0.0, core @ high, np.minimum(core @ low, 0.0))
    scores = np.where(is_nuisance, -2.0, scores)
    if is_noisy:
        scores += np.where(scores > 0.0, 0.2, 1.0) * random.normal(size=scores.shape)
    return features, scores.astype(np.float32)


def of_networks(steepness: float) -> dict[str, Objective]:
    """What is minimised for lists of targets and outputs, `[networks * batch, items]`."""
    square = losses.MatchingLoss(links.Identity(), reduction="sum")
    exponential = links.Exp(scale=steepness)
    found: dict[str, Objective] = {
        "square loss": square,
        "re-weighted square loss": lambda targets, outputs: square(
            targets, outputs, tf.exp(steepness * (targets - REGION))
        ),
        "matching loss of exp": losses.MatchingLoss(exponential, reduction="sum"),
        "composite Softmax of exp": losses.SelectiveSoftmaxLoss(exponential, reduction="sum"),
    }
    return found


def of_trees(steepness: float) -> dict[str, tuple[losses.ListwiseLoss | str, float]]:
    """The objective of LightGBM, and the steepness of its weights."""
    matching = losses.MatchingLoss(links.Exp(scale=steepness))
    return {
        "LightGBM, square loss": ("regression", 0.0),
        "LightGBM, re-weighted square loss": ("regression", steepness),
        "LightGBM, matching loss of exp": (matching, 0.0),
    }


def measured(scores: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Root mean square error in the region, NDCG@10, precision@10: `[3, models]`."""
    evaluate = Evaluator([metrics.NDCG(10), metrics.Precision(10)])
    found = []
    for observed, predicted in zip(scores, outputs, strict=True):
        in_region = observed >= REGION
        labels = np.where(in_region, observed, 0.0)
        values = evaluate(tf.constant(labels), tf.constant(predicted)).values()
        error = np.sqrt(np.mean((predicted - observed)[in_region] ** 2))
        found.append([error, *(np.mean(value.values) for value in values)])
    return np.transpose(found)


def experiment(name: str, steepness: float) -> list[np.ndarray]:
    """Validation and test measures, each `[3, seeds, learning rates]`."""
    if name not in of_networks(steepness):
        return trees(name, steepness)
    objective = of_networks(steepness)[name]

    def of_batches(targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        flat = (tf.reshape(x, [-1, LIST_SIZE]) for x in (targets, outputs))
        return objective(*flat) / BATCH_SIZE

    runs = list(itertools.product(SEEDS, LEARNING_RATES))
    networks = Networks((FEATURES, 1), [Settings(s, r) for s, r in runs], of_batches)

    def split(part: str, *, is_noisy: bool) -> Batch:
        of_seed = {seed: lists(part, seed, is_noisy=is_noisy) for seed in SEEDS}
        features, scores = zip(*(of_seed[seed] for seed, _ in runs), strict=True)
        return np.stack(features), np.stack(scores)

    features, scores = split("train", is_noisy=True)
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        batch = random.integers(LISTS["train"], size=BATCH_SIZE)
        networks.step(features[:, batch], scores[:, batch])
    found = []
    for part, is_noisy in JUDGED:
        features, scores = split(part, is_noisy=is_noisy)
        values = measured(scores, networks.predict(features)[..., 0].numpy())
        found.append(values.reshape(3, len(SEEDS), -1))
    return found


def trees(name: str, steepness: float) -> list[np.ndarray]:
    """The same of boosted trees."""
    import lightgbm

    loss, reweighted = of_trees(steepness)[name]
    objective = loss if isinstance(loss, str) else objectives.lightgbm(loss)
    found: list[list[np.ndarray]] = [[], []]
    for seed in SEEDS:
        features, scores = lists("train", seed, is_noisy=True)
        labels = scores.ravel()
        data = lightgbm.Dataset(
            features.reshape(-1, FEATURES),
            labels,
            weight=np.exp(reweighted * (labels - REGION)),
            group=np.full(len(scores), LIST_SIZE),
            free_raw_data=False,
        )
        models = [
            lightgbm.train(
                {"objective": objective, "learning_rate": rate, **PARAMETERS}, data, TREES
            )
            for rate in TREE_RATES
        ]
        for values, (part, is_noisy) in zip(found, JUDGED, strict=True):
            features, scores = lists(part, seed, is_noisy=is_noisy)
            rows = features.reshape(-1, FEATURES)
            outputs = [model.predict(rows).reshape(scores.shape) for model in models]
            values.append(measured(np.stack([scores] * len(models)), np.stack(outputs)))
    return [np.stack(values, axis=1) for values in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", type=pathlib.Path, help="Markdown file to write")
    options = parser.parse_args()
    lines = [f"{machine()}; mean and deviation of eight seeds", ""]
    lines += ["| loss | error in the region | NDCG@10 | precision@10 |", "|---|---|---|---|"]
    for name in (*of_networks(1.0), *of_trees(1.0)):
        steepnesses = STEEPNESSES if "square loss" not in name.split(", ") else STEEPNESSES[:1]
        found = [experiment(name, t) for t in steepnesses]
        validation, test = (np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
        best = validation[1].argmax(axis=-1)[np.newaxis, :, np.newaxis]
        values = np.take_along_axis(test, best, axis=-1)[..., 0]
        parts = zip(values.mean(axis=1), values.std(axis=1, ddof=1), strict=True)
        lines.append(f"| {name} |" + "".join(f" {m:.3f} ± {s:.3f} |" for m, s in parts))
        print(lines[-1], file=sys.stderr)
    print("\n".join(lines))
    if options.table:
        options.table.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
