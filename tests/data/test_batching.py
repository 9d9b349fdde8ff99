import gzip
import itertools
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, strategies as st

from tests.data import example_writers
from tfrank_sel import data
from tfrank_sel.data import batching, elwc, packed, parsing, stores, writing

SPEC = data.FeatureSpec(num_features=2)
SIZES = [1, 5, 2, 9, 4, 3, 7, 1, 12, 5, 2]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return written(tmp_path_factory.mktemp("records"), packed.serialize)


def written(folder, serialize):
    """Two shards; item `i` of list `q` has features `[100 * q + i, 1]` and label `i`."""
    paths = [str(folder / name) for name in ("a", "b")]
    for path, lists in zip(paths, (range(6), range(6, len(SIZES))), strict=True):
        with tf.io.TFRecordWriter(path) as writer:
            for query in lists:
                items = np.arange(SIZES[query])
                features = np.stack([100.0 * query + items, np.ones(len(items))], axis=1)
                ids = [b"%d-%d" % (query, item) for item in items]
                writer.write(serialize(features, SPEC, labels=items, doc_ids=ids))
    return paths


def batches(files, **changed):
    settings = {"batch_size": 2, "bucket_edges": [3, 6, 12], **changed}
    return data.batches(files, SPEC, **settings)


def lists_of(dataset):
    """The first feature and the label of the items of each list, without padding."""
    found = []
    for features, labels in dataset:
        for x, y in zip(features.numpy(), labels.numpy(), strict=True):
            np.testing.assert_array_equal(x[np.isnan(y)], 0.0)
            found.append((x[~np.isnan(y), 0].tolist(), y[~np.isnan(y)].tolist()))
    return found


def test_every_list_comes_once_padded_to_its_bucket(files):
    shapes = [tuple(features.shape) for features, _ in batches(files)]
    whole = [(2, 3, 2), (2, 3, 2), (2, 6, 2), (2, 12, 2)]
    assert sorted(shapes) == [(1, 3, 2), (1, 6, 2), (1, 12, 2), *whole]
    expected = [[100.0 * q + i for i in range(size)] for q, size in enumerate(SIZES)]
    assert sorted(items for items, _ in lists_of(batches(files))) == expected
    for items, labels in lists_of(batches(files)):
        assert labels == list(range(len(items)))


def test_the_layout_of_the_records_makes_no_difference(files, tmp_path):
    expected = lists_of(batches(files))
    assert lists_of(batches(written(tmp_path, elwc.serialize), parse=elwc.parse)) == expected


def test_the_weights_of_a_spec_are_read_from_either_layout(tmp_path):
    spec = data.FeatureSpec(1, weight="weight")
    found = []
    for form in (packed, elwc):
        records = [
            form.serialize(np.ones([n, 1]), spec, labels=[1.0] * n, weights=w)
            for n, w in ((1, [2.0]), (2, None))
        ]
        path = tmp_path / form.__name__
        with tf.io.TFRecordWriter(str(path)) as file:
            for record in records:
                file.write(record)
        [batch] = data.batches([str(path)], spec, batch_size=2, bucket_edges=[2], parse=form.parse)
        found.append(sorted(batch[2].numpy().tolist()))
    assert found == [[[1.0, 1.0], [2.0, 0.0]]] * 2


@pytest.mark.long
def test_compressed_files_are_read_by_their_names(files, tmp_path):
    compressed = []
    for file in map(pathlib.Path, files):
        path = tmp_path / f"{file.name}.gz"
        path.write_bytes(gzip.compress(file.read_bytes()))
        compressed.append(path)
    expected = lists_of(batches(files, bucket_edges=3))
    assert lists_of(batches(compressed, bucket_edges=3)) == expected
    for index in range(3):  # more shards than files: every third list
        part = lists_of(batches(files, shard=(index, 3)))
        assert lists_of(batches(compressed, shard=(index, 3))) == part
    with pytest.raises(ValueError, match=r"all be compressed.*Received: 1 of 2 compressed"):
        batches([files[0], compressed[1]])


def test_as_many_batches_come_as_are_counted(files):
    sizes = {size: SIZES.count(size) for size in SIZES}
    counted = batching.num_batches(sizes, batch_size=2, bucket_edges=[3, 6, 12])
    assert counted == len(list(batches(files)))


@pytest.mark.long
def test_shuffling_follows_the_seed_and_differs_by_pass(files):
    shuffled = batches(files, shuffle_buffer=99, seed=1)
    first, second = lists_of(shuffled), lists_of(shuffled)
    again = batches(files, shuffle_buffer=99, seed=1)
    assert first == lists_of(again)
    assert first != second
    assert sorted(first) == sorted(second) == sorted(lists_of(batches(files)))


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Twelve files of 20 lists of one item each, which names the file and the list."""
    folder = tmp_path_factory.mktemp("days")
    paths = [str(folder / f"{day:02d}") for day in range(12)]
    for day, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(20):
                features = np.array([[100.0 * day + number, 0.0]])
                writer.write(packed.serialize(features, SPEC, labels=[0.0]))
    return paths


def numbers(files, **changed):
    settings = {"batch_size": 1, "bucket_edges": [1], **changed}
    return [int(items[0]) for items, _ in lists_of(batches(files, **settings))]


@pytest.mark.long
def test_several_files_come_together_in_another_order_each_pass(days):
    """With a buffer of one list, which shuffles nothing itself."""
    expected = [100 * day + number for day in range(12) for number in range(20)]
    assert numbers(days) == expected
    shuffled = batches(days, batch_size=1, bucket_edges=[1], shuffle_buffer=1, seed=1)
    first, second = ([int(items[0]) for items, _ in lists_of(shuffled)] for _ in range(2))
    assert first == numbers(days, shuffle_buffer=1, seed=1)
    assert sorted(first) == sorted(second) == expected
    begun = [[number // 100 for number in found[: 8 * 16 : 16]] for found in (first, second)]
    assert begun[0] != begun[1]
    assert len(set(begun[0])) == len(set(begun[1])) == 8  # at once
    for found in (first, second):
        for day in range(12):
            of_day = [number for number in found if number // 100 == day]
            assert of_day == [100 * day + number for number in range(20)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("count", [2, 4])
def test_workers_share_shuffled_files_whatever_order_each_has(days, count):
    files = days[:3]
    parts = [
        numbers(files, shard=(index, count), shuffle_buffer=4, seed=index) for index in range(count)
    ]
    assert sorted(itertools.chain(*parts)) == numbers(files)
    assert max(map(len, parts)) - min(map(len, parts)) <= 20


@pytest.mark.long
def test_files_of_a_store_come_as_those_on_disk(days, tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setenv("TFRANK_SEL_CACHE", str(tmp_path))
    urls = [f"memory://days/{pathlib.Path(day).name}" for day in days]
    for day, url in zip(days, urls, strict=True):
        with stores.open_file(url, "wb") as file:
            file.write(pathlib.Path(day).read_bytes())
    for changed in ({}, {"shuffle_buffer": 3, "seed": 1}, {"shard": (1, 20), "shuffle_buffer": 2}):
        assert sorted(numbers(urls, **changed)) == sorted(numbers(days, **changed))
        if "shard" not in changed:
            assert numbers(urls, **changed) == numbers(days, **changed)
    assert len(list(tmp_path.rglob("??"))) == 12  # a copy of each
    settings = {"bucket_edges": [1], "repeat": True, "shuffle_buffer": 3, "seed": 3}
    assert_a_restored_iterator_goes_on(urls, tmp_path, 1, settings)


def assert_a_restored_iterator_goes_on(files, folder, taken, settings):
    """After as many batches, saved and restored, an iterator gives the batches that follow."""
    iterator = iter(batches(files, **settings))
    for _ in range(taken):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(folder / "iterator"))
    expected = lists_of(itertools.islice(iterator, 12))
    fresh = iter(batches(files, **settings))
    tf.train.Checkpoint(iterator=fresh).restore(path).assert_consumed()
    assert lists_of(itertools.islice(fresh, 12)) == expected


def test_repeated_batches_are_never_smaller(files):
    taken = list(batches(files, repeat=True, shuffle_buffer=4, seed=1).take(30))
    assert {tuple(labels.shape) for _, labels in taken} == {(2, 3), (2, 6), (2, 12)}


def test_a_list_beyond_the_last_bucket_is_an_error_unless_truncation_is_given(files):
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 6 items"):
        list(batches(files, bucket_edges=[3, 6]))
    shortened = lists_of(batches(files, bucket_edges=[3, 6], truncation=data.head))
    expected = [[100.0 * q + i for i in range(min(size, 6))] for q, size in enumerate(SIZES)]
    assert sorted(items for items, _ in shortened) == expected


def test_the_truncation_chooses_what_is_kept(files):
    found = lists_of(batches(files, bucket_edges=[4], truncation=data.top))
    expected = [[100.0 * q + i for i in range(max(0, n - 4), n)] for q, n in enumerate(SIZES)]
    assert sorted(items for items, _ in found) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 8))
def test_the_items_of_the_highest_labels_are_kept_in_order(labels, list_size):
    padded = tf.constant([[*map(float, labels), *[float("nan")] * 8]])
    kept = data.top(padded, list_size).numpy()[0].tolist()
    ranked = sorted(range(len(labels)), key=lambda i: -labels[i])
    assert kept[: len(labels)] == sorted(ranked[:list_size])


@pytest.mark.long
def test_items_are_shuffled_by_the_seed_before_truncation(files):
    settings = {"bucket_edges": [4], "truncation": data.head, "shuffle_items": True}
    shuffled = batches(files, **settings, seed=1)
    first, second = lists_of(shuffled), lists_of(shuffled)
    assert first == lists_of(batches(files, **settings, seed=1))
    assert first != second
    for found in (first, second):
        assert sorted(len(items) for items, _ in found) == sorted(min(n, 4) for n in SIZES)
        for items, labels in found:
            assert len(set(items)) == len(items)
            assert [item % 100.0 for item in items] == labels
    kept = [set(items) for _ in range(20) for items, _ in lists_of(shuffled)]
    assert {item for items in kept for item in items if item >= 800.0} >= {*range(800, 812)}


def test_a_model_gets_what_is_asked_for(files):
    for inputs, _ in batches(files, inputs=["features", "mask", "doc_id"]):
        assert list(inputs) == ["features", "mask", "doc_id"]
        expected = [
            f"{x // 100:.0f}-{x % 100:.0f}" for x in inputs["features"][:, :, 0].numpy().flat
        ]
        found = inputs["doc_id"].numpy().astype(str).ravel()
        mask = inputs["mask"].numpy().ravel()
        assert found[mask].tolist() == np.array(expected)[mask].tolist()
        assert not any(found[~mask])


def test_edges_are_found_in_the_data(files):
    assert data.list_sizes(files, SPEC) == {size: SIZES.count(size) for size in SIZES}
    expected = data.bucket_edges(data.list_sizes(files, SPEC), 3, min_lists=2)
    found = {labels.shape[1] for _, labels in batches(files, bucket_edges=3)}
    assert found == set(expected)


@pytest.mark.sample(6)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("bucket_edges", [[12], [3, 12]])
def test_each_list_is_in_one_shard(files, count, bucket_edges):
    shards = [
        lists_of(batches(files, bucket_edges=bucket_edges, shard=(index, count), shuffle_buffer=3))
        for index in range(count)
    ]
    assert min(map(len, shards)) >= len(SIZES) // count
    assert sorted(itertools.chain(*shards)) == sorted(lists_of(batches(files)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("bucket_edges", [[12], [3, 6, 12]])
def test_a_restored_iterator_goes_on_with_the_same_batches(files, tmp_path, shuffled, bucket_edges):
    settings = {"bucket_edges": bucket_edges, "repeat": True, "seed": 3}
    settings |= {"shuffle_buffer": 4 * shuffled, "shuffle_items": shuffled}
    assert_a_restored_iterator_goes_on(files, tmp_path, 7, settings)


NAMED = data.ListFeatures(
    items={
        "price": tf.io.FixedLenFeature([1], tf.float32),
        "bag": tf.io.RaggedFeature(tf.int64),
        "clicks": tf.io.FixedLenFeature([1], tf.int64),
    },
    context={"query": tf.io.FixedLenFeature([], tf.int64)},
    label="clicks",
)
FORMATS = pytest.mark.parametrize(
    ("write", "parse"),
    [
        (writing.serialize_elwc, parsing.parse_elwc),
        (example_writers.example_in_example, parsing.parse_example_in_example),
        (writing.serialize_sequence_example, parsing.parse_sequence_example),
    ],
    ids=["ELWC", "EIE", "SEQ"],
)


@pytest.mark.sample(3)
@FORMATS
@pytest.mark.parametrize("chosen", [False, True])
def test_lists_of_named_features_come_the_same_way(tmp_path, write, parse, chosen):
    """An item's price is its label and a half, and its bag holds the label that often."""
    numbers = random.Random(0)
    with tf.io.TFRecordWriter(str(tmp_path / "lists")) as file:
        for query, size in enumerate(SIZES):
            clicks = [numbers.randrange(4) for _ in range(size)]
            values = {"clicks": clicks, "query": query, "bag": [[n] * n for n in clicks]}
            file.write(write(values | {"price": [n + 0.5 for n in clicks]}, NAMED))
    settings = {"truncation": data.top, "shuffle_items": True, "seed": 1} if chosen else {}
    dataset = data.batches(
        [tmp_path / "lists"],
        NAMED,
        batch_size=2,
        bucket_edges=[3, 7] if chosen else [3, 6, 12],
        parse=parse,
        **settings,
    )
    queries = []
    for inputs, labels in dataset:
        assert set(inputs) == {"price", "bag", "query", "mask", "size"}
        mask = inputs["mask"].numpy()
        assert mask.shape == labels.shape
        np.testing.assert_array_equal(~mask, np.isnan(labels))
        np.testing.assert_array_equal(inputs["price"][:, :, 0], np.where(mask, labels + 0.5, 0.0))
        bags = [bag for row in inputs["bag"].to_list() for bag in row]
        assert bags == [[int(n)] * int(n) for n in np.nan_to_num(labels.numpy()).ravel()]
        queries += inputs["query"].numpy().tolist()
        np.testing.assert_array_equal(inputs["size"], [SIZES[q] for q in inputs["query"]])
    assert sorted(queries) == list(range(len(SIZES)))


@pytest.mark.parametrize(
    ("features", "settings", "message"),
    [
        (SPEC, {"inputs": ["mask", "price"]}, r"`inputs` must be of .*Received: \['price'\]"),
        (SPEC, {"shard": (2, 2)}, r"`shard` must be an index below a count. Received: \(2, 2\)"),
        (NAMED, {}, "`parse` must be of `tfrank_sel.data.parsing`"),
        (data.ListFeatures(NAMED.items), {"parse": parsing.parse_elwc}, "must have a label"),
        (
            data.ListFeatures({**NAMED.items, "a": tf.io.VarLenFeature(tf.string)}, label="clicks"),
            {"parse": parsing.parse_elwc, "truncation": data.top},
            r"not from a `VarLenFeature`. Received: \['a'\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(files, features, settings, message):
    with pytest.raises(ValueError, match=message):
        data.batches(files, features, batch_size=2, bucket_edges=[12], **settings)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be positive"),
        ({"bucket_edges": []}, "`bucket_edges` must be positive and increasing"),
        ({"bucket_edges": [4, 4]}, "`bucket_edges` must be positive and increasing"),
        ({"bucket_edges": [0, 4]}, "`bucket_edges` must be positive and increasing"),
    ],
)
def test_wrong_arguments_are_refused(files, wrong, message):
    with pytest.raises(ValueError, match=message):
        batches(files, **wrong)
    with pytest.raises(TypeError, match=r"`files` must be a sequence of files\. Received: '/lists"):
        data.batches("/lists", data.FeatureSpec(1), batch_size=2)
    with pytest.raises(ValueError, match="at least one file"):
        batches([])


@given(
    st.dictionaries(st.integers(1, 40), st.integers(1, 9), min_size=1, max_size=7),
    st.integers(1, 4),
)
def test_bucket_edges_pad_least(list_sizes, max_buckets):
    def slots(edges):
        return sum(
            count * min(edge for edge in edges if edge >= size)
            for size, count in list_sizes.items()
        )

    edges = data.bucket_edges(list_sizes, max_buckets)
    assert len(edges) <= max_buckets
    assert sorted(set(edges)) == list(edges)
    longest = max(list_sizes)
    least = min(
        slots({*chosen, longest})
        for chosen in itertools.combinations_with_replacement(list_sizes, max_buckets - 1)
    )
    assert slots(edges) == least


@given(
    st.dictionaries(st.integers(1, 40), st.integers(1, 9), min_size=1, max_size=7),
    st.integers(1, 20),
)
def test_no_bucket_is_emptier_than_asked(list_sizes, min_lists):
    edges = data.bucket_edges(list_sizes, min_lists=min_lists)
    held = [
        sum(count for size, count in list_sizes.items() if low < size <= high)
        for low, high in itertools.pairwise((0, *edges))
    ]
    assert min(held) >= min(min_lists, sum(list_sizes.values()))
    assert edges[-1] == max(list_sizes)


def test_many_sizes_give_few_edges_quickly():
    edges = data.bucket_edges(dict.fromkeys(range(1, 5000), 1))
    assert len(edges) == 4
    assert edges[-1] == 4999


def test_no_lists_have_no_edges():
    with pytest.raises(ValueError, match="`list_sizes` must not be empty"):
        data.bucket_edges({})
