"""Each step that a run proposes is a command, which changes what the next verdict says."""

import shlex
import shutil

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from tfrank_sel.pipelines.__main__ import app

SIZE = 8
CLICKS = ("--label", "clicked", "--doc-id", "item")
BY_TYPE = "--set=features={x = 'number', z = 'number', position = 'number'}"


def table(name, queries, seed):
    """A made table of a fault, and the options of its run."""
    random = np.random.default_rng(seed)
    count = queries * SIZE
    query, position = np.divmod(np.arange(count), SIZE)
    x, z = random.normal(size=[2, count])
    device = query % 2
    relevance = x + 0.7 * z + random.normal(size=count)
    if name == "device":
        relevance = np.where(device == 0, x, -x) + 0.7 * random.normal(size=count)
    elif name == "noise":
        relevance = random.normal(size=count)
    elif name == "interaction":
        relevance = x * z + 0.5 * random.normal(size=count)
    label = (relevance > 0.5).astype(int) + (relevance > 1.5)
    columns = {"query_id": query, "doc_id": np.char.add("d", (query * 100 + position).astype(str))}
    columns |= {"relevance": label, "x": x, "z": z}
    if name == "after":
        is_known = (label > 0) & (random.random(count) < 0.8)
        columns["after"] = np.where(is_known, random.random(count), np.nan)
    elif name == "copy":
        columns["copy"] = 2.0 * label + 1.0
    elif name == "device":
        return columns | {"device": np.array(["phone", "tv"])[device]}, ["--slice-by", "device"]
    elif name in ("position", "log", "session"):
        shown = 1.0 / (1.0 + position)
        clicked = ((relevance > 0.5) & (random.random(count) < shown)).astype(int)
        columns = {
            "query_id": np.char.add("q", (query % 60).astype(str)),
            "item": columns["doc_id"],
        }
        columns |= {"clicked": clicked, "position": position + 1, "x": x, "z": z}
        if name == "session":
            columns["session_id"] = query + 1_000_000
            return columns, [*CLICKS, "--set", "clicks.position=position"]
        return columns, [*CLICKS, *([BY_TYPE] if name == "position" else [])]
    return columns, []


SETTINGS = {
    "networks": ["--no-ensemble"],
    "ensemble": ["--set", "model.trees={num_iterations = 30, num_leaves = 15}"],
}
SMALL = ["--epochs", "12", "--learning-rate", "0.02", "--set", "model.hidden_units=[8]"]
# number of queries of each table, and what is proposed first, if that is sure
TABLES = {
    "honest": (400, ""),
    "after": (400, "leave after out"),
    "copy": (400, "leave copy out"),
    "device": (400, ""),
    "noise": (400, ""),
    "interaction": (300, ""),
    "few": (90, ""),
    "position": (400, "leave position out"),
    "log": (400, "correct clicks for position"),
    "session": (400, "learn what the new order earns"),
}
QUICK = (("after", "networks"), ("session", "networks"))


def verdict(result):
    """The first line of a verdict, and what it proposes to run."""
    lines = result.stdout.splitlines()
    proposed = [x for x in lines if ": tfrank-sel-pipelines run --output " in x]
    headline = next(x for x in lines if "compared with" in x or x.startswith("Not published: "))
    return headline, proposed


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        pytest.param(x, y, marks=[] if (x, y) in QUICK else [pytest.mark.long])
        for x in TABLES
        for y in SETTINGS
    ],
)
def test_each_proposed_step_changes_what_is_proposed(name, setting, tmp_path):
    queries, first = TABLES[name]
    columns, options = table(name, queries, seed=7)
    parquet.write_table(pa.table(columns), tmp_path / "table.parquet")
    output = tmp_path / "out"
    options = [*options, *SMALL, *SETTINGS[setting], "--split", "60,20,20"]
    named = ["--data", str(tmp_path / "table.parquet"), "--output", str(output)]
    result = CliRunner().invoke(app, ["run", *named, *options])
    assert result.exit_code in (0, 3), (result.output, result.exception)
    headline, steps = verdict(result)
    print(name, setting, headline, *steps, sep="\n  ")
    assert not first or steps[0].startswith(f"{first}: ")
    for number, step in enumerate(steps):
        copy = tmp_path / f"out{number}"
        shutil.copytree(output, copy)
        what, _, command = step.partition(": tfrank-sel-pipelines ")
        again = shlex.split(command.replace(str(output), str(copy)))
        applied = CliRunner().invoke(app, again)
        assert applied.exit_code in (0, 3), (step, applied.output, applied.exception)
        others = verdict(applied)
        print("   applied:", what, *others, sep="\n      ")
        assert step.replace(str(output), str(copy)) not in others[1]
