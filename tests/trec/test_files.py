"""The command line over TREC files: what it prints, and what it says of wrong files."""

import functools
import gzip
import itertools
import pathlib
import runpy
import sys
from collections.abc import Callable

import pytest
import typer.testing

from tests import refusals
from tfrank_sel import metrics, trec
from tfrank_sel.data.trec import FileError, read_qrels, read_run
from tfrank_sel.trec.__main__ import app

pytestmark = pytest.mark.usefixtures("eagerly")

QRELS = "1 0 a 2\n1 0 b 0\n1 0 c 1\n2 0 a 1\n3 0 a 0\n"
RUN = "1 Q0 b 1 3.5 x\n1 Q0 a 2 2.5 x\n\n3 Q0 a 1 0.5 x\n9 Q0 z 1 0.5 x\n"


@pytest.fixture
def files(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "run").write_text(RUN)
    return tmp_path / "qrels", tmp_path / "run"


def printed(files: tuple[pathlib.Path, pathlib.Path], *options: str) -> list[list[str]]:
    arguments = ["--qrels", str(files[0]), "--run", str(files[1]), *options]
    result = typer.testing.CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_prints_as_trec_eval(files: tuple[pathlib.Path, pathlib.Path]) -> None:
    # query 1: relevant a at rank 2, c not retrieved; query 3: none relevant; query 2 not in the run
    assert printed(files, "-q", "-m", "map", "-m", "P.1,2") == [
        ["map", "1", "0.2500"],
        ["P_1", "1", "0.0000"],
        ["P_2", "1", "0.5000"],
        ["map", "3", "0.0000"],
        ["P_1", "3", "0.0000"],
        ["P_2", "3", "0.0000"],
        ["num_q", "all", "2"],
        ["map", "all", "0.1250"],
        ["P_1", "all", "0.0000"],
        ["P_2", "all", "0.2500"],
    ]


def test_a_byte_order_mark_changes_nothing(files: tuple[pathlib.Path, pathlib.Path]) -> None:
    expected = printed(files, "-q")
    for path in files:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert printed(files, "-q") == expected


def test_missing_queries_and_the_relevance_level_count_as_asked(
    files: tuple[pathlib.Path, pathlib.Path],
) -> None:
    complete = printed(files, "-c", "-m", "recip_rank")
    assert complete == [["num_q", "all", "3"], ["recip_rank", "all", "0.1667"]]
    assert printed(files, "-l", "2", "-m", "map")[-1] == ["map", "all", "0.2500"]


def test_the_official_measures_are_printed_by_default(
    files: tuple[pathlib.Path, pathlib.Path],
) -> None:
    names = [name for name, _, _ in printed(files)]
    assert names == ["num_q", "map", "Rprec", "bpref", "recip_rank", "ndcg", "ndcg_cut_10", "P_10"]


def test_measures_of_user_models_take_their_parameter() -> None:
    names = [m.name for m in trec.measures(["ERR", "ERR.5,20", "RBP", "RBP.0.5", "success.1"])]
    assert names == ["ERR", "ERR_5", "ERR_20", "RBP", "RBP_0.5", "success_1"]
    values = trec.evaluate({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}}, trec.measures(["RBP.0.5"]))
    assert values == {"RBP_0.5": {"q": 0.25}}


@pytest.mark.parametrize("name", ["mep", "map.5", "P.0", "P.5,x", "P.1.5", "RBP.x", "RBP.1", "P."])
def test_a_wrong_measure_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"Received: .*(P|map|mep|1\.0)"):
        trec.measures([name])


@pytest.mark.parametrize(("text", "line", "message"), refusals.of("qrels"))
def test_wrong_judgements_are_named(
    tmp_path: pathlib.Path, text: str, line: int, message: str
) -> None:
    path = tmp_path / "qrels"
    path.write_text(text)
    with pytest.raises(FileError, match=f"{path}:.*{message}") as raised:
        read_qrels(path)
    assert raised.value.line == line


@pytest.mark.parametrize(("text", "line", "message"), refusals.of("trec_runs"))
def test_a_wrong_run_is_named(tmp_path: pathlib.Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "run"
    path.write_text(text)
    with pytest.raises(FileError, match=f"{path}:{line}: .*{message}") as raised:
        read_run(path)
    assert raised.value.line == line


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_are_read_as_trec_eval_does_however_they_are_written(
    tmp_path: pathlib.Path, mark: str, end: str, suffix: str
) -> None:
    judged = ["# pool", "1 0 a 1", "", "#2 0 b 1", "1\t0  b 0 "]
    retrieved = ["#! run", "1 Q0 a 1 0.5 tag words behind it", "1 Q0 b 2 0.25 tag"]
    for name, rows in (("qrels", judged), ("run", retrieved)):
        content = (mark + end.join(rows)).encode()
        (tmp_path / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)
    assert read_qrels(tmp_path / f"qrels{suffix}") == {"1": {"a": 1, "b": 0}}
    assert read_run(tmp_path / f"run{suffix}") == {"1": {"a": 0.5, "b": 0.25}}


def test_a_cut_file_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "qrels.gz").write_bytes(gzip.compress(b"1 0 a 1\n")[:-9])
    with pytest.raises(FileError, match=r"qrels\.gz: Expected a text file"):
        read_qrels(tmp_path / "qrels.gz")


def test_errors_end_with_a_line_and_status_2(files: tuple[pathlib.Path, pathlib.Path]) -> None:
    for qrels, run, message in (
        (files[0], files[0], "qrels:1: Expected `query Q0"),
        (files[0].with_name("none"), files[1], "none: Expected a text file"),
        (files[1].with_name("other"), files[1], "Expected a query of"),
    ):
        files[1].with_name("other").write_text("7 0 a 1\n")
        result = typer.testing.CliRunner().invoke(app, ["--qrels", str(qrels), "--run", str(run)])
        assert result.exit_code == 2
        assert message in result.stderr


def test_runs_as_a_module(
    files: tuple[pathlib.Path, pathlib.Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["metrics", "--qrels", str(files[0]), "--run", str(files[1])])
    monkeypatch.delitem(sys.modules, "tfrank_sel.trec.__main__")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tfrank_sel.trec", run_name="__main__")
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("num_q")


LARGEST = 3.4028234663852886e38  # of float32


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_order_of_scores_beyond_float32_counts(dtype: str) -> None:
    qrels = {"q": {"a": 1, "b": 0, "c": 0, "d": 1, "e": 0}}
    orders = (
        [-1.7976931348623157e308, -1e39, -LARGEST, 0.0],
        [0.0, LARGEST, 1e39, 2e39],
        [-2e39, -1e39, 1e39, 2e39],
    )
    every = [*trec.measures(["map", "recip_rank", "recall.5"]), metrics.NDCG(dtype=dtype)]
    for scores in orders:
        for documents in itertools.permutations("abcd", 4):
            plain = dict(zip(documents, (1.0, 2.0, 3.0, 4.0), strict=True))
            far = dict(zip(documents, scores, strict=True))
            assert trec.evaluate(qrels, {"q": far}, every) == trec.evaluate(
                qrels, {"q": plain}, every
            )


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *((functools.partial(trec.measures, x), "names") for x in (5, None, "map", [None])),
        *((functools.partial(metrics.reciprocal_rank_fusion, x), "runs") for x in (5, None, {})),
        *((functools.partial(metrics.reciprocal_rank_fusion, [], x), "k") for x in (None, "1", -1)),
        *((functools.partial(metrics.comb_sum, x), "runs") for x in (5, None, "run.txt")),
        *((functools.partial(metrics.comb_sum, [{}], x), "weights") for x in (3.0, ["a"], [-1.0])),
        *((functools.partial(trec.evaluate, x, {}, []), "qrels") for x in (None, {"q": 5})),
        (functools.partial(trec.evaluate, {"q": {"a": "x"}}, {"q": {}}, [metrics.MRR()]), "qrels"),
    ],
)
def test_a_wrong_argument_of_a_function_is_refused_by_name(
    call: Callable[[], object], name: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"`{name}`.* Received"):
        call()
