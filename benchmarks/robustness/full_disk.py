"""Behaviour on a full disk: an error that names the file, and no leftover files.

    python -m benchmarks.robustness.full_disk [--steps "run ingest" export ...] [--limits 100 ...]

Does each step of `kills` undisturbed once, then with files that may not grow beyond each limit, as
on a disk that is full: a write fails sooner or later, in Python, in Beam or in TensorFlow. The step
must then either not have needed the room, or fail with an error that names a file in its place, and
leave there what was there before; done again with room it must give the same as the undisturbed
one.
Prints a Markdown table; status 1 at the first rule broken.
"""

import argparse
import os
import resource
import shutil
import signal
from pathlib import Path

import rich.progress

from benchmarks.robustness.kills import (
    STEPS,
    Step,
    assert_same,
    before,
    contents,
    ended,
    tried,
)

LIMITS = [100, 1_000, 10_000, 100_000]


def limited(step: Step, folder: Path, place: Path, limit: int | None) -> str:
    """Does a step in a process of its own; returns its error, or nothing.

    Raises:
        AssertionError: If the process ended without telling.
    """
    read, write = os.pipe()
    if not (child := os.fork()):
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing raises an error
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            step(folder, place)
            os.write(write, b"done")
        except Exception as error:
            os.write(write, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    status = ended(child)
    with os.fdopen(read) as told:
        error = told.read()
    assert error, f"ended with status {status}"
    return error.removeprefix("done")


def trial(name: str, limits: list[int], folder: Path) -> list[tuple[int, str]]:
    """Does a step with each limit; returns the errors.

    Raises:
        AssertionError: If a rule is broken.
    """
    step, place = STEPS[name], folder / "results" / "7"
    before(name, folder, place)
    known, errors = contents(place), []
    error = limited(step, folder, place, None)
    assert not error, error
    expected = contents(place)
    for limit in rich.progress.track(limits, name):
        before(name, folder, place)
        if error := limited(step, folder, place, limit):
            errors.append((limit, error))
            assert str(place.parent) in error, f"limit {limit}: names no file: {error}"
            left = contents(place)
            of_training = {x for x in left if x.startswith(".train.partial/")}
            if name != "run":
                assert_same({x: left[x] for x in left.keys() - of_training}, known)
            assert not limited(step, folder, place, None)
        assert_same(contents(place), expected)
    shutil.rmtree(place)
    return errors


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--limits", nargs="+", type=int, default=LIMITS)
    options = parser.parse_args()
    print("| step | octets a file | error |")
    print("|---|---|---|")

    def without_room(name: str, folder: Path) -> list[tuple[int, str]]:
        return trial(name, options.limits, folder)

    for name, errors in tried(options.steps, without_room):
        for limit, error in errors:
            print(f"| {name} | {limit} | {error.splitlines()[0][:200]} |", flush=True)


if __name__ == "__main__":
    main()
