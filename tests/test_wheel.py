"""The wheel holds one package, and nothing else, and installs as the pages say."""

import configparser
import pathlib
import re
import shlex
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.*")),
    ROOT / "pipelines/run.py",
]
# the package, as pages write it while no index has it: the folder of a clone, with extras
OURS = re.compile(r"\.(?:\[([\w,]+)\])?")


def requirements(page: pathlib.Path) -> list[str]:
    """The packages and options of the commands by which a page installs."""
    commands = re.findall(r"pip\s+install\s([^`#\n]*(?:\n *'[^`#\n]*)?)", page.read_text("utf-8"))
    return [x for command in commands for x in shlex.split(command)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    source = folder / "source"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    done = subprocess.run([*build, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def names(wheel: pathlib.Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def test_the_wheel_holds_one_package_and_nothing_else(names: list[str]) -> None:
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"tfrank_sel"}


def test_the_wheel_holds_every_file_of_the_package_and_the_licence(names: list[str]) -> None:
    files = subprocess.run(
        ["git", "ls-files", "tfrank_sel"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(files) <= set(names)
    assert "tfrank_sel/py.typed" in names
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_packages_are_imported_from_a_zip(wheel: pathlib.Path) -> None:
    code = "from tfrank_sel import models; print(models.__file__, *models.__all__)"
    run = [sys.executable, "-c", code]
    env = {"PYTHONPATH": str(wheel)}
    done = subprocess.run(run, env=env, cwd=wheel.parent, capture_output=True, text=True)
    place, *exports = done.stdout.split()
    assert place == f"{wheel}/tfrank_sel/models/__init__.py", done.stderr
    assert "Ensemble" in exports


@pytest.mark.parametrize("page", [x for x in PAGES if requirements(x)], ids=lambda x: x.stem)
def test_a_page_installs_a_clone_with_extras_that_are_there(page: pathlib.Path) -> None:
    package = configparser.ConfigParser()
    package.read(ROOT / "setup.cfg")
    assert [x for x in requirements(page) if x.startswith("tfrank_sel")] == []
    extras = [x[1] for x in map(OURS.fullmatch, requirements(page)) if x and x[1]]
    assert {*",".join(extras).split(",")} <= {*package["options.extras_require"], ""}


@pytest.mark.long
def test_each_command_of_the_pages_installs_from_an_index(wheel: pathlib.Path) -> None:
    packages = {x for page in PAGES for x in requirements(page) if OURS.fullmatch(x)}
    assert len(packages) > 10
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
    index = ["--no-index", "--find-links", str(wheel.parent)]
    for requirement in sorted(packages):
        package = "tfrank_sel" + requirement.removeprefix(".")
        done = subprocess.run([*pip, *index, package], capture_output=True, text=True)
        assert "Would install tfrank" in done.stdout, done.stderr
        assert "does not provide the extra" not in done.stderr
