"""The wheel holds one package, and nothing else."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent


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
