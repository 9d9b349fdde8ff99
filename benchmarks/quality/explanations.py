"""Whether the feature that an explanation names is what puts an item first.

    python -m benchmarks.quality.explanations --data MQ2008 [--folds 5]

`--data` is a folder of a LETOR set: see `benchmarks.quality`. For each of the first folds,
`Ranker()` learns from the training and validation lists. In each test list, the first item is
explained against the second one, and against the one in the middle. Then a single feature of the
first item gets the value of the other item: that of the largest contribution, that of the largest
permutation importance, or one drawn at random among those that differ. A pair is flipped if the
first item is then below the other. Intervals of 95 % are by bootstrap over lists.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks.quality.data import Lists, folds
from tfrank_sel import Ranker, models

NAMED = ("largest contribution", "largest importance", "at random")


def flips(ranker: Ranker, lists: Lists, middle: bool, seed: int) -> np.ndarray:
    """Whether each way to name a feature flips the pair of each list, `[lists, ways]`; and the
    error of the sum of the contributions, in the last column."""

    def inputs(features: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"features": features, "mask": tf.ones(tf.shape(features)[:2], tf.bool)}

    batch, index = tf.TensorSpec([None, None, ranker.n_features_in_]), tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[batch], autograph=False)
    def scores_of(features: tf.Tensor) -> tf.Tensor:
        return ranker.model_(inputs(features), training=False)

    @tf.function(input_signature=[batch, index, index], autograph=False)
    def explained(features: tf.Tensor, item: tf.Tensor, against: tf.Tensor) -> tf.Tensor:
        return models.explain(ranker.model_, inputs(features), item, against).values

    most = int(np.argmax(ranker.feature_importances_))
    rng, rows = np.random.default_rng(seed), []
    for one in lists:
        if len(one.labels) < 3:
            continue
        x = one.features.astype(np.float32)
        scores = scores_of(x[None]).numpy()[0]
        order = np.argsort(-scores, kind="stable")
        first, other = order[0], order[len(order) // 2 if middle else 1]
        differ = np.flatnonzero(x[first] != x[other])
        if not len(differ):
            continue
        parts = explained(x[None], np.int32(first), np.int32(other)).numpy()[0]
        changed = np.repeat(x[None], len(NAMED), axis=0)
        for row, feature in zip(changed, (np.argmax(parts), most, rng.choice(differ)), strict=True):
            row[first, feature] = row[other, feature]
        found = scores_of(changed).numpy()
        gaps = found[:, first] - found[:, other]
        rows.append([*(gaps < 0.0), abs(parts.sum() - scores[first] + scores[other])])
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--folds", type=int, default=5, help="number of folds")
    options = parser.parse_args()
    data = folds(options.data)[: options.folds]
    found: dict[bool, list[np.ndarray]] = {False: [], True: []}
    for number, fold in enumerate(data):
        known = [*fold["train"], *fold["vali"]]
        ranker = Ranker(random_state=0)
        ranker.fit(
            np.concatenate([x.features for x in known]),
            np.concatenate([x.labels for x in known]),
            group=[len(x.labels) for x in known],
        )
        for middle, parts in found.items():
            parts.append(flips(ranker, fold["test"], middle, number))
    print("| against | feature | flipped pairs | 95 % interval | lists |")
    print("|---|---|---|---|---|")
    for middle, parts in found.items():
        rows = np.concatenate(parts)
        drawn = np.random.default_rng(0).integers(len(rows), size=(10_000, len(rows)))
        for way, name in enumerate(NAMED):
            low, high = np.quantile(rows[drawn, way].mean(axis=1), [0.025, 0.975])
            against = "the middle item" if middle else "the second item"
            share = rows[:, way].mean()
            print(f"| {against} | {name} | {share:.3f} | {low:.3f} to {high:.3f} | {len(rows)} |")
    error = max(rows[:, -1].max() for parts in found.values() for rows in parts)
    print(f"\nLargest error of the sum of the contributions: {error:.1e}.")


if __name__ == "__main__":
    main()
