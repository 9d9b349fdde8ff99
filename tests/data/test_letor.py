import gzip

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from tfrank_sel import data
from tfrank_sel.data import letor, lines
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected


def written(tmp_path, text):
    path = tmp_path / "lists.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path, num_features=3):
    return list(letor.read(path, num_features))


def test_a_line_is_an_item_and_a_missing_feature_is_zero(tmp_path):
    path = written(tmp_path, "2 qid:7 1:0.5 3:-1e2\n0 qid:7\n1 qid:8 2:3 # docid = GX1 inc = 1\n")
    first, second = read(path)
    assert (first.query_id, second.query_id) == ("7", "8")
    np.testing.assert_array_equal(first.labels, [2.0, 0.0])
    np.testing.assert_array_equal(first.features, [[0.5, 0.0, -100.0], [0.0, 0.0, 0.0]])
    assert first.features.dtype == first.labels.dtype == np.float32
    assert first.doc_ids == ("7:1", "7:2")
    assert second.doc_ids == ("GX1",)


def test_gzip_windows_line_ends_tabs_blank_lines_and_any_order_of_indices_read(tmp_path):
    plain = b"# a comment\r\n\r\n1\tqid:7\t3:1  1:2 \r\n  \n0 qid:7 1:5\r\n"
    packed = tmp_path / "lists.txt.gz"
    packed.write_bytes(gzip.compress(plain))
    for path in (packed, written(tmp_path, plain)):
        [only] = read(path)
        np.testing.assert_array_equal(only.features, [[2.0, 0.0, 1.0], [5.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 1:0.5", "qid:ID"),
        ("1", "qid:ID"),
        ("1 qid: 1:0.5", "qid:ID"),
        ("x qid:2 1:0.5", "label .* Received: 'x'"),
        ("-1 qid:2 1:0.5", "label .* Received: '-1'"),
        ("nan qid:2 1:0.5", "label .* Received: 'nan'"),
        ("inf qid:2 1:0.5", "label .* Received: 'inf'"),
        ("1 qid:2 1:abc", "finite number. Received: '1:abc'"),
        ("1 qid:2 1:nan", "finite number. Received: '1:nan'"),
        ("1 qid:2 1:1e39", "finite number. Received: '1:1e39'"),
        ("1 qid:2 1:", "finite number. Received: '1:'"),
        ("1 qid:2 1:2:3", "finite number. Received: '1:2:3'"),
        ("1 qid:2 0:1", r"1\.\.3. Received: '0:1'"),
        ("1 qid:2 -1:1", r"1\.\.3. Received: '-1:1'"),
        ("1 qid:2 4:1", r"1\.\.3. Received: '4:1'"),
        ("1 qid:2 1.5:1", r"1\.\.3. Received: '1.5:1'"),
        ("1 qid:2 x:1", r"1\.\.3. Received: 'x:1'"),
        ("1 qid:2 7", r"1\.\.3. Received: '7'"),
        ("1 qid:2 1:2:3 4", r"Received: '1:2:3'"),
        ("1 qid:2 1-1:2 3:", r"Received: '1-1:2'"),
        ("1 qid:2 2:1 2:3", "once. Received: 2 again"),
        ("1 qid:1 2:1", "adjacent. Received again: 'qid:1'"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(tmp_path, line, reason):
    path = written(tmp_path, f"1 qid:1 1:1\n0 qid:2 1:1 3:2\n{line}\n0 qid:3 1:1\n")
    with pytest.raises(data.InputError, match=rf"{path}:3: .*{reason}") as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_reading_goes_on_after_bad_lines_if_asked(tmp_path):
    path = written(tmp_path, "1 qid:1 1:1\n0 qid:1 1:x\n0 qid:2 9:1\n2 1:1\n1 qid:3 2:4\n")
    found = list(letor.scan(path, 3))
    lists = [one for some in found if isinstance(some, Lists) for one in some]
    assert [(one.query_id, len(one.labels)) for one in lists] == [("1", 1), ("3", 1)]
    bad = sorted((one.place, one.text) for one in found if isinstance(one, Rejected))
    assert bad == [
        (f"{path}:2", "0 qid:1 1:x"),
        (f"{path}:3", "0 qid:2 9:1"),
        (f"{path}:4", "2 1:1"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "an empty file"), ("\n # nothing\n", "no list in the whole file")],
)
def test_a_file_without_lists_is_refused(tmp_path, text, reason):
    path = written(tmp_path, text)
    for use in (read, letor.num_features):
        with pytest.raises(data.InputError, match=f"{path}: .*{reason}"):
            use(path)


def test_a_missing_and_a_broken_file_are_refused(tmp_path):
    with pytest.raises(data.InputError, match=r"none.txt: .*no such file"):
        read(tmp_path / "none.txt")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"1 qid:1 1:1\n" * 99)[:-9])
    with pytest.raises(data.InputError, match=r"broken.gz: expected a readable file"):
        read(broken)


@pytest.mark.parametrize("bad", ["x:1", "1:nan", "9:inf", "1:1 9:-inf"])
def test_the_largest_index_is_that_of_the_good_lines(tmp_path, bad):
    text = f"1 qid:1 1:1 7:0\n0 qid:1 {bad}\n0 qid:2 3:1\n"
    assert letor.num_features(written(tmp_path, text)) == 7


@pytest.mark.parametrize("bad", ["1 qid:1 1:nan", "0 qid:1 2:-inf", "1 sid:1 1:2", "1 qid:1 x:1"])
def test_if_no_line_is_good_the_first_one_is_named(tmp_path, bad):
    with pytest.raises(data.InputError, match=rf"lists.txt:2: .* Received: '.*{bad[-3:]}'"):
        letor.num_features(written(tmp_path, f"# lists\n{bad}\n{bad}\n"))


def test_the_largest_index_is_bounded(tmp_path):
    with pytest.raises(data.InputError, match="lines without any"):
        letor.num_features(written(tmp_path, "1 qid:1\n"))
    with pytest.raises(data.InputError, match=r"lists.txt:2: .* Received: '1000000:1'"):
        letor.num_features(written(tmp_path, "1 qid:1 1:1\n1 qid:1 1000000:1\n"))


def test_an_identifier_that_would_not_read_back_is_not_written():
    features = np.zeros([1, 1], np.float32)
    for query_id, doc_id in (("a b", "d"), ("a#b", "d"), ("", "d"), ("q", "d e"), ("q", "")):
        with pytest.raises(ValueError, match="one word"):
            letor.text(data.ItemList(query_id, np.zeros(1), features, (doc_id,)))


def test_a_file_stays_as_it_was_if_a_list_cannot_be_written(tmp_path):
    path = written(tmp_path, "1 qid:1 1:1\n")
    lists = [data.ItemList(name, np.zeros(1), np.zeros([1, 1], "f"), ("d",)) for name in ("q", "")]
    with pytest.raises(ValueError, match="one word"):
        letor.write(path, lists)
    assert path.read_text() == "1 qid:1 1:1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_lists_of_other_widths_than_can_be_read_are_refused(tmp_path):
    lists = [
        data.ItemList(q, np.zeros(1), np.zeros([1, n], "f"), (q,)) for q, n in (("a", 2), ("b", 3))
    ]
    with pytest.raises(ValueError, match=r"must have 2 features, as the first. Received: 3"):
        letor.write(tmp_path / "lists.txt", lists)
    wide = data.ItemList("q", np.zeros(1), np.zeros([1, letor.MAX_FEATURES + 1], "f"), ("d",))
    with pytest.raises(ValueError, match=r"at most 100000 features. Received: 100001"):
        letor.text(wide)


def test_parts_of_a_list_must_agree():
    with pytest.raises(ValueError, match=r"same items.*'labels': 2"):
        data.ItemList("q", np.zeros(2), np.zeros([1, 3]), ("a",))


words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1).filter(
    lambda word: word.split() == [word] and "#" not in word
)


@st.composite
def item_lists(draw):
    size, width = draw(st.integers(1, 4)), 3
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    return data.ItemList(
        query_id=draw(words),
        labels=np.array(
            draw(st.lists(st.floats(0, 9, width=32), min_size=size, max_size=size)), "f"
        ),
        features=np.array(
            draw(st.lists(floats, min_size=size * width, max_size=size * width)), "f"
        ).reshape(size, width),
        doc_ids=tuple(draw(st.lists(words, min_size=size, max_size=size))),
    )


@given(st.lists(item_lists(), min_size=1, max_size=3, unique_by=lambda found: found.query_id))
def test_what_is_written_reads_back_the_same(tmp_path_factory, lists):
    path = tmp_path_factory.mktemp("letor") / "lists.txt.gz"
    letor.write(path, lists)
    for was, found in zip(lists, read(path), strict=True):
        assert (was.query_id, was.doc_ids) == (found.query_id, found.doc_ids)
        np.testing.assert_array_equal(was.labels, found.labels)
        np.testing.assert_array_equal(was.features, found.features)


@given(st.lists(st.text("0123:. -+e1na", max_size=12), min_size=1, max_size=4))
@example(["1:0a"])
def test_a_list_is_read_at_once_exactly_if_each_line_is_good(bodies):
    bodies = [body.encode() for body in bodies]
    at_once = letor._dense(bodies, 3)
    try:
        one_by_one = np.stack([letor._row(body, 3) for body in bodies])
    except ValueError:
        one_by_one = None
    if one_by_one is None:
        assert at_once is None
    elif at_once is not None:
        np.testing.assert_array_equal(at_once, one_by_one)


def test_a_file_is_replaced_by_all_of_the_new_one_or_stays(tmp_path):
    path = tmp_path / "lists.txt"
    letor.write(path, [item_list("old")])
    with pytest.raises(ValueError, match="must be one word"):
        letor.write(path, [item_list("new"), item_list("two words")])
    assert [found.query_id for found in letor.read(path, num_features=1)] == ["old"]
    assert list(tmp_path.iterdir()) == [path]


def item_list(query_id):
    return data.ItemList(query_id, np.ones(1), np.ones([1, 1]), ("a",))


def test_a_compressed_line_that_is_too_long_is_refused_before_it_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PART", 100)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"1 qid:1 1:1\n" + b"1 " * 100))
    with pytest.raises(data.InputError, match=r"a\.txt\.gz: expected lines of at most 100 bytes"):
        list(letor.read(path, 1))
