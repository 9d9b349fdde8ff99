"""The rule by which `benchmarks.quality` chooses what it judges."""

import itertools
import math
import types

import keras
import numpy as np
import pytest
import scipy.sparse as sp
import tensorflow as tf

from benchmarks.quality import (
    default,
    ensembles,
    equal,
    explanations,
    few_factors,
    leave_one_out,
    two_stages,
    typed,
)
from benchmarks.quality.data import PARTS
from benchmarks.quality.selection import Trial, chosen, ndcg
from tests.references import metrics as references
from tfrank_sel import data
from tfrank_sel.data import synthetic
from tfrank_sel.pipelines.candidates import Candidate, Settings

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


@pytest.mark.long
def test_the_default_of_the_pipelines_trains_on_a_fold():
    lists = synthetic.lists(60, seed=3)
    fold = {part: list(itertools.islice(lists, 20)) for part in PARTS}
    with default.trainer(fold) as train:
        trained = train(Candidate(), Settings(epochs=2))
    assert [fit.epochs for fit in trained.fits] == [2]
    scored = default.scores(trained.model, fold["test"])
    assert [len(x) for x in scored] == [len(x.labels) for x in fold["test"]]
    assert np.ptp(np.concatenate(scored)) > 0.0


def test_an_ensemble_adds_up_standardised_scores_by_its_shares(tmp_path):
    pytest.importorskip("pytrec_eval")
    labels = np.array([0.0, 2.0, 1.0, 0.0])
    lists = [data.ItemList(f"{n}", labels, labels[:, np.newaxis], tuple("abcd")) for n in (1, 2)]
    members = {"right": 9.0 * labels, "wrong": -labels}
    for name, scores in members.items():
        path = ensembles._path(tmp_path, (0, 7, name))
        ensembles._save(path, 1.0, vali=[scores, scores])

    def found(way=None, **shares):
        given = [{"vali": lists}], tmp_path, [7], shares, "vali", way
        [[first, second]], _ = ensembles._values(*given)
        assert first == second
        return first

    worst = references.ndcg(labels, -labels, np.ones(4), 10)
    assert found(right=1) == found(right=3, wrong=2) == pytest.approx(1.0)
    assert found(wrong=1) == found(right=1, wrong=2) == pytest.approx(worst, abs=1e-4)
    chosen = ensembles.WAYS["weights by validation lists"]
    assert found(chosen, right=1, wrong=2) == pytest.approx(1.0)


def test_categories_have_the_codes_of_training_lists():
    pd = pytest.importorskip("pandas")
    parts = {
        part: pd.DataFrame({"list": [0, 0, 1], "grade": [0, 2, 1]}).assign(
            **dict.fromkeys(typed.NUMBERS, 7.0), **{key: [*values] for key in typed.CATEGORIES}
        )
        for part, values in {"train": "bab", "test": "abc"}.items()
    }
    first, second = typed.lists(parts)["test"]
    np.testing.assert_array_equal(first.features, [[7.0] * 3 + [0.0] * 5, [7.0] * 3 + [1.0] * 5])
    np.testing.assert_array_equal(second.features, [[7.0] * 3 + [-1.0] * 5])
    np.testing.assert_array_equal(first.labels, [0.0, 2.0])


def test_sets_are_pooled_by_random_effects():
    alike = [equal.Gap(0.1, 0.0, 0.0, error, 1.0) for error in (0.1, 0.2)]
    gap, between = equal.pooled(alike)
    assert (gap.mean, gap.error, between) == pytest.approx((0.1, 125.0**-0.5, 0.0))
    assert gap.p == pytest.approx(math.erfc(0.1 * 125.0**0.5 / 2.0**0.5))
    assert gap.high - gap.low == pytest.approx(2.0 * 1.959964 * gap.error)
    # Q = 50, and the variance between sets is (50 - 1) / 100
    gap, between = equal.pooled([equal.Gap(x, 0.0, 0.0, 0.1, 1.0) for x in (0.0, 1.0)])
    assert (gap.mean, gap.error, between) == pytest.approx((0.5, 0.5, 0.98))
    text = equal.pooled_table([{"ours": alike[0], "theirs": alike[1]}, {"ours": alike[1]}])
    assert "| ours | +0.1000" in text
    assert "theirs" not in text


@pytest.mark.long
def test_a_pair_is_flipped_by_the_feature_that_makes_its_gap():
    random = np.random.default_rng(0)
    weights = np.array([3.0, 1.0, -2.0])

    class Linear(keras.Model):
        takes_mask = True

        def call(self, inputs, training=False):
            return tf.linalg.matvec(inputs["features"], tf.constant(weights, tf.float32))

    lists = [
        data.ItemList(f"{n}", np.zeros(n), random.normal(size=[n, 3]), tuple("abcdefgh"[:n]))
        for n in (2, 3, 5, 8)
    ]
    ranker = types.SimpleNamespace(
        model_=Linear(), feature_importances_=np.array([0.0, 0.2, 0.1]), n_features_in_=3
    )
    for middle in (False, True):
        found = explanations.flips(ranker, lists, middle, 0)
        assert found.shape == (3, 4)  # a list of two is left out
        for row, one in zip(found, lists[1:], strict=True):
            order = np.argsort(-(one.features @ weights))
            first, other = one.features[order[[0, len(order) // 2 if middle else 1]]]
            parts = (first - other) * weights
            assert row[0] == (parts.sum() < parts.max())
            assert row[1] == (parts.sum() < parts[1])
        assert found[:, 3].max() < 1e-5


def test_a_split_by_time_trains_on_nothing_later(tmp_path):
    random = np.random.default_rng(0)
    users, items = np.repeat(np.arange(1, 21), 10), np.tile(np.arange(7, 17), 20)
    times = random.permutation(200)
    ones = np.ones(200, int)
    np.savetxt(tmp_path / "u.data", np.stack([users, items, ones, times], axis=1), "%d", "\t")
    for last, end in ((1, 200), (2, 180)):
        split = leave_one_out.by_time(tmp_path, last)
        begin = end - 20
        assert split.train.times.max() < begin
        for user in range(20):
            of_user = np.flatnonzero((users == user + 1) & (times >= begin) & (times < end))
            target = split.target[user].indices.tolist()
            first = of_user[np.argsort(times[of_user])][:1]
            assert target == (items[first] - 7).tolist()


@pytest.mark.parametrize("unseen", [1, 2])
def test_two_stages_are_fitted_without_the_last_items_that_the_benchmark_names(tmp_path, unseen):
    """The split of the library, and that of `leave_one_out`, beside the lines of the file."""
    lines = {f"{user}": [*range(user, user + 4 + user % 4)] for user in range(1, 9)}
    path = tmp_path / "s3rec" / "Beauty.txt"
    path.parent.mkdir()
    path.write_text("\n".join(" ".join(map(str, (x, *y))) for x, y in lines.items()))
    for last in (0, 1):
        parts = two_stages.split(tmp_path, "Beauty", unseen, bool(last))
        ends = (0, -unseen), (0, -1), (-1, None)  # of the fit, the histories and the test
        for part, (first, end) in zip(parts, ends, strict=True):
            items = [part.items[part.users == user].tolist() for user in range(len(lines))]
            assert items == [x[: len(x) - last][first:end] for x in lines.values()]
        split = leave_one_out.held_out(path, 1 + last)
        assert split.target.indices.tolist() == (parts.test.items - 1).tolist()
        assert split.train.items.tolist() == parts.before.items.tolist()
    table = [(user, item, n) for user, row in lines.items() for n, item in enumerate(row)]
    names = dict(zip(("user", "item", "time"), zip(*table, strict=True), strict=True))
    parts = two_stages.split(tmp_path, "Beauty", unseen)
    for part, same in zip(data.Sequences.read(names).leave_one_out(), parts[1:], strict=True):
        assert part.item_ids[part.items - 1].astype(int).tolist() == same.items.tolist()


@pytest.mark.parametrize(("by_item", "least", "most"), [(False, 0.9, 1.1), (True, 2.0, 4.0)])
def test_shares_of_items_tell_a_random_part_from_one_by_item(by_item, least, most):
    random = np.random.default_rng(0)
    interactions = sp.random(2000, 300, 0.2, "csr", np.float32, random)
    parts = random.uniform(0.1, 0.3, 300) if by_item else np.full(300, 0.2)
    held_out = interactions.copy()
    held_out.data = np.float32(random.random(interactions.nnz) < parts[interactions.indices])
    held_out.eliminate_zeros()
    train = interactions - interactions.multiply(held_out > 0)
    deviation, by_chance = few_factors.shares(train, held_out)
    assert least < deviation / by_chance < most
