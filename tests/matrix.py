"""The versions of TensorFlow, Keras and Python that the library works with.

    python tests/matrix.py [--only 2.16 2.17 ...]

Makes an environment for each with uv, in which it runs contracts, models, data and export. Prints
a Markdown table, and ends with status 1 if a test failed. The newest versions on Python 3.11 are
those of `make test`, and TensorFlow 2.15 with Keras 2 is that of `make test-tfr`.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path("build", "matrix")
TESTS = "tests/contracts tests/data tests/models tests/test_export.py tests/test_export_named.py"
# the tests of `make test`, but those that need the extra `serving`
CHOSEN = ["-m", "not(long)", "-k", "not server_without_xla"]
HEAD = "| Python | TensorFlow | Keras | NumPy | tests |\n|---|---|---|---|---|"


@dataclasses.dataclass(frozen=True)
class Versions:
    """What an environment holds.

    Args:
        python: Minor version of Python.
        tensorflow: Minor version of TensorFlow.
        keras: Minor version of Keras; the newest that goes with TensorFlow if empty.
    """

    python: str
    tensorflow: str
    keras: str = ""

    @property
    def requirements(self) -> list[str]:
        found = [f"tensorflow=={self.tensorflow}.*", "tensorflow-serving-api"]
        found += [f"keras=={self.keras}.*"] if self.keras else []
        # later ones need NumPy 2, which they do not tell pip
        found += ["pyarrow<24"] if self.tensorflow in ("2.16", "2.17") else []
        return [*found, "--editable", ".[test,als]"]


MATRIX = (
    Versions("3.11", "2.16", "3.4"),
    *(Versions("3.11", minor) for minor in ("2.16", "2.17", "2.18", "2.19", "2.20")),
    *(Versions(python, "2.21") for python in ("3.12", "3.13")),
)


def row(versions: Versions) -> tuple[str, bool]:
    """Runs the tests, and returns a row of the table and whether all passed."""
    folder = FOLDER / "-".join(filter(None, dataclasses.astuple(versions)))
    python = str(folder / "bin" / "python")
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--clear", "--python", versions.python, folder], check=True)
    install = [*uv, "pip", "install", "-q", "--python", python, *versions.requirements]
    subprocess.run(install, check=True)
    told = "import keras, numpy, tensorflow; print(*(x.__version__ for x in"
    told += " (tensorflow, keras, numpy)), sep=' | ')"
    done = subprocess.run([python, "-c", told], capture_output=True, text=True, check=True)
    log = FOLDER / f"{folder.name}.log"
    with log.open("w") as file:
        tests = [python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *CHOSEN]
        flags = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        run = [*tests, *TESTS.split()]
        passed = subprocess.run(run, stdout=file, stderr=file, env=flags).returncode == 0
    count = re.findall(r"^.*\d+ (?:passed|failed).*$", log.read_text(), re.MULTILINE)
    outcome = count[-1].strip("= ") if count else f"see {log}"
    return f"| {versions.python} | {done.stdout.splitlines()[-1]} | {outcome} |", passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    minors = sorted({versions.tensorflow for versions in MATRIX})
    parser.add_argument("--only", nargs="*", choices=minors, default=minors, help="of TensorFlow")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    fine = True
    for versions in MATRIX:
        if versions.tensorflow in arguments.only:
            line, passed = row(versions)
            fine = fine and passed
            print(line, flush=True)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
