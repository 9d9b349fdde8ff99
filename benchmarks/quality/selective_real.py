"""Selective losses on real sets of scores, beside square loss, re-weighting and clipped labels.

    python -m benchmarks.quality.selective_real --data DATA --results RESULTS

The sets are in `benchmarks.quality.scored`: delays of flights, bicycles hired, prices, ratings, and
students of two teachers. Scores are standardised, and the region of those that matter begins at 0.
Models are linear (flights) or have one small hidden layer, so that none fits all scores.

Each loss has eight settings: a learning rate, and what the loss itself has: four pairs of numbers
at two rates, or eight rates. The losses of links see `a * (score - b)`. Of the groups of lists, two
in five are the test. A seed divides the others into three parts to train on and one to validate on,
and is that of the first weights and of the batches. A setting is chosen on the validation lists of
all seeds, twice: by the excess error, and by NDCG@10.

* Excess error: root mean square of the difference between `max(prediction, 0)` and `max(score, 0)`.
* Error where the score is in the region, and of as many items with the highest predictions.
* NDCG@10 with the gains `max(score, 0)`, the share of the ten highest scores among the first ten
  items, and the NDCG@10 of a student by the true labels. Lists without a gain do not count.

A loss that does not match scores has no errors. The first two tables have the test's excess error
and NDCG@10 for all sets. They mark a row that differs from the best of the simple rows that match
scores (above the first matching loss, chosen on the validation lists; in brackets): 95 % by a
paired bootstrap over groups and seeds, after Holm's correction for the rows of a set. The loss of
`losses.design` has eight rates. `--results` keeps what was measured.
"""

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Mapping

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks.quality.judging import RESAMPLES
from benchmarks.quality.score_losses import ROWS, SIMPLE, Row, of
from benchmarks.quality.scored import SETS, Array, Scored
from benchmarks.quality.stacked import Networks, Settings
from tfrank_sel import losses
from tfrank_sel.metrics import significance

SEEDS = range(3)
BATCH_SIZE = 16
STEPS = 600
K = 10
CRITERIA = ("excess", "ndcg")
ERRORS = ("excess", "label", "acted")
HEADS = {
    "excess": "excess error",
    "label": "score in the region",
    "acted": "highest predictions",
    "ndcg": "NDCG@10",
    "shared": "of the ten highest",
    "truth": "NDCG@10 by true labels",
}

Gap = tuple[float, float, float]
Found = Mapping[str, Mapping[str, Array]]


def divided(groups: Array, seed: int) -> dict[str, Array]:
    """The lists of each part: two groups in five are the test of all seeds."""
    numbers = np.random.default_rng(0).permutation(np.unique(groups))
    first = 2 * len(numbers) // 5
    others = np.random.default_rng(seed).permutation(numbers[first:])
    parts = {
        "test": numbers[:first],
        "validation": others[: len(others) // 4],
        "train": others[len(others) // 4 :],
    }
    return {part: np.flatnonzero(np.isin(groups, found)) for part, found in parts.items()}


def measured(labels: Array, outputs: Array, truth: Array | None) -> dict[str, Array]:
    """Sums and counts `[2, lists]` of each measure, whose ratio over lists is the measure."""
    is_item = ~np.isnan(labels)
    y, z = np.where(is_item, labels, 0.0), np.where(is_item, outputs, -1e6)
    in_region = is_item & (y > 0.0)
    acted = is_item & (z >= np.sort(z[is_item])[-in_region.sum()])
    excess = np.square(np.maximum(z, 0.0) - np.maximum(y, 0.0))

    def over(squares: Array, counted: Array) -> Array:
        return np.stack([np.where(counted, squares, 0.0).sum(axis=1), counted.sum(axis=1)])

    first = np.argsort(-z, axis=1, kind="stable")[:, :K]
    best = np.argsort(-np.where(is_item, y, -1e6), axis=1, kind="stable")[:, :K]
    shared = (first[:, :, np.newaxis] == best[:, np.newaxis, :]).any(axis=1).mean(axis=1)
    found = {
        "excess": over(excess, is_item),
        "label": over(np.square(z - y), in_region),
        "acted": over(np.square(z - y), acted),
        "ndcg": ndcg(np.where(is_item, np.maximum(y, 0.0), 0.0), first),
        "shared": np.stack([shared, np.ones_like(shared)]),
    }
    return found if truth is None else found | {"truth": ndcg(truth, first)}


def ndcg(gain: Array, first: Array) -> Array:
    """NDCG@10 of each list, and whether it counts: whether it has a gain."""
    discounts = 1.0 / np.log2(np.arange(2, K + 2))
    ideal = np.sort(gain, axis=1)[:, ::-1][:, :K] @ discounts
    values = np.take_along_axis(gain, first, axis=1) @ discounts
    return np.stack([values / np.maximum(ideal, 1e-9), ideal > 0.0])


def ratio(name: str, sums: Array) -> Array:
    """A measure by its sums and counts, `[2, ...]`."""
    values = sums[0] / sums[1]
    return np.sqrt(values) if name in ERRORS else values


def outputs_of(data: Scored, networks: Networks) -> Array:
    """The scores of all lists by each network, `[networks, lists, items]`."""
    values: Array = data.features[np.newaxis]
    weights = [x.numpy()[:, np.newaxis] for x in networks.averages]
    for matrix, bias in zip(weights[::2], weights[1::2], strict=True):
        values = values @ matrix + bias
        if matrix is not weights[-2]:
            values = np.maximum(values, 0.0)
    return values[..., 0]


def trained(data: Scored, row: Row) -> dict[str, Array]:
    """What is chosen by each criterion, with its measures of the test's groups.

    Returns:
        `settings`, `[criteria, 3]`; `validation`, `[criteria]`; and each measure, sums and counts
        `[2, criteria, seeds, groups]`.
    """
    settings, parts = row.settings, [divided(data.groups, seed) for seed in SEEDS]
    known = data.scores[np.concatenate([parts[0]["train"], parts[0]["validation"]])]
    loss = row.loss or of(
        losses.design(scores=known, share=data.share, ranking=row.ranking, reduction="sum").loss
    )
    runs = [(seed, *setting) for seed in SEEDS for setting in settings]
    a, b = (tf.reshape(tf.constant([run[i] for run in runs]), [-1, 1, 1]) for i in (2, 3))

    def objective(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        return loss(labels, outputs[..., 0], a, b) / BATCH_SIZE

    widths = (data.features.shape[-1], *data.hidden, 1)
    networks = Networks(widths, [Settings(seed, rate) for seed, rate, _, _ in runs], objective)
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        drawn = [random.choice(x["train"], BATCH_SIZE) for x in parts]
        batch = np.repeat(drawn, len(settings), axis=0)
        networks.step(data.features[batch], data.scores[batch])
    outputs = outputs_of(data, networks).reshape(len(parts), len(settings), *data.scores.shape)

    def judged(part: str, seed: int, setting: int) -> dict[str, Array]:
        lists = parts[seed][part]
        truth = None if data.truth is None else data.truth[lists]
        return measured(data.scores[lists], outputs[seed, setting, lists], truth)

    validation = np.array(
        [
            [
                [ratio(x, found[x].sum(axis=1)) for x in CRITERIA]
                for found in (judged("validation", seed, i) for i in range(len(settings)))
            ]
            for seed in range(len(parts))
        ]
    ).mean(axis=0)
    by_error, by_rank = int(validation[:, 0].argmin()), int(validation[:, 1].argmax())
    chosen = [by_error if row.matches else by_rank, by_rank]
    _, groups = np.unique(data.groups[parts[0]["test"]], return_inverse=True)
    tests = [[judged("test", seed, i) for seed in range(len(parts))] for i in chosen]
    found = {}
    for name in tests[0][0]:
        sums = np.stack([[x[name] for x in of_seeds] for of_seeds in tests])
        of_groups = np.zeros([*sums.shape[:3], groups.max() + 1])
        np.add.at(of_groups, (..., groups), sums)
        found[name] = np.moveaxis(of_groups, 2, 0)
    picked = np.array([settings[i] for i in chosen])
    return found | {"settings": picked, "validation": validation[chosen, [0, 1]]}


def compared(found: Found, name: str, base: str | None = None) -> dict[str, Gap]:
    """The difference of each row to a base, with its 95 % interval and p-value.

    The base is the best simple row that matches scores, by the validation lists, if none is given.
    """
    criterion, sign = (0, 1.0) if name in ERRORS else (1, -1.0)
    rows = [x for x in found if ROWS[x].matches or name not in ERRORS]
    base = base or min(
        (x for x in rows if x in SIMPLE and ROWS[x].matches),
        key=lambda x: sign * found[x]["validation"][criterion],
    )
    random = np.random.default_rng(0)
    seeds, groups = found[base][name].shape[2:]
    drawn = [
        random.multinomial(count, np.full(count, 1.0 / count), RESAMPLES) / count
        for count in (seeds, groups)
    ]

    def resampled(row: str) -> Array:
        sums = found[row][name][:, criterion]
        of_seeds = np.einsum("rg,csg->crs", drawn[1], sums, optimize=True)
        return ratio(name, np.sum(drawn[0] * of_seeds, axis=2))

    of_base, gaps = resampled(base), {}
    for row in rows:
        if row != base:
            values = resampled(row) - of_base
            low, high = np.percentile(values, [2.5, 97.5])
            beyond = min(np.sum(values <= 0.0), np.sum(values >= 0.0))
            gaps[row] = (low, high, min(1.0, 2.0 * (beyond + 1) / (RESAMPLES + 1)))
    p_values = significance.holm(np.array([p for _, _, p in gaps.values()]))
    return {
        row: (low, high, float(p))
        for (row, (low, high, _)), p in zip(gaps.items(), p_values, strict=True)
    }


def value(found: Mapping[str, Array], name: str) -> float:
    """A measure of the setting that its criterion chose, the mean over seeds."""
    sums = found[name][:, int(name not in ERRORS)]
    return float(ratio(name, sums.sum(axis=-1)).mean())


def cells(found: Found, name: str, base: str | None = None) -> dict[str, str]:
    """A measure of each row, with + or - where it is better or worse than the base."""
    gaps, texts = compared(found, name, base), {}
    for row in (x for x in found if ROWS[x].matches or name not in ERRORS):
        low, high, p = gaps.get(row, (0.0, 0.0, 1.0))
        is_better = (low + high < 0.0) == (name in ERRORS)
        mark = "" if p > 0.05 else " +" if is_better else " -"
        text = f"{value(found[row], name):.4f}{mark}"
        texts[row] = text if row in gaps else f"({text})"
    return texts


def summary(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A table of columns by row; a row that has none is left out."""
    lines = [f"| | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    for row in ROWS:
        texts = [column.get(row, "") for column in columns.values()]
        lines += [f"| {row} | {' | '.join(texts)} |"] * any(texts)
    return lines


def details(found: Found) -> list[str]:
    """All measures of a set: errors of the setting by excess error, the others by NDCG."""
    columns: dict[str, dict[str, str]] = {}
    for name in (x for x in HEADS if x in found["square"]):
        columns[HEADS[name]] = cells(found, name)
        if name in CRITERIA:
            gaps = compared(found, name)
            columns[f"- base, {HEADS[name]} (95 %)"] = {
                row: f"{low:+.4f} to {high:+.4f}, p {p:.3f}" for row, (low, high, p) in gaps.items()
            }
    columns["rate, a and b by each criterion"] = {
        row: "; ".join(" ".join(f"{x:g}" for x in one) for one in values["settings"])
        for row, values in found.items()
    }
    return summary(columns)


def main() -> None:
    """Trains what RESULTS lacks, and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="what was measured")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, Array]]] = {}
    for name in options.sets:
        data, folder = None, options.results / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, (row, loss) in enumerate(ROWS.items(), start=1):
            path = folder / f"{row.strip('`')}.npz"
            if not path.exists():
                data = SETS[name](options.data) if data is None else data
                np.savez(path, **trained(data, loss))
                print(
                    f"{name}: {number} of {len(ROWS)}, {time.process_time():.0f} s", file=sys.stderr
                )
            found.setdefault(name, {})[row] = dict(np.load(path))
    for name in CRITERIA:
        print("\n".join(summary({x: cells(rows, name) for x, rows in found.items()})), end="\n\n")
    students = {x: rows for x, rows in found.items() if "truth" in rows["square"]}
    columns = {
        f"{x}: {HEADS[name]}": cells(rows, name, "softmax (KL)")
        for x, rows in students.items()
        for name in ("shared", "truth")
    }
    print("\n".join(summary(columns)))
    for name, rows in found.items():
        print("\n".join(["", f"{name}:", "", *details(rows)]))


if __name__ == "__main__":
    main()
