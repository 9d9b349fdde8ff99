"""Selection of settings on validation lists only, by the same rule for every row."""

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from benchmarks.quality.data import Lists
from tfrank_sel import metrics

SEEDS = (0, 1, 2)
# stages on whose mean one is judged: a single one is best by luck
SMOOTHED = 5

# of the test lists, by fold and seed
Scores = dict[tuple[int, int], list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training: a fold, a seed and a setting, looked at after each stage.

    Args:
        fold: Number of the fold.
        seed: The seed.
        setting: What is to be chosen, beside the stage.
        validation: Mean NDCG@10 of the validation lists after each stage.
        scores: Scores of the test lists after each stage.
    """

    fold: int
    seed: int
    setting: Hashable
    validation: Sequence[float]
    scores: Sequence[list[np.ndarray]]


def chosen(trials: Sequence[Trial]) -> Scores:
    """Returns the scores of the best setting and stage of each fold.

    Best is the highest validation NDCG@10, the mean over the seeds and over five stages in a row.
    """
    found: Scores = {}
    ordered = sorted(trials, key=lambda trial: trial.fold)
    for _, of_fold in itertools.groupby(ordered, key=lambda trial: trial.fold):
        by_setting: dict[Hashable, list[Trial]] = {}
        for trial in of_fold:
            by_setting.setdefault(trial.setting, []).append(trial)
        curves = {key: _smoothed(group) for key, group in by_setting.items()}
        setting = max(curves, key=lambda key: curves[key].max())
        stage = int(curves[setting].argmax())
        for trial in by_setting[setting]:
            found[trial.fold, trial.seed] = trial.scores[stage]
    return found


def _smoothed(trials: Sequence[Trial]) -> np.ndarray:
    mean = np.mean([trial.validation for trial in trials], axis=0)
    window = np.ones(SMOOTHED)
    return np.convolve(mean, window, "same") / np.convolve(np.ones_like(mean), window, "same")


def ndcg(lists: Lists, stages: Sequence[Sequence[np.ndarray]]) -> list[float]:
    """Returns the mean NDCG@10 of lists by their scores after each stage."""
    longest = max(len(x.labels) for x in lists)

    def padded(rows: Iterable[np.ndarray]) -> np.ndarray:
        return np.stack([np.pad(x, (0, longest - len(x)), constant_values=-1.0) for x in rows])

    labels = np.tile(padded(x.labels for x in lists), (len(stages), 1))
    scores = padded(scores for of_stage in stages for scores in of_stage)
    values = metrics.NDCG(10).evaluate(labels, scores).values
    return np.reshape(values, [len(stages), -1]).mean(axis=1).tolist()
