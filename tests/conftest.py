"""Fixtures for all tests."""

import collections
import datetime
import fcntl
import functools
import json
import logging
import os
import pathlib
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

# no test is about time, and a machine may be busy
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

# what `make test` leaves to `make test-all`: long trials, and all that documents show
LONG = (
    "distribution",
    "estimator/test_checks.py",
    "losses/test_experiments.py",
    "models/als/test_group.py",
    "models/test_cosine_classifier.py",
    "objectives/test_boosters.py",
    "pipelines/test_candidates.py",
    "pipelines/test_card.py",
    "pipelines/test_daily.py",
    "pipelines/test_kills.py",
    "pipelines/test_memory.py",
    "pipelines/test_registry.py",
    "pipelines/test_resume.py",
    "pipelines/test_tracking.py",
    "pipelines/test_trees.py",
    "pipelines/test_tune.py",
    "pipelines/test_written.py",
    "plots/test_figures.py",
    "serving/test_attacks.py",
    "serving/test_faults.py",
    "stores/test_leases.py",
    "stores/test_runs.py",
    "stores/test_scoring.py",
    "stores/test_serving.py",
    "test_click_log.py",
    "test_examples.py",
    "test_no_room.py",
    "test_pages.py",
    "test_site.py",
    "test_speed.py",
    "test_speed_gpu.py",
)


TESTS = pathlib.Path(__file__).parent

# Of how many cases one is in `make test`: of golden vectors, and, by `turns.json`, of contracts of
# what all formulas, models and formats share. Those of the next day are the next ones, so that as
# many days have all. A test without cases is in `make test` every so many days: trainings, runs and
# processes of whose parts other tests are. Each formula is compared with its reference, padded,
# weighted and saved every day.
DAY = os.environ.setdefault("TFRANK_SEL_DAY", str(datetime.date.today()))  # also that of workers
GOLDEN_SAMPLE = 12
TURNS: dict[str, int] = json.loads((TESTS / "turns.json").read_text())


class _OfAutoGraph(logging.Handler):
    """Raises where TensorFlow tells a user that AutoGraph cannot read a function of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        if "AutoGraph could not transform" in record.msg:
            module = getattr(record.args[0], "__module__", None) or ""
            assert not module.startswith("tfrank_sel"), record.getMessage()


logging.getLogger("tensorflow").addHandler(_OfAutoGraph())


@functools.cache
def is_long(path: pathlib.Path) -> bool:
    return any(path.is_relative_to(TESTS / name) for name in LONG)


@functools.cache
def is_golden(path: pathlib.Path) -> bool:
    return path.is_relative_to(TESTS / "golden")


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Does not even read the long trials where they are left out: what they import takes long."""
    leaves_out = config.getoption("markexpr") in ("not long", "not(long)")
    return True if leaves_out and is_long(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of these files and folders, and most cases of samples, as long."""
    today, cases = datetime.date.fromisoformat(DAY).toordinal(), collections.Counter[str]()
    for item in items:
        sample, place = 1, 0
        if hasattr(item, "callspec") and is_golden(item.path):
            sample, place = GOLDEN_SAMPLE, today + zlib.crc32(item.nodeid.encode())
        elif turns := TURNS.get(getattr(item, "originalname", "")):
            test = item.nodeid.partition("[")[0]
            sample, place = turns, today + zlib.crc32(test.encode()) + cases[test]
            cases[test] += 1
        if is_long(item.path) or place % sample:
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seeds what has no seed of its own, such as weights: a test fails always or never."""
    import numpy as np  # not in the process that hands tests out

    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)  # also that of Keras' layers; TensorFlow's would clear its cache of kernels
    np.random.seed(seed)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Makes a folder once for all processes of the session.

    `shared(name, make)` returns the folder, and what `make(folder)` returned, as JSON has it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def made(name: str, make: Callable[[pathlib.Path], Any]) -> tuple[pathlib.Path, Any]:
        folder, told = root / name, root / f"{name}.json"
        with open(root / f"{name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not told.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
                folder.mkdir()
                told.write_text(json.dumps(make(folder)))
        return folder, json.loads(told.read_text())

    return made


@pytest.fixture(scope="session")
def exported(shared: Callable[..., Any]) -> pathlib.Path:
    """The folder of the exported models of `named`: `typed`, `odd` and `lookups`."""
    from tests.serving import named

    return shared("exported", named.export_all)[0]


@pytest.fixture
def eagerly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs functions without tracing or compiling them, unless a test is about that."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(request.node.get_closest_marker("compiled") is None)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(autouse=True, scope="session")
def _equal_losses_share_what_is_compiled() -> Iterator[None]:
    """Keeps what tests compile, as a program does that keeps its losses."""
    import tfrank_sel.compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrank_sel.compilation, "_in_use", {})
        yield
