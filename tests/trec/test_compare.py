"""Comparison and fusion of runs, beside scipy and pytrec_eval, and its command line."""

import collections
import dataclasses
import itertools
import json
import math
import pathlib
import re
from typing import Any

import hypothesis
import keras
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import typer.testing
from hypothesis import strategies as st

from tests import refusals
from tfrank_sel import metrics
from tfrank_sel.data import InputError
from tfrank_sel.data.trec import read_qrels, read_run
from tfrank_sel.metrics import significance
from tfrank_sel.trec import Comparison, runs as trec
from tfrank_sel.trec.__main__ import app

pytestmark = pytest.mark.usefixtures("eagerly")

QRELS = {"1": {"a": 2, "b": 0, "c": 1}, "2": {"a": 1, "b": 0}, "3": {"a": 0, "b": 1}}
OLD = {"1": {"b": 3.0, "a": 2.0, "z": 1.0}, "2": {"b": 2.0, "a": 1.0}, "9": {"a": 1.0}}
NEW = {"1": {"a": 3.0, "c": 2.0}, "2": {"b": 2.0, "a": 1.0}, "3": {"b": 0.5}}

scores = st.dictionaries(
    st.sampled_from("123"),
    st.dictionaries(st.sampled_from("abcz"), st.integers(0, 3), min_size=1),
    min_size=1,
)


def compared(a: Any, b: Any, **options: Any) -> Comparison:
    measures = [metrics.MRR(name="mrr"), metrics.NDCG(2, name="ndcg")]
    return metrics.compare({"a": a, "b": b}, QRELS, measures, resamples=200, **options)


def test_a_query_that_a_run_lacks_has_the_value_of_an_empty_ranking() -> None:
    [mrr, _] = compared(OLD, NEW).differences
    assert (mrr.queries, mrr.wins, mrr.ties, mrr.losses) == (3, 2, 1, 0)
    np.testing.assert_allclose([mrr.mean_a, mrr.mean_b], [1 / 3, 2.5 / 3], rtol=1e-6)
    np.testing.assert_allclose(mrr.difference, 0.5, rtol=1e-6)


def test_a_metric_decides_whether_a_query_without_relevant_documents_counts() -> None:
    qrels, run = {"1": {"a": 1}, "2": {"a": 0}}, {"1": {"a": 1.0}, "2": {"a": 1.0}}
    defined = metrics.MRR(name="defined", averaging=metrics.averaging.DefinedLists())
    found = metrics.compare({"x": run, "y": run}, qrels, [metrics.MRR(), defined], resamples=10)
    assert [(x.queries, x.mean_a) for x in found.differences] == [(2, 0.5), (1, 1.0)]
    assert math.isnan(found.values["x"]["defined"][1])
    assert found.most_different("defined", "x", "y") == []
    assert metrics.compare(
        {"x": run, "y": {"1": {"z": 1.0}}}, qrels, [defined], resamples=10
    ).most_different("defined", "x", "y")


@hypothesis.given(scores)
@hypothesis.settings(deadline=None, max_examples=10)
def test_a_run_does_not_differ_from_itself(run: dict[str, dict[str, int]]) -> None:
    for one in compared(run, run).differences:
        assert one.difference == one.low == one.high == 0.0
        assert one.p_t == one.p_randomisation == one.holm_t == one.holm_randomisation == 1.0
        assert (one.wins, one.ties, one.losses) == (0, 3, 0)


@hypothesis.given(scores, scores)
@hypothesis.settings(deadline=None, max_examples=10)
def test_swapped_runs_negate_the_difference(a: Any, b: Any) -> None:
    pairs = zip(compared(a, b).differences, compared(b, a).differences, strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(
            [one.difference, one.low, one.high, one.p_t, one.p_randomisation],
            [-other.difference, -other.high, -other.low, other.p_t, other.p_randomisation],
            atol=1e-12,
        )
        assert (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)


def test_holm_is_over_all_metrics_and_pairs_of_runs() -> None:
    measures = trec.measures(["map", "P.1"])
    found = metrics.compare({"x": OLD, "y": NEW, "z": OLD}, QRELS, measures, resamples=100)
    assert [(x.a, x.b) for x in found.differences[:3]] == [("x", "y"), ("x", "z"), ("y", "z")]
    raw = np.array([x.p_t for x in found.differences])
    corrected = [x.holm_t for x in found.differences]
    np.testing.assert_array_equal(corrected, significance.holm(raw))
    assert len(raw) == 6
    assert min(corrected) == min(1.0, 6 * raw.min())


def test_slices_are_compared_alone_and_leave_the_whole_as_it_is() -> None:
    plain = compared(OLD, NEW).differences
    found = compared(OLD, NEW, slices={"1": "x", "2": "x", "3": "y", "other": "w"}).differences
    assert list(found[:2]) == list(plain)
    assert [(x.slice, x.queries) for x in found[2:]] == [("x", 2)] * 2 + [("y", 1)] * 2
    assert [x.difference for x in found if x.metric == "mrr"] == [0.5, 0.25, 1.0]


def test_a_comparison_of_many_slices_fits_a_screen() -> None:
    shown = compared(OLD, NEW, slices={"1": "x", "2": "y", "3": "z"})
    assert repr(shown) == shown.markdown()
    many = dataclasses.replace(shown, differences=[*shown.differences] * 9)
    assert len(repr(many).splitlines()) < 25
    assert repr(many).endswith(f"and {len(many.differences) - 20} more: see `differences`")


def test_values_are_those_of_pytrec_eval() -> None:
    peer = pytest.importorskip("pytrec_eval")
    random = np.random.default_rng(0)
    documents = [f"d{i}" for i in range(30)]
    qrels = {
        str(q): {d: int(random.integers(0, 3)) for d in documents if random.random() < 0.7}
        for q in range(20)
    }
    runs = {
        name: {
            str(q): {d: float(random.integers(9)) for d in documents if random.random() < 0.7}
            for q in range(20)
        }
        for name in "ab"
    }
    names = ["map", "recip_rank", "ndcg_cut.10", "P.5", "bpref"]
    found = metrics.compare(runs, qrels, trec.measures(names), resamples=10)
    evaluator = peer.RelevanceEvaluator(qrels, set(names))
    for name, run in runs.items():
        theirs = evaluator.evaluate(run)
        for metric, values in found.values[name].items():
            expected = [theirs[query][metric] for query in found.queries]
            np.testing.assert_allclose(values, expected, atol=1e-9)


@pytest.mark.parametrize(
    "kind", ["pandas", "polars", "arrow", "columns", "dicts", "records", "file"]
)
def test_a_run_is_read_from_any_form(kind: str, tmp_path: pathlib.Path) -> None:
    names = ["query_id", "doc_id", "score"]
    rows = [(query, d, score) for query, found in OLD.items() for d, score in found.items()]
    path = tmp_path / "a.run"
    path.write_text("".join(f"{q} Q0 {d} 1 {s} t\n" for q, d, s in rows))
    Scored = collections.namedtuple("Scored", names)
    forms = {
        "pandas": pd.DataFrame(rows, columns=names),
        "polars": pl.DataFrame(rows, schema=names, orient="row"),
        "arrow": pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))),
        "columns": dict(zip(names, zip(*rows, strict=True), strict=True)),
        "dicts": [dict(zip(names, row, strict=True)) for row in rows],
        "records": (Scored(*row) for row in rows),
        "file": path,
    }
    assert trec.run_of(forms[kind]) == OLD


SPELT = [
    *([1, 2], [1.0, 2.0], np.array([1, 2], np.uint64), np.array([1, 2], np.float32)),
    *(["1", "2"], [b"1", b"2"], pd.array([1, 2], "Int64"), pd.Categorical(["1", "2"])),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("documents", SPELT)
@pytest.mark.parametrize("queries", SPELT)
def test_ids_have_one_spelling_in_any_form(queries: Any, documents: Any) -> None:
    names = ["query_id", "doc_id", "score"]
    frame = pd.DataFrame(dict(zip(names, [queries, documents, [0.5, 2]], strict=True)))
    rows = list(zip(queries, documents, [0.5, 2], strict=True))
    Scored = collections.namedtuple("Scored", names)
    nested = {query: {document: score} for query, document, score in rows}
    for source in (frame, nested, itertools.starmap(Scored, rows)):
        assert trec.run_of(source) == {"1": {"1": 0.5}, "2": {"2": 2.0}}


@pytest.mark.parametrize("wrong", [None, math.nan, "", "\ud800", 2.0**53])
def test_an_id_that_is_none_is_refused_in_any_form(wrong: Any) -> None:
    Scored = collections.namedtuple("Scored", ["query_id", "doc_id", "score"])
    texts = ["a" if isinstance(wrong, str | None) else 1.0, wrong]
    table = {"query_id": [1, 1], "doc_id": texts, "score": [1, 2]}
    for source in (table, {1: {wrong: 1.0}}, {wrong: {1: 1.0}}, [Scored(1, wrong, 1.0)]):
        with pytest.raises(InputError, match="_id' must be UTF-8 text, or a number"):
            trec.run_of(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (pd.DataFrame({"query_id": [1]}), r"expected a column 'doc_id'\. Received: \['query_id'\]"),
        ([("q", "a", 1.0)], r"Expected records with query_id, doc_id, score.*'q'"),
        ({"q": {"a": math.nan}}, "must be a finite number. Received: nan, query q, document a"),
        ({"q": {"a": "1"}}, "must be a finite number. Received: '1', query q, document a"),
        ({"a": 1.0}, "a dictionary of documents of query a. Received: 1.0"),
        (
            pd.DataFrame({"query_id": [1, 1], "doc_id": [2, 2], "score": [0, 0]}),
            "Query 1 has document 2 more than once",
        ),
        (
            {"query_id": [1], "doc_id": [2], "score": ["1_000"]},
            "row 0: 'score' must be a finite number. Received: '1_000'",
        ),
        (3, "Received: int"),
    ],
)
def test_a_wrong_source_is_named(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trec.run_of(source)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"two runs or more, by name. Received: \['a'\]"):
        metrics.compare({"a": OLD}, QRELS, [metrics.MRR()])
    with pytest.raises(ValueError, match="two runs or more, by name"):
        metrics.compare([OLD, NEW], QRELS, [metrics.MRR()])
    for given in ([], ["ndcg"], "ndcg", [keras.metrics.Mean()]):
        with pytest.raises(ValueError, match=r"must be a list of metrics of lists\. Received: "):
            metrics.compare({"a": OLD, "b": NEW}, QRELS, given)
    with pytest.raises(ValueError, match="`resamples` must be a positive integer"):
        metrics.compare({"a": OLD, "b": NEW}, QRELS, [metrics.MRR()], resamples=0)
    for slices, message in ((["x"], "must map queries"), ({"1": "all"}, "must not contain.*all")):
        with pytest.raises(ValueError, match=message):
            compared(OLD, NEW, slices=slices)
    with pytest.raises(ValueError, match=r"'slice' must be .* Received: \['x'\]"):
        compared(OLD, NEW, slices={"1": ["x"]})
    with pytest.raises(ValueError, match="query of the judgements in the run b"):
        compared(OLD, {"7": {"a": 1.0}})


def test_bpref_is_of_judged_documents_whatever_the_names_of_metrics() -> None:
    qrels = {"q": {"a": 1, "b": 0, "c": 1}}
    run = {"q": {"u": 9.0, "v": 8.0, "a": 3.0, "b": 2.0, "c": 1.0}}
    chosen = [metrics.BPref(), metrics.MRR(name="bpref")]
    found = trec.evaluate(qrels, run, chosen)
    assert found == {"b_pref": {"q": 0.5}, "bpref": {"q": pytest.approx(1 / 3)}}
    with pytest.raises(ValueError, match=r"unique. Received twice: \['x'\]"):
        trec.evaluate(qrels, run, [metrics.BPref(name="x"), metrics.MRR(name="x")])


def test_batches_of_queries_are_of_like_sizes_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trec, "PAIRS_AT_ONCE", 50)
    sizes = [9, 3, 1, 5, 4, 0]
    assert [*trec._batches(sizes, in_pairs=True)] == [[5, 2, 1], [4, 3], [0]]
    assert [*trec._batches(sizes, in_pairs=False)] == [[5, 2, 1, 4, 3, 0]]
    measures = [metrics.AUC(), metrics.NDCG()]
    bounded = trec.evaluate(QRELS, OLD, measures, complete=True)
    monkeypatch.undo()
    assert bounded == trec.evaluate(QRELS, OLD, measures, complete=True)


def test_fused_runs_are_deterministic_in_ties() -> None:
    tied = {"q": {"b": 1.0, "a": 1.0}}
    fused = metrics.reciprocal_rank_fusion([tied, {"q": {"b": 1.0}, "r": {"c": 0.0}}])
    assert fused == {"q": {"a": 1 / 61, "b": 1 / 62 + 1 / 61}, "r": {"c": 1 / 61}}
    assert metrics.comb_sum([tied]) == {"q": {"a": 1.0, "b": 1.0}}
    with pytest.raises(ValueError, match="`k` must be at least 0"):
        metrics.reciprocal_rank_fusion([tied], k=-1.0)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, run in (("a_1", OLD), ("b", NEW)):
        lines = [f"{q} Q0 {d} 1 {s} t\n" for q, found in run.items() for d, s in found.items()]
        (tmp_path / f"{name}.run").write_text("".join(lines))
    lines = [f"{q} 0 {d} {y}\n" for q, found in QRELS.items() for d, y in found.items()]
    (tmp_path / "q").write_text("".join(lines))
    (tmp_path / "queries.tsv").write_text("query_id\ttype\n1\tx\n2\tx\n3\ty\n")
    return tmp_path


def invoked(files: pathlib.Path, command: str, *options: str) -> Any:
    runs = [str(files / "a_1.run"), str(files / "b.run")]
    return typer.testing.CliRunner().invoke(app, [command, *runs, *options])


def test_the_command_prints_tables_and_draws(files: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--qrels", str(files / "q"), "-m", "recip_rank", "--resamples", "100"]
    slices = ["--queries", str(files / "queries.tsv"), "--slice-by", "type"]
    done = invoked(files, "compare", *options, *slices, "--picture", str(files / "p.png"))
    assert done.exit_code == 0, done.output
    assert "| recip_rank | all | 3 | a_1 | b | 0.3333 | 0.8333 | +0.5000 |" in done.stdout
    assert "| recip_rank | y | 1 | a_1 | b | 0.0000 | 1.0000 |" in done.stdout
    assert done.stdout.endswith("| 3 | 0.0000 | 1.0000 |\n| 1 | 0.5000 | 1.0000 |\n")
    assert (files / "p.png").read_bytes().startswith(b"\x89PNG")

    found = json.loads(invoked(files, "compare", *options, "--format", "json").stdout)
    [one] = found["differences"]
    assert (one["wins"], one["most_different"][0]) == (2, {"query": "3", "a": 0.0, "b": 1.0})


def test_a_fused_run_can_be_evaluated(files: pathlib.Path) -> None:
    for method in ("rrf", "combsum"):
        (files / "fused").write_text(invoked(files, "fuse", "--method", method).stdout)
        fused = read_run(files / "fused")
        assert {query: set(found) for query, found in fused.items()} == {
            "1": {"a", "b", "c", "z"},
            "2": {"a", "b"},
            "3": {"b"},
            "9": {"a"},
        }


@pytest.mark.parametrize(("options", "message"), refusals.of("compare"))
def test_a_wrong_option_ends_with_a_line_and_status_2(
    files: pathlib.Path, options: list[str], message: str
) -> None:
    pytest.importorskip("matplotlib")
    done = invoked(files, "compare", "--qrels", str(files / "q"), "--resamples", "10", *options)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert re.search(message, done.stderr)


def test_a_malformed_run_is_named_by_file_and_line(files: pathlib.Path) -> None:
    (files / "b.run").write_text("1 Q0 a 1 2.5 t\n1 Q0 b 1 high t\n")
    done = invoked(files, "compare", "--qrels", str(files / "q"))
    assert done.exit_code == 2
    assert f"{files}/b.run:2: Expected a finite number as score. Received: high" in done.stderr


def test_numbers_of_judgements_and_runs_are_not_rounded(tmp_path: pathlib.Path) -> None:
    assert trec.run_of({"q": {"a": 10**30}}) == {"q": {"a": 1e30}}
    with pytest.raises(ValueError, match="`score` must be a finite number"):
        trec.run_of({"q": {"a": 10**400}})
    (tmp_path / "qrels").write_text(f"q 0 a {2**53 + 1}\nq 0 b 2.0\n")
    assert read_qrels(tmp_path / "qrels") == {"q": {"a": 2**53 + 1, "b": 2}}


def test_a_query_with_an_empty_slice_is_only_among_all() -> None:
    qrels = {f"q{i}": {"a": 1, "b": 0} for i in range(6)}
    runs = {x: {q: {"a": y, "b": 1.5} for q in qrels} for x, y in (("old", 1.0), ("new", 2.0))}
    slices = {"q0": "web", "q1": "", "q2": None, "q3": math.nan}
    found = metrics.compare(runs, qrels, [metrics.MRR()], slices=slices, resamples=9)
    assert {x.slice: x.queries for x in found.differences} == {"all": 6, "web": 1}


def test_a_picture_that_fails_comes_after_the_comparison(files: pathlib.Path) -> None:
    options = ["--qrels", str(files / "q"), "--resamples", "9", "--picture"]
    done = invoked(files, "compare", *options, str(files / "none" / "p.png"))
    assert done.exit_code == 2
    assert "| ndcg_cut_10 |" in done.stdout
