"""The shards that ingest writes, and the parts of files that it reads them from."""

import itertools
import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from apache_beam.internal import pickler
from hypothesis import given, strategies as st
from pyarrow import parquet

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import formats, letor, lines, synthetic
from tfrank_sel.data.formats import text
from tfrank_sel.pipelines.ingestion import ingest, parallel, reading, shards, stored_lists
from tfrank_sel.pipelines.ingestion.inputs import Source, expand
from tfrank_sel.pipelines.runners import beams


def records(paths):
    return list(tf.data.TFRecordDataset(sorted(map(str, paths))).as_numpy_iterator())


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_records_are_framed_as_tensorflow_does(tmp_path_factory, found):
    path = str(tmp_path_factory.getbasetemp() / "framed")
    with tf.io.TFRecordWriter(path) as writer:
        for record in found:
            writer.write(record)
    with open(path, "rb") as file:
        assert file.read() == b"".join(octets for x in found for octets in shards.frame_record(x))


@given(st.binary(max_size=99), st.integers(0), st.integers(1, 255))
def test_a_change_of_any_byte_is_told(tmp_path_factory, record, index, flipped):
    path = tmp_path_factory.getbasetemp() / "damaged"
    octets = bytearray(b"".join(shards.frame_record(record)))
    octets[index % len(octets)] ^= flipped
    path.write_bytes(octets)
    with pytest.raises(ValueError, match="damaged must have records with their checksums"):
        list(shards.records(str(path)))
    if index % len(octets) < 12:  # the length and its checksum
        with pytest.raises(ValueError, match="damaged must have records with their checksums"):
            shards.split_shards([str(path)], 1)
        with pytest.raises(ValueError, match="damaged must have records with their checksums"):
            list(shards.Piece([(str(path), 0, 1)]).records())


@pytest.fixture
def folders(tmp_path):
    for name in ("records", "scratch"):
        (tmp_path / name).mkdir()
    return tmp_path / "records", tmp_path / "scratch"


@pytest.mark.parametrize("size", [1, 100, 350, 10_000])
def test_shards_have_the_target_size_and_the_order_of_their_keys(folders, size):
    folder, scratch = folders
    # 84 bytes each with their frame
    found = [("ab"[i % 2], (0, i), b"%04d" % i + bytes(64)) for i in range(40)]
    with beam.Pipeline() as pipeline:
        created = pipeline | beam.Create(found, reshuffle=False)
        parallel.write(created, str(folder), str(scratch), size)
    for split, first in (("a", 0), ("b", 1)):
        paths = sorted(folder.glob(f"{split}-*"))
        names = [f"{split}-{i:05d}-of-{len(paths):05d}.tfrecord" for i in range(len(paths))]
        assert [path.name for path in paths] == names
        assert records(paths) == [record for _, (_, i), record in found if i % 2 == first]
        sizes = [path.stat().st_size for path in paths]
        assert all(size <= x < size + 84 for x in sizes[:-1])
        assert sizes[-1] < size + 84


def written(sink, found, *, fails=False):
    """What a worker tells of a bundle."""
    sink = pickler.loads(pickler.dumps(sink))
    sink.start_bundle()
    told = [one for element in found for one in sink.process(element)]
    return [] if fails else told + [one.value for one in sink.finish_bundle()]


@pytest.mark.long
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.randoms())
def test_what_bundles_that_fail_or_are_repeated_wrote_does_not_count(
    tmp_path_factory, sizes, random
):
    """Bundles of some records, of which each is done twice in full or in part, in any order."""
    folder = tmp_path_factory.mktemp("bundles")
    sink = parallel.WriteFiles(str(folder), 90)
    everything = [("train", (0, i), b"%03d" % i) for i in range(sum(sizes))]
    ends = np.cumsum(sizes).tolist()
    told = []
    for start, end in random.sample(list(itertools.pairwise([0, *ends])), len(sizes)):
        bundle = everything[start:end]
        written(sink, bundle[: random.randrange(len(bundle) + 1)], fails=True)
        told += written(sink, bundle)
        written(sink, bundle)  # whose word comes too late
    assert {split for split, _ in told} == {"train"}
    (folder / "records").mkdir()
    files = [file for _, file in told]
    for shard in shards.plan(("train", files), str(folder / "records"), 90):
        shards.join(shard)
    found = list((folder / "records").iterdir())
    assert records(found) == [record for *_, record in everything]
    assert len(found) <= 2 * sum(path.stat().st_size for path in found) / 90 + 1


def test_rows_of_the_files_of_a_folder_keep_their_order_on_workers(tmp_path):
    for name, rows in (("1", [("z", 9), ("a", 1), ("a", 2)]), ("2", [("a", 3), ("a", 4)])):
        columns = {"query_id": [q for q, _ in rows], "x": [float(x) for _, x in rows]}
        table = pa.table({**columns, "relevance": [1.0] * len(rows)})
        (tmp_path / "a").mkdir(exist_ok=True)
        parquet.write_table(table, tmp_path / "a" / f"{name}.parquet")
    folder = str(tmp_path / "a")
    reader = formats.reader([folder])
    layout = reader.infer([folder])
    whole = reading.PartReader(reader, layout, adjacent=False)
    parts = [(0, i, None, part) for i, part in enumerate(reader.parts(folder))]
    found = [x for part in parts for x in parallel._rows(part, whole)]
    grouped = [rows for (_, query), rows in reversed(found) if query == "a"]
    [(_, _, lists)] = parallel._join_rows((("", "a"), grouped), whole)
    assert lists.features.ravel().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_an_ingest_that_fails_midway_leaves_no_shard(tmp_path, monkeypatch):
    letor.write(tmp_path / "a.txt", synthetic.lists(50, num_features=4))
    inputs = ingest.Inputs(expand([str(tmp_path / "a.txt")], "train"))
    serialize, calls = stored_lists.serialize, []

    def fails(found, context, spec):
        calls.append(found)
        if len(calls) == 30:
            raise RuntimeError("midway")
        return serialize(found, context, spec)

    monkeypatch.setattr(stored_lists, "serialize", fails)
    with pytest.raises(RuntimeError, match="midway"):
        ingest.ingest(inputs, inputs.schema(), tmp_path / "out")
    assert list((tmp_path / "out").rglob("*")) == [tmp_path / "out" / "records"]


WAYS = {
    "in memory": [],
    "threads": ["--direct_running_mode=multi_threading", "--direct_num_workers=2"],
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_file_that_is_read_in_parts_gives_the_same_shards_in_every_run(
    tmp_path, monkeypatch, name, way
):
    """But for rows that two workers group: their lists come in any order."""
    lists = sets.made(count=60)
    letor.write(tmp_path / "a.txt", lists)
    sets.write_jsonl(tmp_path / "a.jsonl", sets.table(lists).to_pylist())
    names = [f"x{i}" for i in range(6)] if name == "a.jsonl" else ()
    columns = data.formats.Columns(features=names)
    inputs = ingest.Inputs(expand([str(tmp_path / name)]), columns, sets.SHARES)
    options = beams.pipeline_options("Direct", WAYS[way])
    whole = ingest.ingest(inputs, inputs.schema(), tmp_path / "whole")
    monkeypatch.setattr(lines, "PART", (tmp_path / name).stat().st_size // 7)
    assert len(inputs.reader.parts(str(tmp_path / name))) == 8
    done = [
        ingest.ingest(inputs, inputs.schema(), tmp_path / str(i), options=options, shard_bytes=3000)
        for i in range(2)
    ]
    assert done[0].report["splits"] == done[1].report["splits"] == whole.report["splits"]
    for split, paths in whole.shards.items():
        first, second = ([records([x]) for x in x.shards[split]] for x in done)
        found = [record for of_shard in first for record in of_shard]
        if (name, way) != ("a.jsonl", "threads"):
            assert first == second
        if name == "a.txt":
            assert found == records(paths)
        assert sorted(found) == sorted(records(paths))
    assert len(done[0].shards["train"]) > 3


@pytest.mark.sample(3)
@pytest.mark.parametrize("held", [1, 4_000, 1 << 26])
def test_rows_of_any_order_are_grouped_in_memory_and_on_disk(tmp_path, monkeypatch, held):
    lists = sets.made(count=60)
    rows = sets.table(lists).to_pylist()
    order = np.random.default_rng(0).permutation(len(rows))
    sets.write_jsonl(tmp_path / "a.jsonl", [rows[i] for i in order])
    columns = data.formats.Columns(features=[f"x{i}" for i in range(6)])
    inputs = ingest.Inputs(expand([str(tmp_path / "a.jsonl")]), columns, sets.SHARES)
    options = beams.pipeline_options("Direct")
    there = ingest.ingest(inputs, inputs.schema(), tmp_path / "there", options=options)
    monkeypatch.setattr(reading, "HELD", held)
    monkeypatch.setattr(text, "ROWS", 50)
    here = ingest.ingest(inputs, inputs.schema(), tmp_path / "here")
    assert here.report == there.report
    for split, paths in there.shards.items():
        assert sorted(records(here.shards[split])) == sorted(records(paths))
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names == ["ingest.json", "records"]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_a_file_that_is_missing_beside_another_is_told(tmp_path, name):
    lists = sets.made(count=9)
    letor.write(tmp_path / "a.txt", lists)
    sets.write_tables(tmp_path, lists)
    (tmp_path / "all.csv").rename(tmp_path / "a.csv")
    (tmp_path / "all.jsonl").rename(tmp_path / "a.jsonl")
    columns = data.formats.Columns(features=["x1"])
    none = str(tmp_path / f"none.{name}")
    inputs = ingest.Inputs([Source(x, "train") for x in (str(tmp_path / name), none)], columns)
    layout = ingest.Inputs(inputs.sources[:1], columns).schema()
    with pytest.raises(data.InputError, match=rf"none\.{name}: expected a .* [Nn]o such file"):
        ingest.ingest(inputs, layout, tmp_path / "out")


def test_lines_that_are_left_out_have_their_numbers_in_a_file_of_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PART", 64)
    bad = {3: "bla", 30: "1 qid:10 1:inf", 57: "-1 qid:18 1:1", 80: "0"}
    good = (f"1 qid:{i // 3} 1:{i}" for i in range(100))
    text = [bad.get(number, line) for number, line in enumerate(good, start=1)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(text))
    inputs = ingest.Inputs(expand([str(path)], "train"), allow_bad_lines=4)
    layout = inputs.schema()
    ingest.ingest(inputs, layout, tmp_path / "out")
    with (tmp_path / "out" / "dead_letters.jsonl").open() as file:
        letters = [json.loads(line) for line in file]
    assert {one["number"]: one["text"] for one in letters} == bad
    with pytest.raises(data.InputError, match=r"a\.txt:80: expected"):
        ingest.ingest(ingest.Inputs(inputs.sources), layout, tmp_path / "out")


def test_a_query_that_comes_back_in_another_part_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PART", 64)
    lists = list(synthetic.lists(40, num_features=4))
    path = tmp_path / "a.txt"
    path.write_text("".join(map(letor.text, [*lists[:30], lists[20], lists[3]])))
    sources = expand([str(path)], "train")
    layout = ingest.Inputs(sources).schema()
    with pytest.raises(data.InputError) as error:
        ingest.ingest(ingest.Inputs(sources, allow_bad_lines=1), layout, tmp_path / "out")
    rule = "the lines of a query must be adjacent. Received again: that of list"
    assert sorted(str(error.value).splitlines()) == [
        f"{path}, list 31: {rule} 21",
        f"{path}, list 32: {rule} 4",
        "expected at most 1 bad lines. Received: 2",
    ]
    inputs = ingest.Inputs(sources, allow_bad_lines=2)
    done = ingest.ingest(inputs, layout, tmp_path / "out")
    assert sorted(done.report["duplicate_queries"]["first"]) == [
        [f"{path}, list 21", f"{path}, list 31"],
        [f"{path}, list 4", f"{path}, list 32"],
    ]
    assert done.report["splits"]["train"]["lists"] == 32
