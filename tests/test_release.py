"""Files for a release agree with the package and with their schemas."""

import configparser
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import tfrank_sel

ROOT = pathlib.Path(__file__).parent.parent
RECIPE = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())


@pytest.fixture(scope="module")
def package() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg")
    return parsed


def test_every_file_has_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tfrank_sel.__version__
    assert RECIPE["context"]["version"] == tfrank_sel.__version__


def test_the_recipe_has_the_requirements_and_commands_of_the_package(package) -> None:
    python, *found = [re.sub(" ", "", line) for line in RECIPE["requirements"]["run"]]
    requirements = [x.partition(";")[::2] for x in package["options"]["install_requires"].split()]
    # a recipe for all Pythons has no markers: it is for those that TensorFlow has
    [marker] = {x for _, x in requirements} - {""}
    assert python == "python>=3.11," + re.sub('python_version|"', "", marker)
    assert found == [x for x, _ in requirements]
    scripts = package["options.entry_points"]["console_scripts"].strip().splitlines()
    assert RECIPE["build"]["python"]["entry_points"] == scripts


def test_a_python_without_tensorflow_takes_the_package_without_it(package) -> None:
    options = package["options"]
    classifiers = package["metadata"]["classifiers"].split("\n")
    minors = [x.rpartition(" ")[2] for x in classifiers if re.search(r"Python :: 3\.\d+$", x)]
    assert minors == ["3.11", "3.12", "3.13", "3.14"]
    for minor in (*minors, "3.15"):
        taken = SpecifierSet(options["python_requires"]).contains(minor)
        requirements = map(Requirement, options["install_requires"].split())
        names = {
            x.name
            for x in requirements
            if x.marker is None or x.marker.evaluate({"python_version": minor})
        }
        assert taken == (minor in minors)
        assert {"tensorflow", "keras"} & names == (
            {"tensorflow", "keras"} if minor < "3.14" else set()
        )
    extras = package["options.extras_require"]
    assert extras["tensorflow"].split() == [
        x.partition(";")[0] for x in options["install_requires"].split() if ";" in x
    ]
    for extra in ("als", "clicks", "frames", "jax", "metrics", "migrate", "recommend"):
        assert "tensorflow" not in extras[extra]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("citation-file-format", "CITATION.cff"),
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("dependabot", ".github/dependabot.yml"),
    ],
)
def test_a_file_has_the_form_that_its_reader_takes(schema: str, files: str) -> None:
    paths = [str(path) for path in ROOT.glob(files)]
    check = [str(pathlib.Path(sys.executable).parent / "check-jsonschema")]
    command = [*check, "--builtin-schema", f"vendor.{schema}", *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_is_published_names_the_repository_that_published_it(tmp_path) -> None:
    script = ROOT / ".github/addresses.py"
    for name in ("README.md", "setup.cfg", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    home = "https://github.com/Some/name"
    subprocess.run([sys.executable, script, home, "v9.8.7"], cwd=tmp_path, check=True)

    links = re.findall(r"\]\(([^)]*)\)", (tmp_path / "README.md").read_text())
    assert len(links) > 20
    assert {link.split(":")[0] for link in links if not link.startswith("#")} == {"https"}
    paths = [x.partition("/v9.8.7/")[2].partition("#")[0] for x in links if "/v9.8.7/" in x]
    assert all((ROOT / path).is_file() for path in paths)
    assert f"{home}/raw/v9.8.7/docs/report.png" in links
    package = configparser.ConfigParser()
    package.read(tmp_path / "setup.cfg")
    assert f"Issues = {home}/issues" in package["metadata"]["project_urls"]
    check = pathlib.Path(sys.executable).parent / "check-jsonschema"
    command = [check, "--builtin-schema", "vendor.citation-file-format", tmp_path / "CITATION.cff"]
    assert subprocess.run(command).returncode == 0


def test_actions_are_pinned_by_commit() -> None:
    used = {
        action
        for path in ROOT.glob(".github/workflows/*.yml")
        for action in re.findall(r"uses: (.*)", path.read_text())
    }
    loose = {x for x in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", x)}
    assert not loose
