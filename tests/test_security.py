"""Guarantees of the page on security."""

import configparser
import pathlib
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parent.parent


def test_nothing_that_is_loaded_can_hold_code():
    loads = r"^import pickle|pickle\.loads?\(|allow_pickle=True|\beval\(|\bexec\(|yaml\.load\("
    loads += r"|safe_mode=False|enable_unsafe_deserialization"
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for package in ("tfrank_sel", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        # rows that the process itself put into a temporary folder of its own
        if path != ROOT / "tfrank_sel" / "pipelines" / "ingestion" / "reading.py"
        for line in path.read_text().splitlines()
        if re.search(loads, line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("stack", "extras"),
    [
        ("default", ["pipelines", "tune", "mlflow", "serving", "plots", "als"]),
        ("tfr", ["tfr"]),
        ("dataflow", ["pipelines", "beam"]),
    ],
)
def test_what_is_pinned_is_what_the_package_takes(stack: str, extras: list[str]) -> None:
    text = (ROOT / "requirements" / f"{stack}.txt").read_text().replace("\\\n", "")
    pins = {}
    for name, version, hashes in re.findall(r"(?m)^(\S+)==(\S+)(.*)$", text):
        pins[canonicalize_name(name)] = version
        assert re.fullmatch(r"(\s+--hash=sha256:[0-9a-f]{64})+", hashes), name
    assert len(pins) == len(text.splitlines())
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = setup["options"]["install_requires"]
    wanted += "".join(setup["options.extras_require"][extra] for extra in extras)
    for line in filter(None, re.sub(r"#.*", "", wanted).split("\n")):
        requirement = Requirement(line)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), line
