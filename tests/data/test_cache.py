import os
import time

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel.data.cache import Cache

SIZES = (3, 0, 1, 7, 2, 2, 5, 1, 4, 6, 3)
EDGES = (3, 7)


def lists():
    """The number of each list with items, and its items, which no other list has."""
    rng = np.random.default_rng(0)
    return {
        number: rng.normal(size=(size, 2)).astype(np.float32)
        for number, size in enumerate(SIZES)
        if size
    }


def padded():
    """Batches of three lists, with junk at padding."""
    for start in range(0, len(SIZES), 3):
        sizes = np.array(SIZES[start : start + 3])
        mask = np.arange(9) < sizes[:, None]
        features = np.full([len(sizes), 9, 2], 7e5, np.float32)
        labels = np.full([len(sizes), 9], np.nan, np.float32)
        for row, size in enumerate(sizes):
            if size:
                features[row, :size] = lists()[start + row]
                labels[row, :size] = start + row
        yield {"features": tf.constant(features), "mask": mask}, labels


@pytest.fixture(params=["in memory", "from files"])
def cache(request, tmp_path, monkeypatch):
    if request.param == "from files":
        monkeypatch.setattr("tfrank_sel.data.cache.IN_MEMORY", 0)
    return Cache.write(padded(), tmp_path / "cache")


def seen(batches):
    """The numbers of the lists, after a look at each."""
    numbers = []
    for inputs, labels in batches.as_numpy_iterator():
        mask, features = inputs["mask"], inputs["features"]
        assert mask.shape[1] in EDGES
        np.testing.assert_array_equal(np.isnan(labels), ~mask)
        assert not features[~mask].any()
        for row in np.flatnonzero(mask.any(axis=1)):
            is_item = mask[row]
            number = int(labels[row, 0])
            np.testing.assert_array_equal(features[row, is_item], lists()[number])
            numbers.append(number)
    return numbers


def test_in_order_each_list_comes_once(cache):
    batches = cache.batches(2, EDGES)
    numbers = seen(batches)
    assert sorted(numbers) == sorted(lists())
    of_edge = [number for number in numbers if SIZES[number] <= 3]
    assert of_edge == sorted(of_edge)
    assert [len(labels) for _, labels in batches] == [2] * int(batches.cardinality())


def test_a_sample_has_every_nth_list_of_each_bucket(cache):
    numbers = sorted(lists())
    short, long = (
        [n for n in numbers if (SIZES[n] <= 3) == is_short] for is_short in (True, False)
    )
    assert seen(cache.batches(2, EDGES, every=2)) == short[::2] + long[::2]


@pytest.mark.sample(4)
@pytest.mark.parametrize("batch_size", [2, 3, 4, 16])
def test_shuffled_batches_are_whole_and_hold_each_list(cache, batch_size):
    batches = cache.batches(batch_size, EDGES, seed=1)
    first, second = seen(batches), seen(batches)
    assert first != second
    for numbers in (first, second):
        assert set(numbers) == set(lists())
        assert len(numbers) == batch_size * -(-len(lists()) // batch_size)
    assert int(batches.cardinality()) * batch_size == len(first)
    assert seen(cache.batches(batch_size, EDGES, seed=1)) == first


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(20))
def test_other_lists_fill_the_last_batch_while_there_are_any(cache, seed):
    batches = cache.batches(7, [7], seed=seed)
    for _, labels in batches.as_numpy_iterator():
        assert len(set(labels[:, 0])) == len(labels)
    [(_, labels)] = cache.batches(16, [7], seed=seed).as_numpy_iterator()
    counts = np.unique(labels[:, 0], return_counts=True)[1]
    assert sorted(counts) == [1] * 4 + [2] * 6


@pytest.mark.sample(2)
def test_a_first_pass_has_the_order_of_that_pass(cache):
    batches = cache.batches(2, EDGES, seed=1)
    passes = [seen(batches) for _ in range(4)]
    for first in range(4):
        resumed = cache.batches(2, EDGES, seed=1, first_pass=first)
        assert [seen(resumed) for _ in passes[first:]] == passes[first:]


def test_a_pass_draws_no_order_before_it_is_asked_for(cache):
    batches = cache.batches(2, EDGES, seed=1)
    expected = [seen(batches) for _ in range(2)]
    batches = cache.batches(2, EDGES, seed=1)
    first = iter(batches.repeat())
    for _ in range(int(batches.cardinality())):
        next(first)
    time.sleep(0.3)  # in which a prefetch of the next pass would begin it
    assert seen(batches) == expected[1]


def test_a_file_that_ends_early_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tfrank_sel.data.cache.IN_MEMORY", 0)
    cache = Cache.write(padded(), tmp_path / "cache")
    os.truncate(cache.folder / "features", 8)
    with pytest.raises(tf.errors.OpError, match="features must not change"):
        seen(cache.batches(2, EDGES))


def test_what_cannot_be_batched_is_refused(cache, tmp_path):
    with pytest.raises(ValueError, match="at least the longest list size, 7"):
        cache.batches(2, [3, 6])
    with pytest.raises(ValueError, match="batch_size=0"):
        cache.batches(0, EDGES)
    empty = ({"features": np.zeros([1, 2, 1]), "mask": np.zeros([1, 2], bool)}, np.zeros([1, 2]))
    with pytest.raises(ValueError, match="must have at least one list"):
        Cache.write([empty], tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", [None, 5])
def test_the_shards_of_a_batch_make_the_batch(cache, seed):
    whole = list(cache.batches(4, EDGES, seed=seed))
    shards = [list(cache.batches(4, EDGES, seed=seed, shard=(index, 3))) for index in range(3)]
    for (inputs, labels), *parts in zip(whole, *shards, strict=True):
        for index, (found, found_labels) in enumerate(parts):
            np.testing.assert_array_equal(found_labels, labels[index::3])
            for name, x in inputs.items():
                np.testing.assert_array_equal(found[name], x[index::3])


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (0, 5)])
def test_a_shard_that_is_none_is_refused(cache, shard):
    with pytest.raises(ValueError, match="`shard` must be"):
        cache.batches(4, EDGES, shard=shard)


def test_a_cache_is_loaded_as_it_was_written(cache):
    loaded = Cache.load(str(cache.folder))
    np.testing.assert_array_equal(loaded.sizes, cache.sizes)
    assert (loaded.folder, loaded.parts) == (cache.folder, cache.parts)


@pytest.mark.parametrize("limit", [0, 2**28], ids=["from files", "in memory"])
def test_parts_of_any_type_come_back(tmp_path, monkeypatch, limit):
    monkeypatch.setattr("tfrank_sel.data.cache.IN_MEMORY", limit)
    parts = {"far": np.array([[[1.5], [2.5]]], ">f4"), "none": np.zeros([1, 2, 0], np.float32)}
    labels = np.array([[1, 7]])
    Cache.write([({**parts, "mask": np.array([[True, False]])}, labels)], tmp_path / "lists")
    cache = Cache.load(tmp_path / "lists")
    assert cache.items("far").tolist() == [[1.5]]
    assert cache.items("none").shape == (1, 0)
    [(inputs, labels)] = cache.batches(1, [2])
    assert inputs["far"].numpy().tolist() == [[[1.5], [0.0]]]
    assert inputs["none"].shape == (1, 2, 0)
    np.testing.assert_array_equal(labels, [[1.0, np.nan]])
