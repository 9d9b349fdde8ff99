"""What all command lines have."""

import configparser
import importlib
import pathlib
import sys

import pytest

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
