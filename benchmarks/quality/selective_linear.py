"""Linear models of scores whose highest tenth matters: matching losses beside simple ones.

    python -m benchmarks.quality.selective_linear --data DATA [--sets NAME ...]

The sets, of `benchmarks.quality.scored`, were chosen by the scale of their scores before a model
was fitted: raw numbers with a long tail (concentrations, prices, durations, claims), for which one
line is too simple, and scores that are even or logarithms. Models are lines of all features, the
exact minimum of each loss, which has up to four settings, as in `benchmarks.quality.score_losses`.
Of the groups of rows, two in five are the test; five seeds divide the others into three parts to
train on and one to validate on, whose excess error chooses a setting for all seeds. The loss of
`losses.design(scores=, predictions=features)` reads what is not the test, and has no setting.

The tables have the test's excess error, the root mean square of `max(prediction, c)` less
`max(score, c)`, in standard deviations of the score. They mark a row that differs from the best of
the simple rows by the validation rows, in brackets: 95 % by a paired bootstrap over groups and
seeds, after Holm's correction for all rows of all sets. The last table has the choice of `design`
alone: where its loss begins, its difference to that simple row, p corrected for the sets, and its
error as a multiple of the least of all simple rows on the test, which nobody knows beforehand.
"""

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.quality.judging import RESAMPLES
from benchmarks.quality.scored import EVEN, SKEWED, Array, Scored
from benchmarks.quality.selective_real import divided
from tfrank_sel import losses
from tfrank_sel.metrics import significance

SEEDS = range(5)
STEPS = 500
RIDGE = 1e-3
SETTINGS = (0.25, 0.5, 1.0, 2.0)
SHIFTS = (0.0, -0.25, -0.5, -1.0)
DESIGNED = "`design(scores=, predictions=)`"
HIGHEST = 2.0

Weigh = Callable[[Array, Array, float], Array]  # of a score, a prediction and the setting


class Row(NamedTuple):
    """A loss of lines: squares that are weighted, or of scores and predictions that are clipped."""

    settings: tuple[float, ...] = (0.0,)
    weigh: Weigh | None = None
    clips_labels: bool = False
    clips_predictions: bool = False
    upper: float = np.inf


def _in_region(y: Array, z: Array, a: float) -> Array:
    return np.where(y > 0.0, 1.0 + a, 1.0)


SIMPLE = {
    "square": Row(),
    "Huber": Row(SETTINGS, lambda y, z, a: np.minimum(1.0, a / np.maximum(np.abs(z - y), 1e-9))),
    "square, clipped labels": Row(SHIFTS, clips_labels=True),
    "square, weights `exp(a * y)`": Row(SETTINGS, lambda y, z, a: np.exp(a * np.minimum(y, 8.0))),
    "square, weights `1 + a` in the region": Row((1.0, 3.0, 9.0, 27.0), _in_region),
    "expectile": Row((0.6, 0.7, 0.8, 0.9), lambda y, z, a: np.where(z < y, a, 1.0 - a)),
    "quantile": Row(
        (0.6, 0.7, 0.8, 0.9),
        lambda y, z, a: np.where(z < y, a, 1.0 - a) / np.maximum(np.abs(z - y), 1e-2),
    ),
}
MATCHING = {
    "`MatchingLoss(ReLU)`": Row(SHIFTS, clips_labels=True, clips_predictions=True),
    "`MatchingLoss(SmeLU)`": Row(SHIFTS, clips_labels=True, clips_predictions=True, upper=HIGHEST),
}


def fit(row: Row, setting: float, x: Array, y: Array) -> Array:
    """The weights of a line: iterated weighted squares, or accelerated steps of majorisation."""
    lower = setting if row.clips_labels else -np.inf
    targets = np.clip(y, lower, row.upper)
    ridge = RIDGE * len(y) * np.eye(x.shape[1])
    inverse = np.linalg.inv(x.T @ x + ridge)
    weights = before = inverse @ (x.T @ targets)
    if row.weigh is not None:
        for _ in range(20):
            w = row.weigh(y, x @ weights, setting)
            scaled = x * w[:, np.newaxis]
            before, weights = (
                weights,
                np.linalg.solve(scaled.T @ x + ridge * w.mean(), scaled.T @ y),
            )
            if np.abs(weights - before).max() < 1e-4:
                break
    elif row.clips_predictions:
        ahead, momentum = weights, 1.0
        for _ in range(STEPS):
            gradient = x.T @ (np.clip(x @ ahead, lower, row.upper) - targets) + ridge @ ahead
            before, weights = weights, ahead - inverse @ gradient
            faster = 0.5 + np.sqrt(0.25 + momentum**2)
            ahead, momentum = weights + (momentum - 1.0) / faster * (weights - before), faster
            if np.abs(weights - before).max() < 1e-6:
                break
    return weights


def chosen(data: Scored, features: Array, known: Array) -> Row:
    """The loss of `losses.design`."""
    loss = losses.design(
        scores=data.scores[known], share=data.share, predictions=features[known], at=0.0
    ).loss
    if isinstance(loss, losses.MeanSquaredLoss):
        return Row((loss.lower,), clips_labels=loss.lower > -np.inf)
    link = loss.link
    if type(link).__name__ == "ReLU":
        return Row((link.shift,), None, True, True)
    half = 1.0 / link.scale
    return Row((link.shift - half,), None, True, True, link.shift + half)


def measure(data: Scored) -> dict[str, tuple[Array, float, Array]]:
    """For each loss: the sums and counts of the test's groups, `[2, seeds, groups]`, the error of
    the validation rows, and the setting."""
    constant = np.ones([*data.scores.shape, 1])
    features = np.concatenate([data.features.astype(float), constant], axis=2)
    parts = [divided(data.groups, seed) for seed in SEEDS]
    known = np.concatenate([parts[0]["train"], parts[0]["validation"]])
    rows = SIMPLE | MATCHING | {DESIGNED: chosen(data, data.features, known)}
    is_item = ~np.isnan(data.scores)

    def of(lists: Array) -> tuple[Array, Array]:
        return features[lists][is_item[lists]], data.scores[lists][is_item[lists]].astype(float)

    def squares(weights: Array, lists: Array) -> Array:
        x, y = of(lists)
        return np.square(np.maximum(x @ weights, 0.0) - np.maximum(y, 0.0))

    counts = is_item[parts[0]["test"]].sum(axis=1)
    _, groups = np.unique(data.groups[parts[0]["test"]], return_inverse=True)
    of_items = np.repeat(groups, counts)
    found = {}
    for name, row in rows.items():
        models = [[fit(row, x, *of(part["train"])) for x in row.settings] for part in parts]
        errors = [
            [np.sqrt(squares(x, part["validation"]).mean()) for x in of_seed]
            for of_seed, part in zip(models, parts, strict=True)
        ]
        validation = np.mean(errors, axis=0)
        best = int(validation.argmin())
        sums = [
            np.bincount(of_items, squares(of_seed[best], part["test"]), groups.max() + 1)
            for of_seed, part in zip(models, parts, strict=True)
        ]
        of_groups = np.broadcast_to(
            np.bincount(of_items, minlength=groups.max() + 1), np.shape(sums)
        )
        found[name] = (np.array([sums, of_groups]), validation[best], np.array(row.settings[best]))
    return found


def root(sums: Array) -> Array:
    """The excess error by sums and counts, `[2, ...]`."""
    values: Array = np.sqrt(sums[0] / sums[1])
    return values


def gaps(found: Mapping[str, tuple[Array, float, Array]]) -> tuple[str, dict[str, Array]]:
    """The best simple row by validation, and the resampled difference of each other row to it."""
    base = min(SIMPLE, key=lambda x: found[x][1])
    random = np.random.default_rng(0)
    seeds, groups = found[base][0].shape[1:]
    drawn = [random.multinomial(n, np.full(n, 1.0 / n), RESAMPLES) for n in (seeds, groups)]

    def resampled(row: str) -> Array:
        return root(np.einsum("rs,rg,csg->cr", *drawn, found[row][0], optimize=True))

    of_base = resampled(base)
    return base, {row: resampled(row) - of_base for row in found if row != base}


def main() -> None:
    """Fits all models, and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the data sets")
    names = [*SKEWED, *EVEN]
    parser.add_argument("--sets", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    found = {}
    for number, name in enumerate(options.sets, start=1):
        found[name] = measure((SKEWED | EVEN)[name](options.data))
        done = f"{number} of {len(options.sets)}, {time.process_time():.0f} s"
        print(f"{name}: {done}", file=sys.stderr)
    differences = {name: gaps(rows) for name, rows in found.items()}
    tests = [(name, row) for name, (_, others) in differences.items() for row in others]
    p_values = []
    for name, row in tests:
        values = differences[name][1][row]
        beyond = min(np.sum(values <= 0.0), np.sum(values >= 0.0))
        p_values.append(min(1.0, 2.0 * (beyond + 1) / (RESAMPLES + 1)))
    corrected = dict(zip(tests, significance.holm(np.array(p_values)), strict=True))
    rows = [*SIMPLE, *MATCHING, DESIGNED]
    for sets in ([x for x in SKEWED if x in found], [x for x in EVEN if x in found]):
        if not sets:
            continue
        print(f"| | {' | '.join(sets)} |\n|{'---|' * (len(sets) + 1)}")
        for row in rows:
            cells = []
            for name in sets:
                base, others = differences[name]
                text = f"{root(found[name][row][0].sum(axis=2)).mean():.4f}"
                mark = ""
                if row != base and corrected[name, row] <= 0.05:
                    mark = " +" if np.median(others[row]) < 0.0 else " -"
                cells.append(f"({text})" if row == base else text + mark)
            print(f"| {row} | {' | '.join(cells)} |")
        print()
    of_design = [p for (_, row), p in zip(tests, p_values, strict=True) if row == DESIGNED]
    print("| set | region from | - best simple, 95 % | p | of the least |\n|---|---|---|---|---|")
    for name, p in zip(options.sets, significance.holm(np.array(of_design)), strict=True):
        low, high = np.percentile(differences[name][1][DESIGNED], [2.5, 97.5])
        setting = float(found[name][DESIGNED][2])
        ratio = root(found[name][DESIGNED][0].sum(axis=2)).mean() / min(
            root(found[name][x][0].sum(axis=2)).mean() for x in SIMPLE
        )
        print(
            f"| {name} | from {setting:.2f} | {low:+.4f} to {high:+.4f} | {p:.3f} | {ratio:.3f} |"
        )


if __name__ == "__main__":
    main()
