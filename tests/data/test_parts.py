"""Files that are read part by part: together, the parts hold what the whole file does."""

import itertools

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings, strategies as st
from pyarrow import parquet

from tfrank_sel.data import formats, lines
from tfrank_sel.data.formats import Columns, Part, Schema
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.features import REFUSE, Number

ENDS = st.sampled_from([b"\n", b"\r\n"])
LONGEST = 16  # lines from the first of a list to the next
NAMES = b"query_id,relevance,x"
LAYOUT = Schema({"x": Number(missing=REFUSE)})


def letor_line(query, value):
    return f"{value} qid:{query} 1:{value} # docid = d{value}".encode()


def csv_line(query, value):
    return f'"{query}",{value},{value}'.encode()


def tsv_line(query, value):
    return f"{query}\t{value}\t{value}".encode()


def jsonl_line(query, value):
    return b'{"query_id": "%d", "relevance": %d, "x": %d}' % (query, value, value)


KINDS = {
    "letor": (letor_line, b"", [b"", b"  \t", b"# no item", b"bad", b"1 qid:Q 1:x", b"1 qid:\xff"]),
    "csv": (
        csv_line,
        NAMES,
        [b"", b"1,2", b'"1",1,oops', b",1,1", b'"a ""b""",-1,0', b'"a,b",1,?'],
    ),
    "tsv": (tsv_line, NAMES.replace(b",", b"\t"), [b"", b"1\t2", b"1\t1\toops", b"\t1\t1"]),
    "jsonl": (jsonl_line, b"", [b"", b"  ", b"{bad", b"3", b'{"relevance": 1, "x": 1}']),
}


@st.composite
def files(draw, name):
    """A file whose lists stand together, with other lines among them, and places to cut it."""
    line, head, others = KINDS[name]
    found = [head] if head else []
    for query in range(draw(st.integers(1, 6))):
        for value in range(draw(st.integers(1, 5))):
            among = draw(st.lists(st.sampled_from(others), max_size=2))
            found += [other.replace(b"Q", b"%d" % query) for other in among]
            found.append(line(query, value))
    end = draw(ENDS)
    content = end.join(found) + draw(st.sampled_from([b"", end, 2 * end]))
    cuts = draw(st.lists(st.integers(LONGEST, len(content)), max_size=6))
    starts = [0]
    for cut in sorted(cuts):
        if cut >= starts[-1] + LONGEST:  # no part has fewer bytes than a list has lines
            starts.append(cut)
    return content, starts


def parted(path, starts):
    return [Part(path, *x) for x in zip(starts, [*starts[1:], None], strict=True)]


def written(folder, name, made):
    """The path of a drawn file, and where its parts begin."""
    content, starts = made.draw(files(name))
    path = folder / f"a.{name}"
    path.write_bytes(content)
    return path, starts


def plain(lists):
    return [(x.query_id, x.labels.tolist(), x.features.tolist(), x.doc_ids) for x in lists]


def read(reader, parts):
    """The lists of parts, and what is rejected, by its number in the file."""
    found = [x for part in parts for x in reader.lists(part, LAYOUT)]
    rejected = [x for x in found if isinstance(x, Rejected)]
    rejected = reader.with_file_rows(rejected, {parts[0].path: parts})
    lists = plain(x for some in found if isinstance(some, Lists) for x in some)
    return lists, sorted(rejected, key=lambda x: (x.number or 0, x.reason))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parts")


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=40)
@given(made=st.data())
def test_the_lists_of_all_parts_are_those_of_the_file(folder, name, made):
    path, starts = written(folder, name, made)
    reader = formats.FORMATS[name](Columns(features=["x"], num_features=1))
    assert read(reader, parted(str(path), starts)) == read(reader, [Part(str(path))])


@pytest.mark.parametrize("name", ["csv", "tsv"])
def test_a_row_of_another_width_is_told_by_its_number(folder, name):
    line, head, others = KINDS[name]
    path = folder / f"width.{name}"
    path.write_bytes(b"\n".join([head, line(1, 1), others[1], line(1, 2)]))
    reader = formats.FORMATS[name](Columns(features=["x"], num_features=1))
    _, [rejected] = read(reader, [Part(str(path))])
    assert rejected.number == 2


@pytest.mark.long
@pytest.mark.parametrize("name", ["csv", "tsv", "jsonl"])
@settings(max_examples=40)
@given(made=st.data())
def test_the_rows_of_all_parts_are_those_of_the_file_in_order(folder, name, made):
    path, starts = written(folder, name, made)
    reader = formats.FORMATS[name](Columns(features=["x"]))
    found = []
    for parts in (parted(str(path), starts), [Part(str(path))]):
        each = [reader.rows(part, LAYOUT) for part in parts]
        rows = [x for x in itertools.chain(*each) if not isinstance(x, Rejected)]
        numbers = np.concatenate([x.place[1] for x in rows] or [[]])
        assert np.all(np.diff(numbers) > 0)  # which the items of a list are ordered by
        found.append(
            [(q, x) for one in rows for q, x in zip(one["query"], one["label"], strict=True)]
        )
    assert found[0] == found[1]


@pytest.mark.long
@settings(deadline=None, max_examples=500)
@given(rows=st.text('ab",\n\r', min_size=1, max_size=30), cut=st.integers(1, 40))
def test_a_delimited_file_is_cut_only_where_a_row_ends(folder, rows, cut):
    """What pyarrow makes of any two ranges is what it makes of the file."""
    path = folder / "any.csv"
    path.write_bytes(b"a,b\n" + rows.encode())
    reader = formats.FORMATS["csv"](Columns())
    if not reader._is_by_line(str(path)):
        return

    def texts(parts):
        tables = [x for part in parts for x in reader.tables(part, ["a", "b"])]
        return [
            tuple(y.values())
            for x in tables
            if not isinstance(x, Rejected)
            for y in x[1].to_pylist()
        ]

    assert texts(parted(str(path), [0, cut])) == texts([Part(str(path))])


@pytest.mark.parametrize(
    ("content", "is_cut"),
    [
        (b'a,b\n1,"x y"\n"1 ""2""","3,4"\r\n' * 9, True),
        (b'a,b\n1,"x\ny"\n' * 9, False),
        (b'a,b\n1,5" pipe\n' * 9, False),
        (b"a,b\r1,2\r" * 9, False),
        (b"\na,b\n" + b"1,2\n" * 9, False),
    ],
    ids=["quotes", "line end in a value", "lone quote", "carriage returns", "blank line first"],
)
def test_a_file_whose_lines_may_not_be_rows_is_one_part(tmp_path, monkeypatch, content, is_cut):
    monkeypatch.setattr(lines, "PART", 16)
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert (len(formats.reader([str(path)]).parts(str(path))) > 1) == is_cut


def test_parts_are_of_about_the_same_size_and_compressed_files_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PART", 100)
    path = str(tmp_path / "a.txt")
    for size, expected in ((0, [0]), (100, [0]), (101, [0, 50]), (250, [0, 83, 166])):
        (tmp_path / "a.txt").write_bytes(b"x" * size)
        assert lines.cuts(path) == expected
        assert formats.reader([path]).parts(path) == parted(path, expected)
    (tmp_path / "a.jsonl.bz2").write_bytes(b"x" * 500)
    path = str(tmp_path / "a.jsonl.bz2")
    assert formats.reader([path]).parts(path) == [Part(path)]


@pytest.mark.long
@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    group=st.integers(1, 7),
    step=st.integers(1, 3),
)
def test_adjacent_rows_of_parquet_are_whole_lists_wherever_row_groups_end(
    folder, sizes, group, step
):
    queries = [str(query) for query, size in enumerate(sizes) for _ in range(size)]
    values = list(range(len(queries)))
    table = pyarrow.table({"query_id": queries, "relevance": values, "x": values})
    path = str(folder / "a.parquet")
    parquet.write_table(table, path, row_group_size=group)
    reader = formats.reader([path])
    starts = [part.start for part in reader.parts(path)][::step]
    assert read(reader, parted(path, starts)) == read(reader, [Part(path)])
    assert len(read(reader, reader.parts(path))[0]) == len(sizes)


def test_a_value_with_a_line_end_is_read_wherever_blocks_end(tmp_path):
    """3 MB of them, of which pyarrow reads 1 MiB at once."""
    path = tmp_path / "a.csv"
    path.write_bytes(NAMES + b"\n" + b'"%s\n",1,2\n' % (b"q" * 90) * 30_000)
    rows = formats.reader([str(path)]).rows(Part(str(path)), LAYOUT)
    assert sum(map(len, rows)) == 30_000
