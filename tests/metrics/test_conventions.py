"""Conventions of metrics: ties, averages, relevance levels and documents not retrieved."""

import itertools
import json
import math

import keras
import numpy as np
import pytest

from tests.references import metrics as reference
from tfrank_sel import metrics
from tfrank_sel.metrics import averaging, ties

pytestmark = pytest.mark.usefixtures("eagerly")

LABELS = [0.0, 1.0, 3.0, 1.0, 0.0, 2.0]
SCORES = [2.0, 1.0, 2.0, 2.0, 1.0, 1.0]
WEIGHTS = [1.0, 0.5, 2.0, 1.5, 0.75, 1.25]

AVERAGED = [
    (metrics.NDCG, reference.ndcg),
    (metrics.DCG, reference.discounted_gain),
    (metrics.PWA, reference.position_weighted_average),
    (metrics.Precision, reference.precision),
    (metrics.Recall, reference.recall),
    (metrics.MAP, reference.average_precision),
    (metrics.MRR, reference.reciprocal_rank),
    (metrics.Hits, reference.hits),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("k", [None, 1, 2, 4])
@pytest.mark.parametrize(("make", "formula"), AVERAGED, ids=lambda x: getattr(x, "__name__", ""))
def test_averaged_ties_equal_the_mean_over_all_orders(make, formula, k):
    every_order = [
        [[row[i] for i in order] for row in (LABELS, SCORES, WEIGHTS)]
        for order in itertools.permutations(range(6))
    ]
    expected = np.mean([formula(*rows, k=k) for rows in every_order])
    metric = make(k=k, ties=ties.Averaged(), dtype="float64")
    # padding that ties with the last items
    labels, scores, weights = (
        np.array([[*x, y]]) for x, y in ((LABELS, -1), (SCORES, 1), (WEIGHTS, 9))
    )
    np.testing.assert_allclose(metric(labels, scores, weights), expected, rtol=1e-12)


@pytest.mark.parametrize("make", [metrics.ERR, metrics.BPref, metrics.AlphaDCG])
def test_measures_without_a_closed_form_refuse_to_average(make):
    with pytest.raises(ValueError, match=r"no closed form.*Averaged"):
        make(ties=ties.Averaged())


def test_reversed_ties_are_those_of_the_reversed_list():
    for make in (metrics.NDCG, metrics.MAP, metrics.ERR):
        np.testing.assert_allclose(
            make(ties=ties.REVERSED)([LABELS], [SCORES]), make()([LABELS[::-1]], [SCORES[::-1]])
        )


@pytest.mark.long
def test_shuffled_ties_depend_on_seed_and_scores_alone():
    size = 40
    labels, scores = np.zeros([1, size]), np.ones([1, size])
    labels[0, 0] = 1.0
    ranks = [1 / float(metrics.MRR(ties=ties.Shuffled(s))(labels, scores)) for s in range(80)]
    # uniform: each rank about twice
    assert abs(np.mean(ranks) - (size + 1) / 2) < 5.0
    assert len(set(np.round(ranks))) > 25
    alone = metrics.MRR(ties=ties.Shuffled(1)).evaluate(labels, scores).values[0]
    padded = [np.insert(x, [0, 7], fill, axis=1) for x, fill in ((labels, -1.0), (scores, 5.0))]
    batch = [np.concatenate([x[:, ::-1], x]) for x in padded]
    np.testing.assert_allclose(metrics.MRR(ties=ties.Shuffled(1)).evaluate(*batch).values[1], alone)
    others = {
        float(metrics.MRR(ties=ties.Shuffled(1))(labels, scores + shift)) for shift in range(8)
    }
    assert len(others) > 3  # lists of other scores have other orders


def test_documents_that_were_not_retrieved_hold_no_rank_but_count():
    labels, scores = [[1.0, 0.0, 2.0]], [[1.0, 2.0, -math.inf]]
    assert float(metrics.Recall()(labels, scores)) == 0.5
    assert float(metrics.MAP()(labels, scores)) == 0.25
    assert float(metrics.Precision()(labels, scores)) == 0.5
    assert float(metrics.MRR()(labels, scores)) == 0.5
    expected = (1 / math.log2(3)) / (3 + 1 / math.log2(3))
    np.testing.assert_allclose(metrics.NDCG()(labels, scores), expected, rtol=1e-6)
    np.testing.assert_allclose(metrics.ERR()([[4.0]], [[-math.inf]]), 0.0)
    nowhere = metrics.MAP(ties=ties.Averaged())([[1.0, 1.0]], [[-math.inf, -math.inf]])
    assert float(nowhere) == 0.0


def test_scores_of_nan_rank_last_and_hold_a_rank():
    assert float(metrics.MRR()([[1.0, 0.0, 0.0]], [[math.nan, 1.0, -math.inf]])) == 0.5


def test_the_relevance_level_tells_what_is_relevant():
    labels, scores = [[0.5, 1.0, 2.0]], [[3.0, 2.0, 1.0]]
    for level, expected in ((None, 1.0), (1.0, 0.5), (2.0, 1 / 3), (3.0, 0.0)):
        metric = metrics.MRR(relevance_level=level)
        np.testing.assert_allclose(metric(labels, scores), expected)


def test_lists_without_a_value_count_as_asked():
    labels, scores = [[0.0, 1.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]
    assert float(metrics.NDCG()(labels, scores)) == 0.5
    assert float(metrics.NDCG(averaging=averaging.DEFINED_LISTS)(labels, scores)) == 1.0
    for make in (metrics.OPA, metrics.AUC, metrics.KendallTau, metrics.SpearmanRho):
        np.testing.assert_allclose(make()(labels, scores), 1.0, rtol=1e-6)
        np.testing.assert_allclose(
            make(averaging=averaging.ALL_LISTS)(labels, scores), 0.5, rtol=1e-6
        )


def test_weights_by_relevance_do_not_depend_on_the_batch():
    rng = np.random.default_rng(0)
    labels = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
    scores, weights = rng.normal(size=[3, 3]), rng.uniform(0.5, 2.0, [3, 3])
    together, apart = (metrics.MRR(averaging=averaging.BY_RELEVANCE) for _ in range(2))
    together.update_state(labels, scores, weights)
    for i in range(3):
        apart.update_state(labels[i : i + 1], scores[i : i + 1], weights[i : i + 1])
    np.testing.assert_allclose(apart.result(), together.result(), rtol=1e-6)


@pytest.mark.long
def test_the_presets_make_metrics_of_distinct_names():
    for preset, name in ((metrics.trec_eval(), "map"), (metrics.tfr(), "metric/map")):
        found = metrics.Evaluator(preset)([[0.0, 1.0]], [[1.0, 2.0]])
        assert len(found) == len(preset)
        assert float(found[name].mean()) == 1.0


def test_options_are_saved():
    metric = metrics.MRR(
        relevance_level=2.0, ties=ties.Shuffled(7), averaging=averaging.DEFINED_LISTS
    )
    loaded = keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(metric)))
    )
    assert loaded.relevance_level == 2.0
    assert loaded.ties == ties.Shuffled(7)
    assert loaded.averaging == averaging.DEFINED_LISTS
