import numpy as np
import pytest
from hypothesis import given, settings, strategies
from hypothesis.extra.numpy import arrays

from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.features import Number
from tfrank_sel.pipelines.analysis import drift, sketches
from tfrank_sel.pipelines.analysis.drift import Thresholds
from tfrank_sel.pipelines.analysis.statistics import Statistics, Summary
from tfrank_sel.pipelines.evaluation.lists import PackedLists

NAMES = ["a", "b"]
FLOATS = strategies.floats(-1e9, 1e9, width=32).filter(lambda x: x == 0.0 or abs(x) > 1e-9)


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, strategies.integers(1, 50), elements=FLOATS), strategies.floats(0, 1))
def test_a_sketch_knows_quantiles_to_an_eighth(values, share):
    [[found]] = sketches.quantiles(sketches.counts(values[:, None]), np.array([share]))
    # Of two values, where the share is that of the first to the last digit.
    around = np.clip([share - 1e-9, share + 1e-9], 0.0, 1.0)
    low, high = np.quantile(values, around, method="inverted_cdf")
    assert low - abs(low) / 8 <= found <= high + abs(high) / 8


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, [20, 2], elements=FLOATS), strategies.integers(0, 20))
def test_sketches_of_parts_add_up(values, cut):
    parts = sketches.counts(values[:cut]) + sketches.counts(values[cut:])
    np.testing.assert_array_equal(parts, sketches.counts(values))


@settings(max_examples=50, deadline=None)
@given(FLOATS, FLOATS)
def test_bins_are_in_the_order_of_values(one, other):
    low, high = sketches.bins(np.sort([one, other]))
    assert low <= high


def found(lists=400, size=5, grades=(0.6, 0.4), shift=0.0, seed=0):
    """Statistics of made-up lists of two features."""
    random = np.random.default_rng(seed)
    spec = data.FeatureSpec(2)
    records = []
    for _ in range(lists):
        features = random.normal(size=(size, 2)) + [shift, 0.0]
        labels = random.choice(len(grades), size, p=grades)
        records.append(packed.serialize(features, spec, labels=labels))
    summary = Summary(PackedLists([], spec).parse, {name: Number() for name in NAMES})
    half = len(records) // 2
    parts = [
        summary.add_input(summary.create_accumulator(), part)
        for part in (records[:half], records[half:])
    ]
    return summary.extract_output(summary.merge_accumulators(parts))


def test_samples_of_one_kind_are_no_anomaly():
    assert drift.anomalies(found(), found(seed=1)) == []
    assert drift.anomalies(found(), found(lists=20, seed=1)) == []


@pytest.mark.parametrize(
    ("changed", "features", "rule"),
    [
        ({"shift": 1.0}, ["a"], "cumulative shares within 0.2 of those of training"),
        ({"size": 8}, ["list_size"], "cumulative shares within"),
        ({"grades": (0.3, 0.7)}, ["relevance"], "shares within 0.115 of those of training"),
        ({"grades": (0.05, 0.95)}, ["relevance"] * 2, "Jensen-Shannon divergence of at most 0.1"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_drifts_is_named_with_its_distance(changed, features, rule):
    anomalies = drift.anomalies(found(), found(seed=1, **changed))
    assert [anomaly.feature for anomaly in anomalies] == features
    assert rule in anomalies[-1].rule
    assert all(anomaly.distance > 0.1 and anomaly.count >= 400 for anomaly in anomalies)
    assert f"Received: a distance of {anomalies[0].distance:.3f}" in str(anomalies[0])


def test_a_feature_that_vanishes_is_named():
    new = found(seed=1)
    new.features["zeros"][1] = new.items
    [anomaly] = drift.anomalies(found(), new, of="the last run")
    assert (anomaly.feature, anomaly.rule) == ("b", "not 0 throughout, as in the last run")
    assert anomaly.count == new.items


def test_distances_are_those_of_their_names():
    one = found()
    half = Statistics(**{**vars(one), "labels": {"0": 50, "1": 50}, "list_sizes": {2: 1, 4: 1}})
    other = Statistics(**{**vars(one), "labels": {"1": 50, "2": 50}, "list_sizes": {4: 3, 8: 1}})
    measured = drift.distances(half, other)
    assert measured.label_shares == 0.5
    assert measured.label_divergence == 0.5  # half of the mass is known to be of one of them
    assert measured.list_sizes == 0.5
    assert measured.features == measured.missing == {"a": 0.0, "b": 0.0}
    bounds = Thresholds(label_shares=0.6, label_divergence=0.6, list_sizes=0.6)
    assert drift.anomalies(half, other, thresholds=bounds) == []
