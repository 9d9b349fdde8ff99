"""The rule by which `benchmarks.quality` chooses what it judges."""

import numpy as np

from benchmarks.quality.selection import Trial, chosen, ndcg
from tests.references import metrics as references
from tfrank_sel import data

STAGES = 12


def trials():
    """The first setting is best by luck, at one stage of one seed; the second at stage 8."""
    found = []
    for seed in (0, 1):
        lucky = np.full(STAGES, 0.5)
        lucky[3] += 0.3 * (seed == 0)
        steady = 0.6 - 0.01 * np.abs(np.arange(STAGES) - 8)
        for setting, validation in (("lucky", lucky), ("steady", steady)):
            scores = [[np.full(2, 100 * seed + stage)] for stage in range(STAGES)]
            found.append(Trial(0, seed, setting, validation.tolist(), scores))
    return found


def test_what_is_chosen_is_best_for_all_seeds_and_for_stages_in_a_row():
    found = chosen(trials())
    assert {key: scores[0][0] for key, scores in found.items()} == {(0, 0): 8, (0, 1): 108}


def test_ndcg_of_each_stage_is_the_mean_over_lists():
    random = np.random.default_rng(0)
    lists = [
        data.ItemList(
            f"{n}", random.integers(0, 3, n), np.zeros([n, 1]), tuple("abcdefghijklmno"[:n])
        )
        for n in (3, 15, 12)
    ]
    stages = [[random.normal(size=len(x.labels)) for x in lists] for _ in range(2)]
    expected = [
        np.mean(
            [
                references.ndcg(x.labels, scores, np.ones_like(scores), 10)
                for x, scores in zip(lists, of_stage, strict=True)
            ]
        )
        for of_stage in stages
    ]
    np.testing.assert_allclose(ndcg(lists, stages), expected, rtol=1e-6)
