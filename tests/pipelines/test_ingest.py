import json

import numpy as np
import pytest
import tensorflow as tf
from pyarrow import json as arrow_json

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import formats, letor, writing
from tfrank_sel.data.formats import Columns, Schema
from tfrank_sel.data.lists import Lists, adjacent
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.data.table import Table
from tfrank_sel.features import Number
from tfrank_sel.pipelines.analysis import step
from tfrank_sel.pipelines.ingestion import ingest, ingest_counts, stored_lists
from tfrank_sel.pipelines.ingestion.inputs import Source, expand

FILES = {
    "letor": ("?.txt*", None),
    "parquet": ("*.parquet", None),
    "csv": ("all.csv", None),
    **{format: (f"{format}.tfrecord", format) for format in sets.RECORDS},
}


@pytest.fixture(scope="module")
def lists():
    return sets.made()


@pytest.fixture(scope="module")
def ingested(tmp_path_factory, lists):
    """The lists in each format, ingested."""
    folder = tmp_path_factory.mktemp("formats")
    for write in (sets.write_letor, sets.write_tables, sets.write_records):
        write(folder, lists)
    return {
        name: in_splits(
            folder / name,
            folder / pattern,
            Columns() if name == "letor" else sets.COLUMNS,
            format,
        )
        for name, (pattern, format) in FILES.items()
    }


def in_splits(folder, pattern, columns=sets.COLUMNS, format=None, **options):
    """Ingests the files of a pattern, divided by the hash of the query."""
    inputs = ingest.Inputs(expand([str(pattern)]), columns, sets.SHARES, format=format, **options)
    layout = inputs.schema()
    return layout, ingest.ingest(inputs, layout, folder)


def read(layout, done):
    spec = data.FeatureSpec(len(layout.names))
    return {
        split: {one.query_id: one for one in stored_lists.lists(shards, spec)}
        for split, shards in done.shards.items()
    }


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_lists_in_the_same_splits(ingested, lists, name):
    layout, done = ingested[name]
    expected = read(*ingested["letor"])
    found = read(layout, done)
    assert {split: set(of_split) for split, of_split in found.items()} == {
        split: set(of_split) for split, of_split in expected.items()
    }
    everything = {query: one for of_split in found.values() for query, one in of_split.items()}
    assert len(everything) == len(lists)
    for one in lists:
        other = everything[one.query_id]
        order = {doc_id: row for row, doc_id in enumerate(other.doc_ids)}
        rows = [order[doc_id] for doc_id in one.doc_ids]
        np.testing.assert_array_equal(other.features[rows], one.features)
        np.testing.assert_array_equal(other.labels[rows], one.labels)


def test_the_names_of_the_features_are_known(ingested):
    assert ingested["letor"][0].names == [f"features[{i}]" for i in range(1, 7)]
    assert ingested["csv"][0].names == [f"x{i}" for i in range(6)]
    assert ingested["elwc"][0].names == ["e[1]", "e[2]", "e[3]", "x", "y", "z"]
    assert ingested["elwc"][1].report["features"] == ingested["elwc"][0].names


@pytest.mark.parametrize("name", ["parquet", "csv", "elwc", "example"])
def test_the_context_of_a_query_stands_beside_its_list(ingested, lists, name):
    layout, done = ingested[name]
    assert layout.context == {"device": False, "age": True}
    records = tf.data.TFRecordDataset([s for found in done.shards.values() for s in found])
    spec = data.FeatureSpec(6)
    found = stored_lists.context(
        tf.constant(list(records.as_numpy_iterator())), spec, layout.context
    )
    numbers = {one.query_id: number for number, one in enumerate(lists)}
    for query, device, age in zip(found["query_id"], found["device"], found["age"], strict=True):
        expected = sets.context(numbers[query.decode()])
        assert {"device": device.decode(), "age": age} == expected


def test_a_split_depends_on_nothing_but_the_query():
    shares = {"train": 0.8, "validation": 0.1, "test": 0.1}
    splits = [ingest_counts.split_of(ingest_counts.hash_of(f"q{i}"), shares) for i in range(5000)]
    for split, share in shares.items():
        assert abs(splits.count(split) / 5000 - share) < 4 * (share * (1 - share) / 5000) ** 0.5
    assert splits[:8] == ["train"] * 8 or len(set(splits)) == 3
    assert ingest_counts.hash_of("q1") == ingest_counts.hash_of("q1") != ingest_counts.hash_of("q2")


def test_the_report_counts_what_is_doubtful(tmp_path):
    features = np.eye(2, dtype=np.float32)
    same = np.ones([2, 2], np.float32)
    lists = [
        data.ItemList("once", np.array([1.0, 0.0]), features, ("a", "b")),
        data.ItemList("twice", np.array([1.0, 0.0]), features, ("a", "b")),
        data.ItemList("one", np.array([1.0]), features[:1], ("a",)),
        data.ItemList("alike", np.array([1.0, 0.0]), same, ("a", "b")),
        data.ItemList("named", np.array([1.0, 0.0]), features, ("a", "a")),
        data.ItemList("agreed", np.array([1.0, 1.0]), same, ("a", "a")),
    ]
    letor.write(tmp_path / "a.txt", lists)
    letor.write(tmp_path / "b.txt", lists[1:2])
    inputs = ingest.Inputs(expand([str(tmp_path / "?.txt")], "train"))
    done = ingest.ingest(inputs, inputs.schema(), tmp_path / "out")
    assert done.report["splits"] == {
        "train": {
            "lists": 7,
            "items": 13,
            "empty_lists": 0,
            "one_item_lists": 1,
            "conflicting_lists": 2,
        }
    }
    places = [f"{tmp_path}/a.txt, list 2", f"{tmp_path}/b.txt, list 1"]
    assert done.report["duplicate_queries"] == {"count": 1, "first": [places]}
    assert done.report["rejected"] == {"count": 0, "rules": {}}
    assert not (tmp_path / "out" / "dead_letters.jsonl").exists()
    told = list(ingest.summary(done.report))
    assert told[0] == "train: 2 conflicting lists"
    assert told[1].startswith("1 queries occur more than once")


@pytest.mark.parametrize("others", [0, 1])
def test_queries_of_two_splits_are_told_with_the_files_of_both(tmp_path, others):
    for name, first in (("train", 0), ("test", 3), ("more", 10)):
        rows = (f"q{q},{q % 2 + i},{i}" for q in range(first, first + 5) for i in range(2))
        text = "\n".join(["query_id,relevance,x", *rows])
        (tmp_path / f"{name}.csv").write_text(f"{text}\n")
    named = [("train", "train"), ("test", "test"), *[("more", "test")] * others]
    inputs = ingest.Inputs(
        [Source(str(tmp_path / f"{name}.csv"), split) for name, split in named],
        Columns(features=("x",)),
    )
    layout = inputs.schema()
    done = ingest.ingest(inputs, layout, tmp_path / "out")
    both = [f"{tmp_path}/{x}.csv" for x in ("test", "train")]
    both[0] += " and 1 others" if others else ""
    duplicates = done.report["duplicate_queries"]
    assert duplicates["count"] == 2
    assert [sorted(x) for x in duplicates["first"]] == [both, both]
    assert done.report["shared_queries"] == {"test": 2}
    assert step.shared_queries(done.shards, layout.spec) == {"test": 2}
    again = {**done.shards, "train": [*done.shards["train"], *done.shards["test"]]}
    assert step.shared_queries(again, layout.spec) == {"test": 5 + 5 * others}


BAD_LETOR = (
    "1 qid:1 1:1 2:0\n0 qid:1 1:2\nbla\n1 qid:2 1:inf\n0 qid:2 2:5\n1 qid:2 2:2\n1 qid:1 1:3\n"
)


def bad_records():
    good = sets.example(relevance=1.0, x=2.0)
    return [
        sets.elwc([good], sets.example(query_id="a")),
        b"junk",
        sets.elwc([good, sets.example(relevance=1.0, x=np.nan)], sets.example(query_id="b")),
        sets.elwc([good, sets.example(x=1.0)], sets.example(query_id="c")),
        sets.elwc([], sets.example(query_id="d")),
        sets.elwc([good], sets.example()),
        writing.field(1, b"\xce\xff"),  # what TensorFlow cannot even quote
        sets.elwc([good], sets.example(query_id=b"\xe2")),
    ]


def test_what_is_left_out_is_in_the_dead_letters_with_its_place(tmp_path):
    (tmp_path / "bad.txt").write_text(BAD_LETOR)
    (tmp_path / "bad.csv").write_text(
        "query_id,relevance,x\na,1,2\na,0,3\nb,oops,1\nb,1\n,1,1\nc,-1,1\nd,1,nan\n"
    )
    sets.write(tmp_path / "bad.tfrecord", bad_records())
    expected = {
        "bad.txt": [
            ("line", 3, "`label qid:ID index:value ...`", "bla"),
            ("line", 4, "a feature must be a finite number", "1 qid:2 1:inf"),
            ("line", 7, "the lines of a query must be adjacent", "1 qid:1 1:3"),
        ],
        "bad.csv": [
            ("row", 3, "'relevance' must be a finite number that is not negative", None),
            ("row", 4, "a row must have 3 values. Received: 2", "b,1"),
            ("row", 5, "a row must have a query identifier", None),
            ("row", 6, "'relevance' must be", None),
            ("row", 7, "'x' must be a finite number. Received: 'nan'", None),
        ],
        "bad.tfrecord": [
            ("record", 2, "a record must be elwc, and text UTF-8. Received: Failed", None),
            ("record", 3, "'x' must be a finite number. Received: nan in item 2", None),
            ("record", 4, "'relevance' must be a finite number", None),
            ("record", 7, "a record must be elwc, and text UTF-8. Received: ", None),
            ("record", 8, "a record must be elwc, and text UTF-8. Received: \\xe2", None),
        ],
    }
    for name, letters in expected.items():
        found = expand([str(tmp_path / name)], "train")
        layout = ingest.Inputs(found).schema()
        folder = tmp_path / f"{name}.out"
        with pytest.raises(data.InputError, match=f"Received: {len(letters)}$"):
            ingest.ingest(ingest.Inputs(found, allow_bad_lines=1), layout, folder)
        inputs = ingest.Inputs(found, allow_bad_lines=len(letters))
        done = ingest.ingest(inputs, layout, folder)
        written = [json.loads(line) for line in (folder / "dead_letters.jsonl").open()]
        written.sort(key=lambda letter: letter["number"])
        assert len(written) == len(letters) == done.report["rejected"]["count"]
        for letter, (unit, number, reason, text) in zip(written, letters, strict=True):
            assert letter["file"] == str(tmp_path / name)
            assert (letter["unit"], letter["number"], letter["text"]) == (unit, number, text)
            assert reason in letter["reason"]
        if name == "bad.tfrecord":
            assert done.report["splits"]["train"]["empty_lists"] == 1
            ids = {
                one.query_id
                for one in stored_lists.lists(done.shards["train"], data.FeatureSpec(1))
            }
            assert "a" in ids
            assert len(ids) == 2  # one list has no name but its content


def test_adjacent_rows_need_no_grouping(tmp_path, lists):
    from pyarrow import parquet

    parquet.write_table(sets.table(lists), tmp_path / "rows.parquet")
    layout, done = in_splits(tmp_path / "out", tmp_path / "rows.parquet", adjacent=True)
    found = {q: one for of_split in read(layout, done).values() for q, one in of_split.items()}
    for one in lists:
        np.testing.assert_array_equal(found[one.query_id].features, one.features)
        assert found[one.query_id].doc_ids == one.doc_ids


class JsonLines(formats.TableReader):
    name = "jsonl"
    suffixes = (".jsonl",)

    def schema(self, path):
        return arrow_json.read_json(path).schema

    def tables(self, part, names):
        table = arrow_json.read_json(part.path)
        yield np.arange(1, table.num_rows + 1), table


def test_a_new_format_is_a_class_and_a_line(tmp_path, monkeypatch, lists):
    monkeypatch.setitem(formats.FORMATS, "jsonl", JsonLines)
    path = tmp_path / "all.jsonl"
    sets.table(lists).to_pandas().to_json(path, orient="records", lines=True, double_precision=15)
    layout, done = in_splits(tmp_path / "out", path)
    assert layout.names == [f"x{i}" for i in range(6)]
    found = {q: one for of_split in read(layout, done).values() for q, one in of_split.items()}
    by_users = {one.query_id: one for one in data.read(path, features=layout.names)}
    for one in lists:
        for other in (found[one.query_id], by_users[one.query_id]):
            assert other.doc_ids == one.doc_ids
            np.testing.assert_array_equal(other.features, one.features)


def test_rows_become_lists_wherever_chunks_end():
    roles = {
        "query": np.array(list("aabbbc"), np.object_),
        "item": np.full(6, "", np.object_),
        "label": np.arange(6, dtype=np.float32),
    }
    rows = Table(("t", np.arange(1, 7)), roles, np.ones([6, 1], np.float32))
    layout = Schema({"x": Number()})
    whole = list(adjacent([rows], layout))
    for cut in range(7):
        parts = [rows.take(slice(0, cut)), Rejected("t", "row", 9, "bad"), rows.take(slice(cut, 6))]
        found = [one for one in adjacent(parts, layout) if isinstance(one, Lists)]
        assert [query for one in found for query in one.queries] == ["a", "b", "c"]
        for [one], [other] in zip(found, whole, strict=True):
            np.testing.assert_array_equal(one.labels, other.labels)
            assert one.doc_ids == other.doc_ids


def layout(paths, format=None):
    return formats.reader(paths, Columns(), format).infer(paths)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: expand([f"{folder}/no*"]), "a pattern that matches no file"),
        (lambda folder: expand([f"{folder}/a.csv", f"{folder}/*.csv"]), "file again"),
        (lambda folder: layout([f"{folder}/a.csv", f"{folder}/a.parquet"]), "expected csv, as"),
        (lambda folder: layout([f"{folder}/a.csv"]), "a column 'query_id'. Received: ['q', 'y']"),
        (lambda folder: layout([f"{folder}/a.parquet"]), "expected a readable table"),
        (lambda folder: layout([f"{folder}/a.csv"], "elwc"), "expected a readable TFRecord file"),
        (lambda folder: layout([f"{folder}/no.csv"]), "No such file"),
    ],
    ids=["no file", "twice", "formats", "column", "parquet", "records", "missing"],
)
def test_what_cannot_be_read_is_told(tmp_path, make, reason):
    (tmp_path / "a.csv").write_text("q,y\n1,1\n")
    (tmp_path / "a.parquet").write_text("no table")
    with pytest.raises(data.InputError) as error:
        make(tmp_path)
    assert reason in str(error.value)
    with pytest.raises(ValueError, match="must differ"):
        Columns(query="a", label="a")


def test_a_list_without_items_is_empty_and_no_list():
    found = ingest_counts.Counts.of(
        [
            data.ItemList("q", np.arange(n), np.eye(n, dtype=np.float32), tuple(map(str, range(n))))
            for n in (0, 1, 2)
        ]
    )
    assert found == ingest_counts.Counts(lists=2, items=3, empty_lists=1, one_item_lists=1)
