"""Environment of TFX: an error explains why it cannot run. Its tests are in `tests/tfx`."""

import importlib.util
import pathlib
import shutil
import subprocess

import pytest

from tests.serving import deployments

FOLDER = pathlib.Path(__file__).parents[2] / "pipelines" / "tfx"
TOOLS = ("bash", "sort", "head", "tail", "uname", "cat", "env")
PYTHON = """#!/usr/bin/env bash
case $2 in *version_info*) echo {version} ;; *confstr*) echo {glibc} ;; esac
"""


def script_said(folder, *arguments, version="3.11", glibc="2.36"):
    """Runs the script where no tool is but the plainest, with a Python that says what it is."""
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    python = folder / "python"
    python.write_text(PYTHON.format(version=version, glibc=glibc))
    python.chmod(0o755)
    given = arguments or (str(folder / "venv"), str(python), "tfx")
    done = subprocess.run(
        [str(FOLDER / "environment.sh"), *given],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert not (folder / "venv").exists()
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("arguments", [("venv",), ("venv", "python")])
def test_too_few_arguments_are_refused(tmp_path, arguments):
    assert "expected VENV PYTHON REQUIREMENT... Received: venv" in script_said(tmp_path, *arguments)


def test_another_python_is_refused(tmp_path):
    assert "Received: " in script_said(tmp_path, version="3.13")


def test_an_old_glibc_without_apt_is_refused_with_what_to_do(tmp_path):
    said = script_said(tmp_path)
    assert "TFX needs glibc 2.39, this system has 2.36" in said
    assert "apt-get, which is not there. Use a system with glibc 2.39" in said


@pytest.mark.parametrize("image", ["tfx", "dataflow"])
def test_an_image_has_no_fault_and_no_root(image):
    hadolint = deployments.tool("hadolint")
    file = FOLDER.with_name(image) / "Dockerfile"
    assert deployments.run(hadolint, file) == (0, "")
    assert "\nUSER 1000\n" in file.read_text()


def test_without_tfx_the_import_error_names_extra_and_script():
    if importlib.util.find_spec("tfx"):
        pytest.skip("TFX is installed")
    with pytest.raises(ImportError, match=r"tfrank_sel\[tfx\].*environment\.sh"):
        importlib.import_module("tfrank_sel.pipelines.tfx")
