"""Shows that each road beside the core can be deleted: `python tests/roads.py [ROAD ...]`.

Each road is deleted in a copy of this tree, with what `roads.toml` names: Ruff, the contracts of
imports and mypy pass there, all tests are collected, those of the house pass, and the packages of
its wheel are imported. Then the tests of each road run in a copy that has no other road, and those
of the core in a copy without any: the files of `CORE`, or all of `make test` with `--whole`.
`--part` runs one of the three parts. The status is 1 if anything failed.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROADS = tomllib.loads((ROOT / "tests" / "roads.toml").read_text())
LINK = re.compile(r"\[([^]]*)\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")
# tests of the core that meet each of its parts within minutes
CORE = (
    "tests/test_bounds.py",
    "tests/test_export.py",
    "tests/test_answers.py",
    "tests/estimator/test_ranker.py",
    "tests/losses/test_softmax_family.py",
    "tests/metrics/test_evaluator.py",
    "tests/pipelines/test_main.py",
    "tests/serving/test_rest.py",
)
# an editable installation finds modules that a copy lacks in the tree that it was made from
WITHOUT_FINDERS = """
import sys
sys.meta_path[:] = [x for x in sys.meta_path if "Editable" not in getattr(x, "__name__", "")]
"""
WHEEL = """
import glob, sys, zipfile
[wheel] = glob.glob("dist/*.whl")
zipfile.ZipFile(wheel).extractall("dist/unpacked")
sys.path.insert(0, "dist/unpacked")
import tfrank_sel
assert "dist/unpacked" in tfrank_sel.__file__
for name in dir(tfrank_sel):
    package = getattr(tfrank_sel, name)
    for public in getattr(package, "__all__", ()):
        getattr(package, public)
"""


def main() -> int:
    """Deletes the roads, tries what stays, and prints a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("roads", nargs="*", metavar="ROAD", help=", ".join(ROADS))
    parser.add_argument("--part", choices=["without", "alone", "core"], help="instead of all")
    parser.add_argument("--whole", action="store_true", help="all of the core's `make test`")
    options = parser.parse_args()
    roads = options.roads or [*ROADS]
    failed = 0
    if options.part in (None, "without"):
        for road in roads:
            failed += attempt(f"without {road}", {road}, checks())
    if options.part in (None, "alone"):
        for road in roads:
            paths = [x for x in ROADS[road]["paths"] if x.startswith(("tests/", "tfrank_sel/"))]
            tests = [x for x in paths if x.endswith(".py") or [*(ROOT / x).rglob("*.py")]]
            # those of Java need what `make test-engines` builds
            tests = [x for x in tests if not x.startswith("tests/engines/")]
            command = pytest(*tests)
            if road == "tfx":  # which has an environment of its own
                command[0] = str(ROOT / ".venv-tfx" / "bin" / "python")
            failed += attempt(f"{road} alone", {*ROADS} - {road}, [command])
    if options.part in (None, "core"):
        tests = ("tests", "tfrank_sel") if options.whole else CORE
        failed += attempt("the core", {*ROADS}, [*checks(), pytest(*tests)])
    return int(failed > 0)


def attempt(title: str, deleted: Collection[str], commands: Collection[list[str]]) -> int:
    """Runs commands in a copy without some roads, and returns how many fail."""
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "tree"
        copy_without(deleted, folder)
        (folder.parent / "sitecustomize.py").write_text(WITHOUT_FINDERS)
        for command in commands:
            began = time.monotonic()
            done = subprocess.run(
                command, cwd=folder, env=environment(folder), capture_output=True, text=True
            )
            shown = " ".join(command[2:5]).partition("\n")[0]
            outcome = "passed" if done.returncode == 0 else "FAILED"
            print(f"{title}: {shown}: {outcome} in {time.monotonic() - began:.0f} s", flush=True)
            if done.returncode:
                print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
                failed += 1
    return failed


def copy_without(roads: Collection[str], folder: pathlib.Path) -> None:
    """Copies the files of this tree, and deletes what belongs to roads, and links to that."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in done.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for road in roads:
        for name in ROADS[road]["paths"]:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for name, pattern in lines(roads):
        if (path := folder / name).exists():
            path.write_text(re.sub(rf"^(?:{pattern})\n", "", path.read_text(), flags=re.MULTILINE))
    if (tables := folder / "tests" / "exports.py").exists():  # which writes names of packages
        subprocess.run([sys.executable, str(tables)], cwd=folder, check=True)
    for page in folder.rglob("*.md"):
        page.write_text(LINK.sub(lambda x, at=page.parent: linked(x, at), page.read_text()))


def linked(link: re.Match[str], folder: pathlib.Path) -> str:
    """A link, or its text where the target is not there."""
    return link[0] if (folder / link[2]).exists() or link[2].startswith("../../") else link[1]


def lines(roads: Collection[str]) -> Iterator[tuple[str, str]]:
    """The patterns of the lines of roads in files that stay, and these files."""
    for road in roads:
        for name, patterns in ROADS[road].get("lines", {}).items():
            yield from ((name, pattern) for pattern in patterns)


def checks() -> list[list[str]]:
    """The commands that must succeed in each copy."""
    cache = ROOT / "build" / "roads"
    contracts = "from importlinter.cli import lint_imports_command as c; c()"
    return [
        [sys.executable, "-m", "ruff", "check", "."],
        [sys.executable, "-c", contracts],
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache)],
        pytest("--collect-only", "tests", "tfrank_sel"),
        pytest("tests/test_house.py"),
        [sys.executable, "-m", "build", "--wheel", "--no-isolation"],
        [sys.executable, "-c", WHEEL],
    ]


def pytest(*arguments: str) -> list[str]:
    """The command of tests that are not long."""
    # what a test wrote to its log is longer than what is shown of a failure
    options = ["-q", "-x", "-p", "no:cacheprovider", "--show-capture=no", "-m", "not long"]
    return [sys.executable, "-m", "pytest", *arguments, *options]


def environment(folder: pathlib.Path) -> dict[str, str]:
    """That of commands in a copy."""
    return {**os.environ, "PYTHONPATH": f"{folder}:{folder.parent}", "TF_CPP_MIN_LOG_LEVEL": "3"}


if __name__ == "__main__":
    sys.exit(main())
