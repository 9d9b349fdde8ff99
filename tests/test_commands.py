"""What all command lines have."""

import configparser
import importlib
import pathlib
import subprocess
import sys
import warnings

import pytest
from typer.testing import CliRunner

from tfrank_sel.commandline import Application, log_warnings
from tfrank_sel.version import __version__

SETUP = configparser.ConfigParser()
SETUP.read(pathlib.Path(__file__).parent.parent / "setup.cfg")
COMMANDS = SETUP["options.entry_points"]["console_scripts"].split("\n")[1:]


@pytest.mark.parametrize("entry", COMMANDS)
def test_a_command_prints_its_version(
    entry: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, function = entry.replace(" ", "").partition("=")
    module, _, main = function.partition(":")
    monkeypatch.setattr(sys, "argv", [name, "--version"])
    with pytest.raises(SystemExit) as ended:
        getattr(importlib.import_module(module), main)()
    assert not ended.value.code
    assert capsys.readouterr().out == f"tfrank_sel {__version__}\n"


WITHOUT_EXTRAS = """
import sys
from tfrank_sel import launch
sys.modules["libcst"] = sys.modules["typer"] = None
sys.argv = ["a link", "--help"]
for name in {names}:
    try:
        getattr(launch, name)()
    except SystemExit as ended:
        print(ended.code)
"""


def test_a_missing_extra_is_one_line() -> None:
    names = [entry.rpartition(":")[2] for entry in COMMANDS]
    script = WITHOUT_EXTRAS.format(names=names)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["2"] * len(names), done.stderr
    for name, line in zip(names, done.stderr.splitlines(), strict=True):
        assert ("libcst" if name == "migrate" else "typer") in line
        assert "pip install" in line


HELP = """
import sys
from tfrank_sel import launch
sys.argv = ["a link", "--help"]
for name in {names}:
    try:
        getattr(launch, name)()
    except SystemExit as ended:
        print("status", ended.code or 0, "tensorflow" in sys.modules)
"""


def test_help_does_not_wait_for_tensorflow() -> None:
    script = HELP.format(names=[entry.rpartition(":")[2] for entry in COMMANDS])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    ends = [line for line in done.stdout.splitlines() if line.startswith("status ")]
    assert ends == ["status 0 False"] * len(COMMANDS)


def test_help_fills_the_lines_of_the_terminal() -> None:
    app = Application()

    @app.command()
    def rank() -> None:
        """Rank the items
        of a query.

        The first
        paragraph ends here.
        """

    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert " Rank the items of a query." in shown
    assert " The first paragraph ends here." in shown


def test_warnings_are_told_before_the_error_and_no_text_of_either_is_obeyed() -> None:
    app = Application()

    @app.command()
    def fail() -> None:
        with log_warnings():
            warnings.warn("a \x1b[31mcause", UserWarning, stacklevel=2)
            raise ValueError("a \x1b]0;fault")

    done = CliRunner().invoke(app)
    assert done.exit_code == 2
    assert done.stderr == "Warning: a \\u001b[31mcause\na \\u001b]0;fault\n"
