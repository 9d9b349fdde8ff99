"""The house stands as the design says: arrows, sizes, documentation."""

import ast
import collections
import importlib
import inspect
import pathlib
import re
import runpy
import subprocess
import sys
import tomllib
from types import ModuleType

import keras
import pytest

import tfrank_sel
from tests import structure
from tfrank_sel import (
    bounds,
    callbacks,
    data,
    distribution,
    estimator,
    export,
    links,
    losses,
    metrics,
    models,
    objectives,
    recommend,
)
from tfrank_sel.serialization import Configurable

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = sorted(p for f in ("tfrank_sel", "tests", "benchmarks") for p in (ROOT / f).rglob("*.py"))
PACKAGES = (
    bounds,
    callbacks,
    data,
    distribution,
    estimator,
    export,
    links,
    losses,
    metrics,
    models,
    objectives,
    recommend,
    *(
        importlib.import_module(f"tfrank_sel.{name}")
        for name in ("clicks", "presets.tfr", "presets.tfr.losses", "presets.tfr.metrics")
        if hasattr(tfrank_sel, name.partition(".")[0])
    ),
)
PUBLIC = {
    f"{module.__name__}.{n}": x
    for module in PACKAGES
    for n, x in inspect.getmembers(module)
    if (inspect.isclass(x) or inspect.isfunction(x))
    and not n.startswith("_")
    and x.__module__.startswith("tfrank_sel")
}


@pytest.mark.long
def test_arrows_point_down() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# functions that read tables, of pyarrow, pandas, polars and the standard library
TABLE_READERS = re.compile(
    r"\b(?:arrow_json|csv|dataset|feather|ipc|orc|parquet|pa|pandas|pd|pl|polars|pq)\."
    r"(?:DictReader|ParquetDataset|ParquetFile|dataset|open_\w+|read_\w+|reader|scan_\w+)\("
    r"|^\s*(?:import|from) (?:pandas|polars|pyarrow\.dataset)\b|^\s*from pyarrow import .*dataset",
    re.MULTILINE,
)
# the log that a run wrote, and the parts of a file that a call before wrote
MAY_READ = {"pipelines/evaluation/clicks.py", "recommend/answers.py"}


def test_tables_have_one_reader() -> None:
    package = ROOT / "tfrank_sel"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if TABLE_READERS.search(path.read_text())
    }
    formats = {f"data/formats/{name}.py" for name in ("binary", "text")}
    assert found == MAY_READ | formats


# clients of HTTP, of the standard library and others
CLIENTS = re.compile(
    r"^\s*(?:import|from) (?:aiohttp|http\.client|httpx|requests|urllib3|urllib\.request)\b"
    r"|^\s*from (?:http import .*client|urllib import .*request)\b"
    r"|\b(?:urlopen|PoolManager|HTTPS?Connection(?:Pool)?)\(",
    re.MULTILINE,
)


def test_http_has_one_client() -> None:
    package = ROOT / "tfrank_sel"
    found = [x for x in package.rglob("*.py") if CLIENTS.search(x.read_text("utf-8"))]
    assert found == [package / "http_client.py"]


# ways to a terminal on which a text of data would be markup, or control it
BESIDE = re.compile(r"\bConsole\(|rich\.markup|from_markup|\brich\.print|file=sys\.stderr|secho\(")
# the doors; and what tells only numbers or packages
MAY_TELL = (
    "commandline.py",
    "launch.py",
    "migration/__main__.py",
    "models/als/factorizer.py",
    "models/als/tuning.py",
)


def test_texts_reach_a_terminal_by_one_door() -> None:
    package = ROOT / "tfrank_sel"
    found = {
        str(path.relative_to(package)): [x[0] for x in BESIDE.finditer(path.read_text())]
        for path in package.rglob("*.py")
    }
    bar = found.pop("search_engines/__main__.py", [])  # of numbers
    assert [x for x in bar if x != "file=sys.stderr"] == []
    assert [x for x, ways in found.items() if ways and x not in MAY_TELL] == []


# where identifiers, times and numbers of tables are spelt and numbered
DOOR = ("data/arrays.py", "data/table.py", "data/formats/")
# what is converted elsewhere, and is no column of a table
CONVERTED = {
    # numbers: labels, scores, grades, times; and numbers of identifiers
    "numbered": {
        "clicks/correction.py",
        "clicks/log.py",
        "clicks/models.py",
        "models/als/solver.py",
        "models/als/interactions.py",
        "models/recalibrated.py",
        "pipelines/analysis/leakage.py",
        "pipelines/analysis/sketches.py",
        "pipelines/evaluation/evaluation.py",
        "training/trees.py",
        "trec/runs.py",
    },
    # made data, decimals of a request, cells of a page
    "astype": {"data/synthetic.py", "pipelines/export/requests.py", "serving/rest/page.py"},
    # paths, cells, positions, names of columns, and the ids that a model returns
    "str": {
        "commandline.py",
        "data/requests.py",
        "data/stores.py",
        "export/inputs.py",
        "export/recommenders.py",
        "pipelines/commands/runs.py",
        "serving/__main__.py",
        "serving/engine/interleaving.py",
        "trec/__main__.py",
    },
}


def _conversion(node: ast.AST) -> str | None:
    """How a node makes texts or numbers of the values of a column, if it does."""
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
        made = node.elt
        made = made.orelse if isinstance(made, ast.IfExp) else made
        is_text = isinstance(made, ast.Call) and ast.unparse(made.func) == "str"
        return "str" if is_text else None
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func)
    if name == "map" and ast.unparse(node.args[0]) == "str":
        return None  # of texts to show
    if name.endswith(".astype") and "str" in map(ast.unparse, node.args):
        return "astype"
    if name.startswith("csv.") and name != "csv.writer":
        return "csv"
    return "numbered" if "return_inverse" in [x.arg for x in node.keywords] else None


def test_columns_are_converted_at_one_door() -> None:
    package = ROOT / "tfrank_sel"
    found = collections.defaultdict[str, set[str]](set)
    for path in package.rglob("*.py"):
        name = str(path.relative_to(package))
        for node in () if name.startswith(DOOR) else ast.walk(structure.tree(path)):
            if (kind := _conversion(node)) is not None:
                found[kind].add(name)
    files = {str(path.relative_to(package)) for path in package.rglob("*.py")}
    assert found == {kind: names & files for kind, names in CONVERTED.items()}


# Ruff's PLW1514 sees only paths whose type is written down beside them
def test_texts_are_read_and_written_in_utf_8() -> None:
    nodes = [
        (path.name, node)
        for path in (ROOT / "tfrank_sel").rglob("*.py")
        for node in ast.walk(structure.tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    places = {"read_text": 0, "write_text": 1}  # of the encoding
    assert [
        (name, node.lineno)
        for name, node in nodes
        if ast.unparse(node.func.value) not in ("stores", "folders")  # which take no other
        and len(node.args) <= places.get(node.func.attr, -1)
        and "encoding" not in [keyword.arg for keyword in node.keywords]
    ] == []


# what comes with the package itself, or with what it needs
AT_HAND = {"tfrank_sel", "tensorflow", "keras", "numpy", "google"}


@pytest.mark.parametrize("name", ["pipelines", "serving", "models.als", "estimator", "recommend"])
def test_what_comes_with_an_extra_is_asked_for_at_the_door(name: str) -> None:
    package = importlib.import_module(f"tfrank_sel.{name}")
    nodes = [
        node
        for path in pathlib.Path(str(package.__file__)).parent.rglob("*.py")
        if path.parent.name != "tfx"  # an extra of its own
        for node in ast.walk(structure.tree(path))
    ]
    imported = {x.name for node in nodes if isinstance(node, ast.Import) for x in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    others = {x.partition(".")[0] for x in imported} - sys.stdlib_module_names - AT_HAND
    others -= {"markupsafe"}  # which is a part of jinja2
    # extras of their own, which the modules name that need them
    others -= {"apache_beam", "faiss", "lightgbm", "mlflow", "onnxruntime", "optuna"}
    assert others <= set(package._NEEDED)


def test_another_backend_of_keras_is_refused_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ImportError, match="needs the TensorFlow backend of Keras: set KERAS_BACK"):
        runpy.run_path(str(ROOT / "tfrank_sel" / "keras_bases.py"))


def test_each_folder_of_tests_is_a_package_so_that_names_of_files_may_repeat() -> None:
    folders = {p.parent for p in SOURCES if p.is_relative_to(ROOT / "tests")}
    assert [f for f in folders if not (f / "__init__.py").exists()] == []


@pytest.mark.long
def test_a_file_is_short_and_says_what_it_is() -> None:
    assert [path for path in SOURCES if structure.lines_of_code(path) > 400] == []
    others = [path for path in SOURCES if "tests" not in path.relative_to(ROOT).parts]
    assert [path for path in others if not path.read_text().startswith('"""')] == []


def test_every_public_name_is_documented() -> None:
    lacking = []
    for name, public in PUBLIC.items():
        members = inspect.getmembers(public, inspect.isfunction) if inspect.isclass(public) else []
        own = [x for x, y in members if x[0] != "_" and y.__module__.startswith("tfrank_sel")]
        lacking += [f"{name}.{x}" for x in own if not inspect.getdoc(getattr(public, x))]
        lacking += [] if inspect.getdoc(public) else [name]
    assert lacking == []


def test_every_formula_says_what_it_takes_and_where_it_is_from() -> None:
    formulas = [
        x
        for m in (losses, metrics)
        for _, x in inspect.getmembers(m)
        if isinstance(x, type) and issubclass(x, Configurable)
    ]
    assert formulas
    for formula in formulas:
        document = inspect.getdoc(formula) or ""
        sections = ["Args:"]
        if not inspect.isabstract(formula):
            sections += ["Example:", "Reference:", "```"]
        assert [s for s in sections if s not in document] == [], formula
        assert any("Inputs:" in (base.__doc__ or "") for base in formula.__mro__), formula


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))],
    ids=lambda p: p.stem,
)
def test_what_a_page_links_to_is_there(page: pathlib.Path) -> None:
    for link in re.findall(r"\]\((?!https?:|\.\./\.\./)(.*?)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: pathlib.Path) -> list[str]:
    """Returns the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_the_tests_that_a_guide_names_are_there() -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    named = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def guides() -> dict[str, str]:
    """The texts of the guides by their file."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    [pages] = [part["Guides"] for part in site if "Guides" in part]
    return {page: (ROOT / "docs" / page).read_text() for page in pages}


def test_guides_are_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
    for page, text in guides().items():
        assert len(text.splitlines()) <= 200, page


@pytest.mark.parametrize("package", [losses, links, links.labels])
def test_a_guide_has_each_loss_and_link(package: ModuleType) -> None:
    code = "\n".join(re.findall(r"(?s)```.*?```|`[^`]+`", "\n".join(guides().values())))
    names = [x for x in dir(package) if not x.startswith("_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_the_tests_of_what_holds_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "holds.md").read_text())
    assert named
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), name


def test_each_guide_and_module_has_its_place_on_the_site() -> None:
    site = (ROOT / "zensical.toml").read_text()
    listed = re.findall(r'"([\w./]+)\.md"', site)
    namespace = runpy.run_path(str(ROOT / "docs" / "site.py"))
    guides = [page.stem for page in (ROOT / "docs").glob("*.md")]
    reference = [f"reference/{name}" for name in ("commands", *namespace["MODULES"])]
    tutorials = [f"tutorials/{name}" for name in namespace["TUTORIALS"]]
    pages = ["overview", "CHANGELOG", "CONTRIBUTING", *guides, *tutorials, *reference]
    assert sorted(listed) == sorted(pages)


@pytest.mark.long
def test_the_package_imports_what_is_public_at_first_use_and_asks_no_network() -> None:
    code = """
import importlib, pkgutil, sys, tfrank_sel

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind"):
        raise AssertionError(f"{event} {arguments}")

sys.addaudithook(refuse)
assert "tensorflow" not in sys.modules
assert tfrank_sel.losses.SoftmaxLoss and tfrank_sel.models.als and tfrank_sel.serving.client
try:
    tfrank_sel.no_such_package
except AttributeError as error:
    assert "'no_such_package'" in str(error)
else:
    raise AssertionError
for module in pkgutil.walk_packages(tfrank_sel.__path__, "tfrank_sel."):
    others = "__main__", ".tfx", ".numerics.jax"  # what needs an environment of its own
    if not any(x in module.name for x in others):
        importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "serving" in dir(tfrank_sel)


@pytest.mark.parametrize(
    "package", [data, distribution, estimator, export, links, losses, metrics, models, recommend]
)
def test_dir_of_a_package_shows_no_module_that_it_is_made_of(package: ModuleType) -> None:
    shown = dir(package)
    exported = re.findall(r"(\w+) as \1\b", inspect.getsource(package))
    assert sorted(shown) == sorted({*exported, *getattr(package, "__all__", [])})
