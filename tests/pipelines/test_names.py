"""Names that a terminal, a shell, matplotlib or TOML would read as their own language."""

import html
import io
import json
import re
import shlex
import subprocess
import types

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.table import Table
from typer.testing import CliRunner

from tests.pipelines.test_main import invoke
from tfrank_sel.commandline import printable, shell
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.configuration import Override, load
from tfrank_sel.pipelines.configuration.files import assignment
from tfrank_sel.pipelines.configuration.section import join, split
from tfrank_sel.pipelines.evaluation.evaluation import MetricComparison
from tfrank_sel.pipelines.reporting import figures, pages
from tfrank_sel.serving import client
from tfrank_sel.serving.__main__ import app as serving
from tfrank_sel.terminal import Terminal

NAMES = (
    *("$a_$", "$0-$10", "[/b]", "x [eur]", "ctr[30d]", "a,b", "_a", " my pos ", "it's", 'say "x"'),
    *("#1", "--x", "7", "true", "Größe 👠", ":shoe:", "a\\b", "`id`", "$(id)", "a|b", "<i>&amp;"),
)
OBEYED = ("\x1b[31mred", "a\rb", "a\x9bb", "a\u202eb", "a\ud800b")


def test_a_terminal_shows_each_name_as_it_is():
    shown = io.StringIO()
    console = Terminal(file=shown, width=300)
    table = Table("name", NAMES[2], title="[/x] :shoe:")
    for name in (*NAMES, *OBEYED):
        console.print(f"line {name}.")
        console.out(f"out {name}.")
        table.add_row(name, f"|{name}|")
    console.print(table)
    for name in NAMES:
        for told in (f"line {name}.", f"out {name}.", f"|{name}|", "[/x] :shoe:"):
            assert told in shown.getvalue()
    for name in OBEYED:
        assert name not in shown.getvalue()
        assert f"line {printable(name)}." in shown.getvalue()


def test_a_shell_takes_the_words_of_a_printed_command_as_they_are():
    words = [*NAMES, *OBEYED[:4], "a\nb", "a'\x1b\\n\n$(id)"]
    line = shell("printf", r"%s\0", *words)
    assert printable(line) == line
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


def test_options_take_each_name_that_is_printed():
    for names in (NAMES, ['"', " ,a"], ["a,aa", '"']):
        assert split(join(names)) == [*names]
    for name in (*NAMES, "a\nb", "x\x1b", "a=b", "'", '"='):
        assert Override.parse(assignment(name, "data", "query")).value == name
        feature = Override.parse(assignment({"type": "number"}, "features", name))
        assert feature.path == ["features", name]
        assert feature.value == {"type": "number"}
        assert split(join([name])) == [name]


def test_figures_have_each_name_as_it_is():
    found = {"NDCG@10": MetricComparison(0.5, 0.6, 0.05, 0.15, 50)}
    drawn = [figures.slices(dict.fromkeys(NAMES, found), "NDCG@10", "baseline")]
    page = html.unescape("".join(drawn))
    for name in NAMES:
        assert f">{name}</text>" in page


def test_a_card_has_each_name_as_it_is():
    for name in NAMES:
        told = re.sub(r"\\([\\`*\[\]<>|&])", r"\1", pages.in_markdown(name))
        assert told == " ".join(name.split())


class Ranked:
    """A server that ranks as the items stand."""

    def __init__(self, *args, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass

    takes = types.SimpleNamespace(types={}, doc_id="doc_id")

    def rank(self, items, *args, **options):
        return [client.Ranked(i + 1, x["doc_id"], 1.0) for i, x in enumerate(items)]


def test_the_serving_command_shows_the_documents_as_they_are(monkeypatch):
    monkeypatch.setattr(client, "Ranker", Ranked)
    monkeypatch.setenv("COLUMNS", "200")
    items = pa.table({"doc_id": [*NAMES, OBEYED[0]]}).to_pylist()
    done = CliRunner().invoke(serving, ["rank", "--items", json.dumps(items)])
    assert done.exit_code == 0, done.exception
    shown = [x.split("│")[2] for x in done.output.splitlines() if x.startswith("│")]
    assert [x.rstrip() for x in shown] == [f" {printable(x)}".rstrip() for x in (*NAMES, OBEYED[0])]


def _written(folder):
    """Three splits with a feature and a value of a slice of each name."""
    random, files = np.random.default_rng(0), {}
    for number, (name, lists) in enumerate({"train": 66, "validation": 22, "test": 126}.items()):
        queries = np.repeat(np.arange(lists), 5)
        x = random.normal(size=len(queries))
        columns = {
            "query_id": [f"{number}-{i}" for i in queries],
            "doc_id": [f"{NAMES[i % len(NAMES)]}{i}" for i in range(len(x))],
            "relevance": (x > 0.0).astype(int),
            "sl[ice] $x$": [NAMES[i % len(NAMES)] for i in queries],
            **{f"{name}1": x + random.normal(size=len(x)) for name in NAMES},
        }
        files[name] = folder / f"{name} [a] $x_$.parquet"
        parquet.write_table(pa.table(columns), files[name])
    return files


SETS = ("model.trees=false", "model.hidden_units=[4]", "model.num_heads=0", "model.class=Scorer")


@pytest.fixture
def options():
    sets = [part for x in (*SETS, "blessing.margin=1.0") for part in ("--set", x)]
    return ["--slice-by", join(["sl[ice] $x$"]), "--epochs", "1", *sets]


def test_a_dry_run_prints_each_feature(tmp_path, options):
    files = _written(tmp_path)
    refused = invoke(files, tmp_path / "o [x]", *options, "--dry-run")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "o [x]: the path must have no `[`" in refused.stderr
    done = invoke(files, tmp_path / "$o_$ #1", *options, "--dry-run")
    assert done.exit_code == 0, (done.output, done.exception)
    for name in NAMES:
        assert f"feature {f'{name}1'!r}: number" in done.stdout


@pytest.mark.long
def test_a_run_has_each_name_and_its_printed_commands_run(tmp_path, options, monkeypatch):
    output = tmp_path / "my run; $a_$ it's"
    done = invoke(_written(tmp_path), output, *options)
    assert done.exit_code == 0, (done.output, done.exception)
    page = html.unescape((output / "report.html").read_text())
    card = (output / "export" / "saved_model" / "assets.extra" / "MODEL_CARD.md").read_text()
    assert str(tmp_path) not in card
    for name in NAMES[:10]:  # the values that slices have
        assert f"sl[ice] $x$ {name}" in page or f"sl[ice] $x$={name}" in page, name
    for name in NAMES[:12]:
        assert f"`{f'{name}1'.strip()}`" in card, name
    lines = [x for x in done.stdout.splitlines() if x.startswith("tfrank-sel-serving")]
    serve, rank = map(shlex.split, lines)
    assert [*output.parent.glob("my*/serving/ranker")] == [type(output)(serve[3])]
    assert type(output)(rank[3]).is_file()
    again = CliRunner().invoke(app, ["run", "--output", str(output), "--dry-run"])
    assert again.stdout.count("keep ") == 6, again.output
    assert load(output / "config.toml").data.slice_by == ["sl[ice] $x$"]
