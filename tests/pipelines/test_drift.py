import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings, strategies
from hypothesis.extra.numpy import arrays

from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.features import Number
from tfrank_sel.pipelines.analysis import drift, sketches
from tfrank_sel.pipelines.analysis.statistics import Statistics, Summary
from tfrank_sel.pipelines.configuration.data import Gates
from tfrank_sel.pipelines.ingestion import stored_lists

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
    summary = Summary(
        functools.partial(stored_lists.items, spec=spec), {x: Number() for x in NAMES}
    )
    half = len(records) // 2
    parts = [
        summary.add_input(summary.create_accumulator(), part)
        for part in (records[:half], records[half:])
    ]
    return summary.extract_output(summary.merge_accumulators(parts))


def test_labels_of_an_earlier_version_are_the_same():
    now = dataclasses.replace(found(), labels={"0.33333334": 600, "1000000": 1400})
    before = dataclasses.replace(now, labels={"0.333333": 600, "1e+06": 1400})
    assert drift.distances(before, now)["label_shares"] == {"relevance": 0.0}


def test_samples_of_one_kind_are_no_anomaly():
    assert drift.anomalies(found(), found(seed=1)) == []
    assert drift.anomalies(found(), found(lists=20, seed=1)) == []


@pytest.mark.parametrize(
    ("changed", "features", "rules", "expected"),
    [
        ({"shift": 1.0}, ["a"], ["numbers"], "cumulative shares within 0.2 of those of training"),
        ({"size": 8}, ["list_size"], ["list_sizes"], "cumulative shares within"),
        (
            {"grades": (0.3, 0.7)},
            ["relevance"],
            ["label_shares"],
            "shares within 0.115 of those of training",
        ),
        (
            {"grades": (0.05, 0.95)},
            ["relevance"] * 2,
            ["label_shares", "label_divergence"],
            "Jensen-Shannon divergence of at most 0.1",
        ),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_what_drifts_is_named_with_its_distance(changed, features, rules, expected):
    old, new = found(), found(seed=1, **changed)
    anomalies = drift.anomalies(old, new)
    assert [anomaly.feature for anomaly in anomalies] == features
    assert [anomaly.rule for anomaly in anomalies] == rules
    assert expected in anomalies[-1].expected
    assert all(anomaly.distance > 0.1 and anomaly.count >= 400 for anomaly in anomalies)
    assert all(anomaly.action == "warn" for anomaly in anomalies)
    assert f"Received: a distance of {anomalies[0].distance:.3f}" in str(anomalies[0])
    fails = dict.fromkeys(rules, "fail")
    assert {x.action for x in drift.anomalies(old, new, gates=Gates(**fails))} == {"fail"}
    bounds = {rule: {"threshold": 1.0} for rule in rules}
    assert drift.anomalies(old, new, gates=Gates(**bounds)) == []
    off = dict.fromkeys(rules, "off")
    assert drift.anomalies(old, new, gates=Gates(**off)) == []


def test_a_feature_that_vanishes_is_named():
    new = found(seed=1)
    new.features["zeros"][1] = new.items - 3
    new.features["missing"][1] = 3
    [anomaly] = drift.anomalies(found(), new, of="the last run")
    assert (anomaly.rule, anomaly.feature, anomaly.count) == ("zero", "b", new.items)
    assert str(anomaly) == (
        "b: expected values other than 0, as in the last run. Received: 0 throughout"
    )
    assert drift.anomalies(new, new) == []  # it was 0 before
    assert drift.anomalies(found(), new, gates=Gates(zero="off")) == []


def named(statistics, **changes):
    return Statistics(**{**vars(statistics), **changes})


def test_features_are_compared_by_their_names_not_their_places():
    one = found(shift=1.0)
    swapped = named(
        one,
        names=one.names[::-1],
        histograms=one.histograms[::-1],
        features={measure: values[::-1] for measure, values in one.features.items()},
    )
    assert drift.anomalies(one, swapped) == []
    renamed = named(one, names=one.names[::-1])  # as many features, but each is the other
    assert [x.feature for x in drift.anomalies(one, renamed)] == ["a", "b"]


def test_another_type_is_one_anomaly_and_other_names_are_new_or_absent():
    old = named(found(), names=["a", "tags"])
    texts = {"a": {"x": old.items}, "brand": {"y": old.items}}
    new = named(old, names=["tags[1]"], histograms=old.histograms[:1], texts=texts)
    new = named(new, features={measure: values[:1] for measure, values in new.features.items()})
    told = [(x.rule, x.feature) for x in drift.anomalies(old, new)]
    assert told == [
        ("type", "a"),
        ("new_feature", "tags[1]"),
        ("new_feature", "brand"),
        ("absent_feature", "tags"),
    ]
    [first, *_] = drift.anomalies(old, new)
    assert str(first) == "a: expected numbers, as in training. Received: texts"
    back = [(x.rule, x.feature) for x in drift.anomalies(new, old)]
    assert back[0] == ("type", "a")
    off = Gates(type="off", new_feature="off")
    assert [x.rule for x in drift.anomalies(old, new, gates=off)] == ["absent_feature"]


def test_a_value_of_a_text_is_shared_among_the_items_that_have_one():
    one, other = (
        named(found(), texts={"brand": {"x": a, "y": b, "": 2000 - a - b}})
        for a, b in ((1000, 500), (600, 900))
    )
    measured = drift.distances(one, other)
    assert measured["texts"] == {"brand": pytest.approx(400 / 1500)}
    assert measured["missing"]["brand"] == 0.0
    [anomaly] = drift.anomalies(one, other)
    assert (anomaly.rule, anomaly.feature) == ("texts", "brand")


def test_distances_are_those_of_their_names():
    one = found()
    half = named(one, labels={"0": 50, "1": 50}, list_sizes={2: 1, 4: 1})
    other = named(one, labels={"1": 50, "2": 50}, list_sizes={4: 3, 8: 1})
    measured = drift.distances(half, other)
    assert measured["label_shares"] == {"relevance": 0.5}
    assert measured["label_divergence"] == {
        "relevance": 0.5
    }  # half of the mass is known to be of one of them
    assert measured["list_sizes"] == {"list_size": 0.5}
    assert measured["numbers"] == measured["missing"] == {"a": 0.0, "b": 0.0}
