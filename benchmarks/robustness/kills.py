"""Kill tests: a process killed at any time must not leave harmful files or files that are read.

    python -m benchmarks.robustness.kills [--kills 50] [--minutes 60] [--seed 0]
        [--steps "run ingest" run export publish]

Does each step undisturbed once, in a process of its own: those of `tfrank-sel-pipelines run`, the
whole run, an export, a publication. Then starts it as often as KILLS says and ends it by SIGKILL at
a random moment of its duration. After each kill each step of a run must be absent or whole, and an
export or publication too; then the step is done again, which must succeed, give the same as the
undisturbed one, and leave nothing next to it. Prints a Markdown table, where a step that takes
longer than MINUTES has fewer kills; status 1 at the first rule broken.
"""

import argparse
import functools
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import rich.console
import rich.progress

from tfrank_sel import data, export
from tfrank_sel.pipelines import console, run as pipeline
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.run import steps

T = TypeVar("T")
Step = Callable[[Path, Path], None]  # from the folder of inputs to the place of the result

# What two runs never have alike: clocks, dates, and the names inside a model. That they trained the
# same is told by the metrics and by blessing.json.
_VOLATILE = re.compile(
    r"^train/(logs/|training\.json)|manifest\.json$|^push/pushed\.json$|^report\.html$|\.keras$"
    r"|fingerprint\.pb$|^(export/saved_model|serving)/.*(\.pb|/variables\.\S+)$"
)


def _run(folder: Path, output: Path, only: str | None = None) -> None:
    sections = {
        "data": {"data": [str(folder / "lists.txt")], "split": [60.0, 20.0, 20.0]},
        "training": {"epochs": 3, "batch_size": 8},
        "blessing": {"margin": 1.0},
    }
    quiet = console.Progress(rich.console.Console(quiet=True))
    pipeline.run(Configuration.model_validate(sections), output, quiet, only=only)


def _export(folder: Path, output: Path) -> None:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([keras.Input([None, 3]), layers.Dense(1), layers.Reshape([-1])])
    export.export(model, data.FeatureSpec(num_features=3), output)


def _publish(folder: Path, output: Path) -> None:
    export.publish(folder / "saved_model", output.parent, int(output.name))


STEPS: dict[str, Step] = {
    **{f"run {name}": functools.partial(_run, only=name) for name in steps.STEPS},
    "run": _run,
    "export": _export,
    "publish": _publish,
}


def make(folder: Path, lists: int = 40) -> None:
    """Makes what the steps read: lists, and something like a SavedModel."""
    chance = np.random.default_rng(0)
    made = []
    for query in range(lists):
        features = chance.normal(size=(4, 3)).astype(np.float32)
        labels = np.argsort(np.argsort(features[:, 0])).astype(np.float32)
        made.append(data.ItemList(f"q{query}", labels, features, ("a", "b", "c", "d")))
    data.letor.write(folder / "lists.txt", made)
    variables = folder / "saved_model" / "variables"
    variables.mkdir(parents=True)
    (folder / "saved_model" / "saved_model.pb").write_bytes(bytes(1000))
    for part in range(200):
        (variables / f"part-{part}").write_bytes(chance.bytes(20_000))


def start(step: Step, folder: Path, output: Path) -> int:
    """Starts a step in a process of its own, which has imported all it needs; returns its id."""
    if child := os.fork():
        return child
    status = 1
    try:
        step(folder, output)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """Waits for a process, and returns its status; negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def contents(place: Path) -> dict[str, str]:
    """What a result holds: a digest of each file, but of those that no two runs have alike."""
    found = {}
    for path in sorted(path for path in place.rglob("*") if path.is_file()):
        name = str(path.relative_to(place))
        if _VOLATILE.search(name):
            found[re.sub(r"events\..*", "events", name)] = ""
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def before(name: str, folder: Path, place: Path) -> None:
    """Makes the place as it is before a step: a run with the steps that it needs, or nothing."""
    shutil.rmtree(place, ignore_errors=True)
    *_, step = name.split()
    if name == step:
        return
    kept = folder / f"before {name}"
    if not kept.exists():
        for needed in tuple(steps.STEPS)[: tuple(steps.STEPS).index(step)]:
            assert ended(start(STEPS[f"run {needed}"], folder, kept)) == 0, needed
        kept.mkdir(exist_ok=True)
    shutil.copytree(kept, place, symlinks=True)


def trial(name: str, kills: int, minutes: float, seed: int, folder: Path) -> dict[str, int]:
    """Kills a step again and again, so often or so long; returns how often what stood at its place.

    Raises:
        AssertionError: If a rule is broken.
    """
    step, chance = STEPS[name], random.Random(f"{name} {seed}")
    place = folder / "results" / "7"

    def undisturbed() -> dict[str, str]:
        assert ended(start(step, folder, place)) == 0, f"{name}: did not succeed"
        names = sorted(path.name for path in place.parent.iterdir())
        assert names == [place.name], f"{name}: left {names}"
        return contents(place)

    began = time.perf_counter()
    before(name, folder, place)
    began, started = time.perf_counter(), began
    expected = undisturbed()
    duration = time.perf_counter() - began
    counts = {"kills": 0, "nothing there": 0, "parts there": 0, "whole": 0}
    for _ in rich.progress.track(range(kills), name):
        before(name, folder, place)
        counts["kills"] += 1
        child = start(step, folder, place)
        time.sleep(chance.uniform(0.0, duration))
        os.kill(child, signal.SIGKILL)
        ended(child)
        found = contents(place)
        for part in (path for path in place.glob("[a-z]*") if path.is_dir()):
            of_part = {x: y for x, y in found.items() if x.startswith(f"{part.name}/")}
            known = {x: y for x, y in expected.items() if x.startswith(f"{part.name}/")}
            if part.name in steps.STEPS:
                assert_same(of_part, known)
        is_whole = {x: y for x, y in found.items() if not x.startswith(".")} == expected
        counts["whole" if is_whole else "parts there" if found else "nothing there"] += 1
        if name in ("export", "publish"):
            assert is_whole or not place.exists(), f"{name}: a part at its place"
            shutil.rmtree(place, ignore_errors=True)
        assert_same(undisturbed(), expected)
        if time.perf_counter() > started + 60 * minutes:
            break
    return counts


def assert_same(found: dict[str, str], expected: dict[str, str]) -> None:
    """Raises an `AssertionError` that names what differs."""
    differ = sorted(name for name, _ in found.items() ^ expected.items())
    assert not differ, f"differ: {json.dumps(differ)}"


def tried(names: Sequence[str], trial: Callable[[str, Path], T]) -> Iterator[tuple[str, T]]:
    """Yields what a trial of each step gives, in a folder with inputs; exits at a rule broken."""
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            make(Path(scratch))
            try:
                found = trial(name, Path(scratch))
            except AssertionError as error:
                sys.exit(f"{name}: {error}")
        yield name, found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=60.0, help="of each step, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    options = parser.parse_args()
    print("| step | kills | nothing there | parts there | whole |")
    print("|---|---|---|---|---|")

    def killed(name: str, folder: Path) -> dict[str, int]:
        return trial(name, options.kills, options.minutes, options.seed, folder)

    for name, counts in tried(options.steps, killed):
        cells = map(str, (name, *counts.values()))
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
