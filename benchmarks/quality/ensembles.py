"""Validation quality of single losses and their ensembles, by which the default was chosen.

    python -m benchmarks.quality.ensembles MQ2008/Fold1 MQ2008/Fold2 [--synthetic 0 1] [--seeds 0 1]

Each folder holds `train.txt`, `vali.txt` and `test.txt` in LETOR format, which may be compressed
(`.gz`). `--synthetic` adds the set that a run without files makes from each of these seeds. On each
set, and from each seed of training, every loss trains the network of the pipelines until the
validation NDCG@10 gets no better. An ensemble adds up the scores of its members, as
`models.Ensemble` does. Test lists have no part in it.

The command prints a Markdown table: mean validation NDCG@10 over sets and seeds, and its difference
from the default's, each with its standard error.
"""

import argparse
import itertools
import pathlib
from collections.abc import Sequence

import numpy as np

from benchmarks.quality import default
from benchmarks.quality.data import PARTS, Lists, read
from benchmarks.quality.judging import ensemble
from benchmarks.quality.selection import ndcg
from tfrank_sel.data import synthetic
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.ingestion.step import SYNTHETIC_LISTS

LOSSES = Candidate().losses
CHOICES = [
    chosen
    for size in range(1, len(LOSSES) + 1)
    for chosen in itertools.combinations(range(len(LOSSES)), size)
]


def made(seed: int) -> dict[str, Lists]:
    """Makes the synthetic set of a seed."""
    lists = synthetic.lists(sum(SYNTHETIC_LISTS.values()), seed=seed)
    counts = zip(PARTS, SYNTHETIC_LISTS.values(), strict=True)
    return {part: list(itertools.islice(lists, count)) for part, count in counts}


def measured(fold: dict[str, Lists], seeds: Sequence[int]) -> np.ndarray:
    """Returns validation NDCG@10 `[seeds, choices]` of each of `CHOICES`."""
    held_out, found = fold["vali"], []
    with default.trainer(fold) as train:
        for seed in seeds:
            members = train(Candidate(LOSSES), Settings(seed=seed)).members
            scores = [{(0, seed): default.scores(model, held_out)} for model in members]
            together = (ensemble([scores[i] for i in chosen]) for chosen in CHOICES)
            found.append(ndcg(held_out, [x[0, 0] for x in together]))
    return np.array(found)


def table(found: np.ndarray) -> str:
    """Returns the table of NDCG@10 `[trainings, choices]`; the last choice is the default."""
    lines = ["| losses | validation NDCG@10 | minus the default's |", "|---|---|---|"]
    for chosen, values in zip(CHOICES, found.T, strict=True):
        names = ", ".join(type(LOSSES[i]).__name__ for i in chosen)
        lines.append(f"| {names} | {_mean(values)} | {_mean(values - found[:, -1], '+')} |")
    return "\n".join(lines)


def _mean(values: np.ndarray, sign: str = "") -> str:
    """The mean, and its standard error if there are several."""
    shown = f"{values.mean():{sign}.4f}"
    if len(values) == 1:
        return shown
    return f"{shown} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=pathlib.Path, nargs="*", help="folds of LETOR sets")
    parser.add_argument("--synthetic", type=int, nargs="*", default=[], help="seeds of sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of training")
    options = parser.parse_args(given)
    if not options.folders and not options.synthetic:
        parser.error("expected a folder or --synthetic. Received: neither")
    folds = itertools.chain(
        ({part: read(folder, part) for part in PARTS} for folder in options.folders),
        map(made, options.synthetic),
    )
    found = [measured(fold, options.seeds) for fold in folds]
    print(f"sets: {len(found)}, seeds: {len(options.seeds)}\n\n{table(np.concatenate(found))}")


if __name__ == "__main__":
    main()
