"""The tables of names, and the package where no file of it can be opened."""

import compileall
import importlib
import inspect
import pathlib
import subprocess
import sys
import zipfile

import keras
import pytest

import tfrank_sel
from tests import exports
from tfrank_sel.exports import REGISTERED

PACKAGE = pathlib.Path(tfrank_sel.__file__).parent
# a class that Keras makes by its name, and templates and pages
CODE = """
import importlib.resources, pathlib
import keras, tfrank_sel

link = {"module": "tfrank_sel.links.elementary", "class_name": "Sigmoid", "config": {"scale": 2.0}}
link["registered_name"] = "tfrank_sel>Sigmoid"
loss = {"module": "tfrank_sel.losses.selective", "class_name": "MatchingLoss"}
loss |= {"registered_name": "tfrank_sel>MatchingLoss", "config": {"link": link}}
print(type(keras.saving.deserialize_keras_object(loss).link).__name__)

from tfrank_sel.pipelines.reporting import pages
from tfrank_sel.serving.deployment import folder
from tfrank_sel.serving.rest import page

for entry in importlib.resources.files("tfrank_sel.pipelines.reporting").iterdir():
    if entry.name.endswith(".jinja"):
        pages.ENVIRONMENT.get_template(entry.name)
folder.render(pathlib.Path("deployment"), "ranker")
folder.render(pathlib.Path("image"), "ranker", 1)
print(len(page._PAGE.read_text()) > 1000, pages.__file__)
"""


@pytest.mark.long
def test_the_tables_are_those_of_the_sources() -> None:
    assert exports.TABLES.read_text("utf-8") == exports.rendered()


def test_keras_knows_each_class_by_the_module_that_registers_it() -> None:
    for module in REGISTERED:
        importlib.import_module(module)
    registered = {
        name: symbol.__module__
        for name, symbol in keras.saving.get_custom_objects().items()
        if name.startswith("tfrank_sel>") and inspect.getmodule(symbol) is not None
    }
    table = {f"tfrank_sel>{x}": m for m, names in REGISTERED.items() for x in names.split()}
    assert registered == table


@pytest.fixture(params=["zip", "compiled"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """The package as a zip on the path, and as a tree without sources."""
    files = [x for x in PACKAGE.rglob("*") if x.is_file() and "__pycache__" not in x.parts]
    packed = tmp_path / "package.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in files:
            archive.write(file, file.relative_to(PACKAGE.parent))
    if request.param == "zip":
        return str(packed)
    zipfile.ZipFile(packed).extractall(tmp_path / "tree")
    compileall.compile_dir(tmp_path / "tree", quiet=1, legacy=True)
    for source in (tmp_path / "tree").rglob("*.py"):
        source.unlink()
    return str(tmp_path / "tree")


@pytest.mark.long
def test_the_package_needs_no_files_of_its_own(elsewhere: str, tmp_path: pathlib.Path) -> None:
    start = f"import sys; sys.path.insert(0, {elsewhere!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", start + CODE], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    shown, is_whole, file = done.stdout.split()
    assert (shown, is_whole) == ("Sigmoid", "True")
    assert file.startswith(elsewhere)
