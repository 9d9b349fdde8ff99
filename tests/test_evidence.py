"""Numbers of README and guides: tables are those of JSON, and other numbers stand in a table."""

import bisect
import json
import pathlib
import re
import sys
import tomllib

import pytest

from benchmarks import evidence

GIVEN = tomllib.loads((evidence.FOLDER / "given.toml").read_text())
LIBRARIES = (
    "absl|apache-beam|Beam|CatBoost|faiss-cpu|Flink|glibc|implicit|Keras|keras-rs|LightGBM|Numba|"
    "NumPy|pandas|pyarrow|Python|PyTorch|ranking|scikit-learn|SciPy|server|Spark|stack|TensorFlow|"
    "tensorflow-ranking|XGBoost"
)
VERSIONS = re.compile(
    rf"(?:{LIBRARIES})\*{{0,2}}:? \d+\.\d+[\d.]*(?:(?:,| and| or|,? to) \d+\.\d+[\d.]*)*"
)
NOT_PROSE = [
    r"(?s)```.*?```",
    r"(?m)^    .*$",
    r"`[^`\n]*`",
    r"\]\([^)]*\)",
    VERSIONS.pattern,
]
DECIMAL = re.compile(r"(?<![\w.,\-/=])\d+\.\d+(?!\w|\.\d)")
BY_NAME = {page.name: page for page in evidence.pages()}
TEXTS = {name: page.read_text() for name, page in BY_NAME.items()}


def losses(rows):
    """The columns of differences in which a row is below 0."""
    cells = [row.strip("|").split("|") for row in rows]
    return {i for row in cells for i, cell in enumerate(row) if re.match(r" -\d", cell)}


def marked(name):
    """The names of commands whose tables a page has."""
    return {found[1] for found in evidence.MARK.findall(TEXTS[name])}


def linked_tables(name):
    """The names of commands to whose tables a page has a link."""
    return {*re.findall(r"\]\((?:docs/)?evidence/([\w-]+)\.json\)", TEXTS[name])}


def numbers(name):
    """All numbers of the tables of a page and of the pages that it links to, sorted."""
    linked = set(re.findall(r"\]\((?:docs/)?(\w+\.md)", TEXTS[name])) & set(TEXTS)
    commands = linked_tables(name).union(*(marked(x) for x in linked | {name}))
    rows = [row for x in commands for table in evidence.stored(x) for row in table]
    found = {float(x) for row in rows for x in re.findall(r"\d+\.?\d*", row.replace(",", ""))}
    return sorted(found)


def is_among(text, known):
    """Whether a number of the tables rounds to the number of a text."""
    half = 0.5001 * 10.0 ** -len(text.partition(".")[2])
    place = bisect.bisect_left(known, float(text) - half)
    return place < len(known) and known[place] <= float(text) + half


@pytest.mark.parametrize("name", TEXTS)
def test_tables_are_those_that_commands_printed(name):
    assert evidence.written(TEXTS[name]) == TEXTS[name]


def test_each_json_has_a_command_and_a_page_that_shows_or_links_it():
    files = {path.stem: path for path in evidence.FOLDER.glob("*.json")}
    commands = evidence.commands()
    shown = set().union(*map(marked, TEXTS), *map(linked_tables, TEXTS))
    assert set(files) == set(commands) == shown
    for name, command in commands.items():
        assert json.loads(files[name].read_text())["command"] == command
        for part in command.split(" && "):
            module = part.removeprefix("tfr:").split()[0]
            root = pathlib.Path(evidence.__file__).parent.joinpath(*module.split("."))
            assert root.with_suffix(".py").exists() or (root / "__main__.py").exists()


@pytest.mark.parametrize("name", TEXTS)
def test_decimals_stand_in_a_table_of_a_command_or_are_said_to_be_given(name):
    text = evidence.MARK.sub("", TEXTS[name])
    for pattern in NOT_PROSE:
        text = re.sub(pattern, "", text)
    known = numbers(name)
    unknown = {x for x in DECIMAL.findall(text) if not is_among(x, known)}
    given = {x for values in GIVEN.get(name, {}).values() for x in values}
    assert unknown == given


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one page and two commands, one of which fails until a file exists."""
    folder = tmp_path / "docs" / "evidence"
    folder.mkdir(parents=True)
    (folder / "commands.toml").write_text('good = "good {data}/set.txt"\nbad = "bad {results}"\n')
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "good.py").write_text(
        "import sys, pathlib\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "print('head\\n\\n| a |\\n|---|\\n| ' + path.read_text() + ' |')\n"
    )
    (tmp_path / "benchmarks" / "bad.py").write_text(
        "import sys, pathlib\n"
        "if not (pathlib.Path(sys.argv[1]) / 'peer').exists():\n"
        "    raise ImportError('a peer is absent')\n"
        "print('| b |\\n|---|\\n| 2.5 |')\n"
    )
    page = "# Page\n\n<!-- evidence: good 1 -->\n\n| a |\n|---|\n| 0.0 |\n\nend\n"
    (tmp_path / "docs" / "page.md").write_text(page)
    (tmp_path / "README.md").write_text(page.replace("good", "bad"))
    (folder / "bad.json").write_text(json.dumps({"tables": [["| b |", "|---|", "| 1.5 |"]]}))
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setattr(evidence, "FOLDER", folder)
    monkeypatch.setattr(evidence, "SECOND_STACK", tmp_path / ".venv-tfr" / "bin" / "python")
    return tmp_path


def test_a_page_may_have_some_rows_of_a_table(project):
    content = {"tables": [["| b |", "|---|", "| 1.5 |", "| 2.5 |", "| 3.5 |"]]}
    (project / "docs" / "evidence" / "bad.json").write_text(json.dumps(content))
    text = "<!-- evidence: bad 1 only ^. [13] -->\n\n| b |\n|---|\n| 0 |\n"
    assert evidence.written(text).endswith("\n\n| b |\n|---|\n| 1.5 |\n| 3.5 |\n")


def run(project, *options):
    paths = ["--data", str(project / "data"), "--results", str(project / "results")]
    evidence.main(["run", *paths, *options])


def test_commands_write_pages_and_one_that_fails_is_named(project):
    (project / "data").mkdir()
    with pytest.raises(SystemExit, match=r"(?s)good: .*data has no set.txt.*bad: ImportError: a p"):
        run(project)
    (project / "data" / "set.txt").write_text("3.5")
    with pytest.raises(SystemExit, match="Failed:\nbad: ImportError: a peer is absent"):
        run(project)
    assert (project / "docs" / "page.md").read_text().endswith("| 3.5 |\n\nend\n")
    assert "| 1.5 |" in (project / "README.md").read_text()
    (project / "results" / "peer").touch()
    run(project, "--only", "bad")
    assert "| 2.5 |" in (project / "README.md").read_text()
    recorded = json.loads((project / "docs" / "evidence" / "bad.json").read_text())
    assert recorded["command"] == "bad {results}"


def test_what_was_printed_is_not_made_again(project):
    (project / "data").mkdir()
    (project / "data" / "set.txt").write_text("3.5")
    run(project, "--only", "good")
    (project / "data" / "set.txt").write_text("4.5")
    run(project, "--only", "good")
    assert "| 3.5 |" in (project / "docs" / "page.md").read_text()
    (project / "results" / "good.txt").unlink()
    run(project, "--only", "good")
    assert "| 4.5 |" in (project / "docs" / "page.md").read_text()


def test_rows_of_an_absent_second_stack_are_left_out_and_named(project, monkeypatch):
    (project / "data").mkdir()
    (project / "data" / "set.txt").write_text("3.5")
    commands = project / "docs" / "evidence" / "commands.toml"
    commands.write_text('good = "tfr:bad {results} && good {data}/set.txt"\nlast = "tfr:bad x"')
    with pytest.raises(SystemExit, match=r"(?s)good: left out: .*No such file.*last: .*No such f"):
        run(project)
    assert "| 3.5 |" in (project / "docs" / "page.md").read_text()
    monkeypatch.setattr(evidence, "SECOND_STACK", sys.executable)
    with pytest.raises(SystemExit, match="good: left out: ImportError: a peer is absent"):
        run(project, "--only", "good")
    (project / "results" / "peer").touch()
    run(project, "--only", "good")
    assert json.loads((commands.parent / "good.json").read_text())["tables"][0][0] == "| b |"


@pytest.mark.parametrize("name", BY_NAME)
def test_no_table_is_filtered_by_its_sign(name):
    for _, command, number, only, _ in evidence.MARK.findall(TEXTS[name]):
        _, _, *rows = evidence.stored(command)[int(number) - 1]
        left_out = losses(rows) - losses(row for row in rows if re.search(only, row))
        assert not left_out, f"{command} {number}: all rows below 0 of a column are left out"
