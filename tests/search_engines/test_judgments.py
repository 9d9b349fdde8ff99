"""`tfrank-sel-engine judgments`: files of each tool become one table, or one line."""

import gzip
import json

import pytest
from pyarrow import parquet

from tests.search_engines.test_commands import refused, told


def of_json(**content):
    return json.dumps(content)


WORKBENCH = of_json(
    name="j",
    judgmentRatings=[
        {"query": "red", "ratings": [{"docId": "1", "rating": "1.0"}]},
        {
            "query": "blue",
            "ratings": [{"docId": "1", "rating": 0.5}, {"docId": "2", "rating": "0"}],
        },
    ],
)
RATED = [("red", "1", 1.0), ("blue", "1", 0.5), ("blue", "2", 0.0)]
JUDGED = {
    "workbench.json": (WORKBENCH, RATED),
    "answer.json": (of_json(hits={"hits": [{"_source": json.loads(WORKBENCH)}]}), RATED),
    "book.json": (
        of_json(
            query_doc_pairs=[
                {
                    "query_text": "red",
                    "doc_id": "007",
                    "judgements": [
                        {"rating": 3.0, "unrateable": False, "user_email": "a@b.c"},
                        {"rating": 2.0, "unrateable": False},
                        {"rating": None, "judge_later": True},
                        {"rating": 0.0, "unrateable": True},
                    ],
                },
                {"query_text": "red", "doc_id": "8", "judgements": []},
            ]
        ),
        [("red", "007", 2.5)],
    ),
    "case.json": (of_json(queries=[{"query": "red", "ratings": {"8": 2}}]), [("red", "8", 2.0)]),
    "case.csv": (
        "query,docid,rating\n -red,007,2\nblue,,\nred,1e5,0\n",
        [("-red", "007", 2.0), ("red", "1e5", 0.0)],
    ),
    "qrels": ("1 0 a 2\n1 0 b -1\n2 0 a 0\n", [("1", "a", 2.0), ("2", "a", 0.0)]),
    "digest.json": (
        of_json(digest="of another tool", queries=[{"query": "red", "ratings": {"8": 2}}]),
        [("red", "8", 2.0)],
    ),
    "demo.txt": (
        "# qid:1: rambo*2\n# qid:2: rocky\n\n4\tqid:1 #\t7555\tRambo\n3\tqid:2\t#\tII 7\tRocky\n",
        [("rambo", "7555", 4.0), ("rocky", "II 7", 3.0)],
    ),
    "below.txt": (
        "4 qid:1 # 7555 a\ttab\n# qid: 1: size 2*3\n2 qid:2 # b\n#qid:2 : red *2\n",
        [("size 2*3", "7555", 4.0), ("red", "b", 2.0)],
    ),
    "nameless.csv": ("query,docid,\nred,7,2\n", [("red", "7", 2.0)]),
    "letor.txt": (
        "2 qid:7 1:0.5 2:1e-3 #docid = a inc = 1 prob = 0.5\n0 qid:7 1:0 2:0 # b rambo\n",
        [("7", "a", 2.0), ("7", "b", 0.0)],
    ),
}
JUDGED |= {"case.tsv": (JUDGED["case.csv"][0].replace(",", "\t"), JUDGED["case.csv"][1])}


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["", ".gz", "of Windows"])
@pytest.mark.parametrize("name", JUDGED)
def test_judgments_of_each_tool_are_one_table(tmp_path, name, kind):
    text, expected = JUDGED[name]
    content, path = text.encode(), tmp_path / f"{name}{kind if kind == '.gz' else ''}"
    if kind == "of Windows":
        content = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    path.write_bytes(gzip.compress(content) if kind == ".gz" else content)
    told("judgments", path, "--output", tmp_path / "j.parquet")
    table = parquet.read_table(tmp_path / "j.parquet")
    assert table.column_names == ["query_id", "doc_id", "relevance"]
    assert [tuple(x.values()) for x in table.to_pylist()] == expected


def of_ratings(rating):
    return f'{{"queries": [{{"query": "red", "ratings": {{"8": {rating}}}}}]}}'


NO_RATING = "'rating' must be a number of 0 or more. Received: "


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "query,docid,rating\nq,a,1_000\n", f"x.csv, row 1: {NO_RATING}'1_000'"),
        ("x.csv", "query,docid,rating\n\nq,a,true\n", f"x.csv, row 1: {NO_RATING}'true'"),
        ("x.csv", "query,docid,Ann,Ann\nq,a,0,3\n", "x.csv: expected one column 'Ann'; rename"),
        ("x.json", of_ratings("true"), f"x.json, row 1: {NO_RATING}'true'"),
        ("x.json", of_ratings('1, "8": 2'), "each field must occur once. Received twice: ['8']"),
        ("x.txt", "1 qid:1 # a\n1 qid:1 1:2\n", "row 2: expected `grade qid:query # document`"),
        ("x.txt", "1 qid:1 #\n", "x.txt, row 1: expected `grade qid:query # document`"),
        ("x.txt", "# qid:1: red\n1 qid:2 # a\n", "row 2: expected a line `# qid:2: text of"),
        ("x.txt", "# qid:1: red\n# qid:1: blue\n1 qid:1 # a\n", "expected one text of qid:1"),
        ("x.txt", "high qid:1 # a\n", f"x.txt, row 1: {NO_RATING}'high'"),
    ],
)
def test_what_is_no_judgment_is_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    line = refused("judgments", tmp_path / name, "--output", tmp_path / "j.parquet")
    assert message in line


def test_books_of_several_judges_tell_how_they_agree(tmp_path):
    (tmp_path / "a.csv").write_text("query,docid,A,B\nq,1,3,2\nq,2,1,1\nq,3,,1\nq,4,0,\n")
    line = told("judgments", tmp_path / "a.csv", "--output", tmp_path / "j.parquet")
    # of the ratings 3, 2, 1, 1: 1 - (1 / 4) / (2 * 11 / 12)
    assert "4 documents of 1 queries" in line
    assert "2 judged more than once (Krippendorff's alpha 0.73)\njudges: A, B" in line


def test_ratings_of_several_files_are_those_of_one(tmp_path):
    (tmp_path / "ann.csv").write_text("query,docid,rating\nred,007,1\nred,7,3\n")
    (tmp_path / "BEN.CSV").write_text("\ufeffquery,docid,rating\nred,007,3\n,,\n")
    content = of_json(queries=[{"query": "red", "ratings": {"007": None, "7": 1}}])
    (tmp_path / "c.json").write_text(content)
    files = [tmp_path / x for x in ("ann.csv", "BEN.CSV", "c.json")]
    line = told("judgments", *files, "--output", tmp_path / "j.parquet")
    assert "2 documents of 1 queries" in line
    assert "2 judged more than once" in line
    table = parquet.read_table(tmp_path / "j.parquet").to_pylist()
    assert [tuple(x.values()) for x in table] == [("red", "007", 2.0), ("red", "7", 2.0)]


@pytest.mark.parametrize("odd", [None, "", [1], {"a": 1}, "\ud800", 2.0**60])
def test_a_judgment_names_a_query_and_a_document(tmp_path, odd):
    rated, path = [{"rating": 1}], tmp_path / "x.json"
    for name, role in (("query_text", "query"), ("doc_id", "item")):
        pair = {"query_text": "a", "doc_id": "1", name: odd, "judgements": rated}
        path.write_text(of_json(query_doc_pairs=[pair]))
        line = refused("judgments", path, "--output", tmp_path / "j.parquet")
        assert line.startswith(f"{path}, row 1: {role!r} must be UTF-8 text")
    (tmp_path / "x.csv").write_bytes(b"query,docid,rating\n\xe9,1,1\n")
    line = refused("judgments", tmp_path / "x.csv", "--output", tmp_path / "j.parquet")
    assert "x.csv, row 1: 'query' must be UTF-8 text" in line
