"""Statistics of parts, and of the whole that they add up to."""

import collections
import functools
import itertools
import operator

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.features import Category, Number, Set
from tfrank_sel.pipelines.analysis import sketches
from tfrank_sel.pipelines.analysis.statistics import Statistics, Summary
from tfrank_sel.pipelines.ingestion import stored_lists

FEATURES = {"price": Number(), "brand": Category(), "tags": Set(max_values=2), "age": Number()}


def made(random, lists=6):
    """Lists of numbers and texts, some of them missing: labels, numbers and texts of each."""
    for size in random.integers(1, 6, lists):
        numbers = random.normal(1e3, 10.0, (size, 2)).astype(np.float32)
        numbers[random.random((size, 2)) < 0.3] = np.nan
        texts = random.choice(["", "a", "b", "é"], (size, 3))
        yield random.integers(0, 3, size), numbers, texts


def found(lists, names=tuple(FEATURES)):
    """Statistics of lists, of some of the features."""
    features = {name: FEATURES[name] for name in names}
    numbers = [place for place, name in enumerate(("price", "age")) if name in names]
    texts = [i for i, name in enumerate(("brand", "tags", "tags")) if name in names]
    spec = data.FeatureSpec(len(numbers), num_texts=len(texts))
    records = [
        packed.serialize(x[:, numbers], spec, labels=labels, texts=y[:, texts] if texts else None)
        for labels, x, y in lists
    ]
    summary = Summary(functools.partial(stored_lists.items, spec=spec), features)
    total = summary.create_accumulator()
    return summary.extract_output(summary.add_input(total, records) if records else total)


def assert_alike(one, other):
    counts = {**vars(one), "features": None}
    assert counts == {**vars(other), "features": None}
    assert set(one.features) == set(other.features)
    for measure, values in one.features.items():
        if measure in ("min", "max", "zeros", "missing"):
            assert values == other.features[measure], measure
        else:
            np.testing.assert_allclose(
                values, other.features[measure], rtol=1e-7, atol=1e-9, err_msg=measure
            )


@settings(max_examples=25, deadline=None)
@given(strategies.integers(0, 2**32 - 1), strategies.lists(strategies.integers(0, 6), max_size=3))
def test_statistics_of_parts_add_up_to_those_of_the_whole(seed, cuts):
    lists = list(made(np.random.default_rng(seed)))
    cuts = [0, *sorted(cuts), len(lists)]
    parts = [found(lists[i:j]) for i, j in itertools.pairwise(cuts)]
    before = [str(part) for part in parts]
    assert_alike(functools.reduce(operator.add, parts), found(lists))
    assert [str(part) for part in parts] == before  # which are as they were


@pytest.mark.parametrize("lacking", [["age"], ["tags"], ["age", "brand"]])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_feature_that_one_part_lacks_is_missing_there(lacking, is_first):
    old, new = (list(made(np.random.default_rng(seed))) for seed in (1, 2))
    names = [name for name in FEATURES if name not in lacking]
    filled = []
    for labels, numbers, texts in old:
        numbers, texts = numbers.copy(), texts.copy()
        numbers[:, [x in lacking for x in ("price", "age")]] = np.nan
        texts[:, [x in lacking for x in ("brand", "tags", "tags")]] = ""
        filled.append((labels, numbers, texts))
    parts = [found(old, names), found(new)]
    total = operator.add(*(parts if is_first else parts[::-1]))
    whole = found([*filled, *new])
    assert sorted(total.names) == sorted(whole.names)
    assert_alike(total, whole)
    lists = sum(len(labels) for labels, _, _ in old)
    if "age" in lacking:
        place = total.names.index("age")
        assert total.features["missing"][place] == lists + parts[1].features["missing"][1]


def test_a_feature_of_two_types_cannot_be_summed():
    one = found(made(np.random.default_rng(0)), ["price"])
    other = found(made(np.random.default_rng(0)))
    renamed = Statistics(**{**vars(other), "texts": {"price": other.texts["brand"]}, "names": []})
    with pytest.raises(
        ValueError, match=r"numbers in both statistics, or texts in both\. Received"
    ):
        one + renamed


def test_how_many_are_missing_is_told_of_a_feature_of_many_values(monkeypatch):
    monkeypatch.setattr("tfrank_sel.pipelines.analysis.statistics.SHOWN", 2)
    monkeypatch.setitem(FEATURES, "brand", Category(max_size=1))
    texts = np.array([["a"] * 3] * 5 + [["b"] * 3] * 4 + [["c"] * 3] * 3 + [[""] * 3])
    many = found([(np.zeros(13), np.zeros([13, 2]), texts)])
    assert many.texts["brand"] == {"a": 5, "b": 4, "": 1}


def test_a_file_that_holds_no_statistics_is_named(tmp_path):
    path = tmp_path / "train.json"
    for text in ("{", "[]", '{"lists": 3}'):
        path.write_text(text)
        with pytest.raises(
            data.InputError, match=r"train\.json: expected statistics in the format"
        ):
            Statistics.load(path)


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        ([1_000_000, 1_000_001, 1_000_001], {"1e+06": 1, "1.000001e+06": 2}),
        ([0.1234567, 0.12345671, 0.5], {"0.1234567": 1, "0.12345671": 1, "0.5": 1}),
        ([-0.0, 0.0, 2.0], {"0": 2, "2": 1}),
        ([1e-30, 1e30], {"1e-30": 1, "1e+30": 1}),
    ],
)
def test_labels_are_counted_as_they_are(labels, texts):
    one = found([(np.array(labels), np.zeros([len(labels), 2]), np.full([len(labels), 3], ""))])
    assert one.labels == texts
    assert one.items == len(labels)
    assert (one + one).labels == {text: 2 * count for text, count in texts.items()}


def test_many_labels_are_counted_to_fewer_digits_in_any_parts():
    random = np.random.default_rng(0)
    labels = np.exp(random.normal(size=60_000)).astype(np.float32)
    parts = [
        found([(x, np.zeros([len(x), 2]), np.full([len(x), 3], "a"))])
        for x in np.split(labels, [7_000, 30_000])
    ]
    whole = found([(labels, np.zeros([len(labels), 2]), np.full([len(labels), 3], "a"))])
    for order in (parts, parts[::-1]):
        total = functools.reduce(operator.add, order).labels
        # but for the ends of the parts, which are exact
        assert len({*total.items()} ^ {*whole.labels.items()}) <= 4 * len(parts)
    values, counts = np.array([(float(x), n) for x, n in whole.labels.items()]).T
    assert sketches.MOST / 2 < len(values) <= sketches.MOST
    assert counts.sum() == whole.items == len(labels)
    assert (values.min(), values.max()) == (
        pytest.approx(labels.min(), rel=1e-7),
        pytest.approx(labels.max(), rel=1e-7),
    )
    counted = np.repeat(values, counts.astype(int))
    np.testing.assert_allclose(counted, np.sort(labels), rtol=2e-3)


def test_the_time_to_count_labels_is_linear_in_their_number():
    """By the values that are counted again, not by a clock."""
    counter, seen = collections.Counter(), []
    for block in np.split(np.random.default_rng(0).random(200_000).astype(np.float32), 20):
        counter.update(block.tolist())
        seen.append(len(counter))
        counter = sketches.few(counter)
    assert max(seen) <= sketches.MOST + 10_000
    assert counter.total() == 200_000
