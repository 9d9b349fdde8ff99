"""Fixtures for all tests."""

import collections
import fcntl
import functools
import itertools
import json
import logging
import os
import pathlib
import random
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import hypothesis
import pytest

# no test is about time, a machine may be busy, and the examples are the same on all days
hypothesis.settings.register_profile(
    "busy",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
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
# examples in docstrings that train, or search, for seconds
LONG_EXAMPLES = (
    "tfrank_sel.callbacks.AnnealTau",
    "tfrank_sel.estimator.ranker.Ranker",
    "tfrank_sel.links.convexity.critical_constant",
    "tfrank_sel.links.convexity.critical_gamma",
    "tfrank_sel.models.als.alternation.ItemSolver",
    "tfrank_sel.models.als.tuning.tune",
)


TESTS = pathlib.Path(__file__).parent

# of how many golden vectors one is in `make test`, as `@pytest.mark.sample` says of other cases
GOLDEN_SAMPLE = 60
COLLECTED = pytest.StashKey[list[pytest.Item]]()  # before those that a run leaves out go


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
    """Whether a file replays golden vectors, those of a road too, which are in its own folder."""
    return path.is_relative_to(TESTS) and "golden" in str(path.relative_to(TESTS))


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Does not even read the long trials where they are left out: what they import takes long."""
    leaves_out = config.getoption("markexpr") in ("not long", "not(long)")
    return True if leaves_out and is_long(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests of these files and folders, and the cases beyond samples, as long."""
    config.stash[COLLECTED] = list(items)
    tests = collections.defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if is_long(item.path) or item.name in LONG_EXAMPLES:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long") is None:
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        mark = cases[0].get_closest_marker("sample")
        share = mark.args[0] if mark else GOLDEN_SAMPLE if is_golden(cases[0].path) else 1
        if share > 1:
            chosen = sample({case.name: values_of(case) for case in cases}, share)
            for case in cases:
                if case.name not in chosen:
                    case.add_marker(pytest.mark.long)


def values_of(case: pytest.Item) -> set[Any]:
    """The values of the parameters of a case, the pairs of them, and the family in its name."""
    if not hasattr(case, "callspec"):
        return set()
    params = sorted(case.callspec.params.items())
    plain = str, int, float, type(None)  # others are the same objects in all cases of a test
    values = [(name, x if isinstance(x, plain) else id(x)) for name, x in params]
    return {case.callspec.id.partition("-")[0], *values, *itertools.combinations(values, 2)}


def sample(cases: Mapping[str, set[Any]], share: float) -> set[str]:
    """Returns one in `share` cases, which meet as many values as they can, on all days the same.

    Each is the one that has most values that none before it has, the first by a hash of its name.
    """
    left, chosen = sorted(cases, key=lambda name: zlib.crc32(name.encode())), set[str]()
    met = set[Any]()
    while len(chosen) * share < len(cases):
        best = max(left, key=lambda name: len(cases[name] - met))
        left.remove(best)
        chosen.add(best)
        met |= cases[best]
    return chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seeds what has no seed of its own, such as weights: a test fails always or never."""
    import numpy as np  # not in the process that hands tests out

    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)  # also that of Keras' layers; TensorFlow's would clear its cache of kernels
    np.random.seed(seed)
    for x in vars(getattr(item, "module", None) or object).values():
        if isinstance(x, np.random.Generator):  # whichever tests of the file ran before
            x.bit_generator.state = np.random.PCG64(seed).state


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


@pytest.fixture(autouse=True, scope="module")
def _equal_losses_share_what_is_compiled() -> Iterator[None]:
    """Keeps what the tests of a file compile, as a program does that keeps its losses."""
    import tfrank_sel.compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrank_sel.compilation, "_in_use", {})
        yield
