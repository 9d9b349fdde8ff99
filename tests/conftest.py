"""Fixtures for all tests."""

import functools
import logging
import pathlib
import zlib
from collections.abc import Iterator

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


# Of how many cases one is in `make test`: of golden vectors, and of contracts that test what all
# formulas share. Each formula is compared with its reference, padded, weighted and saved.
GOLDEN_SAMPLE = 8
SAMPLES = {
    "test_a_metric_is_the_same_in_every_mode": 3,
    "test_an_index_in_graphs": 3,
    "test_an_index_is_a_one_hot_row": 4,
    "test_any_numeric_dtype_computes_in_float32": 3,
    "test_every_mode_has_the_same_value_and_gradients": 3,
    "test_gradients_equal_finite_differences": 3,
    "test_ragged_equals_padded": 3,
    "test_weights_per_list_in_every_shape_agree": 3,
    "test_xla_agrees": 3,
}

TESTS = pathlib.Path(__file__).parent


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
    for item in items:
        sample = 1
        if hasattr(item, "callspec"):
            sample = GOLDEN_SAMPLE if is_golden(item.path) else SAMPLES.get(item.originalname, 1)
        if is_long(item.path) or zlib.crc32(item.nodeid.encode()) % sample:
            item.add_marker(pytest.mark.long)


@pytest.fixture
def eagerly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs functions without tracing or compiling them, unless a test is about that."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(request.node.get_closest_marker("compiled") is None)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(autouse=True, scope="module")
def _equal_losses_share_what_is_compiled() -> Iterator[None]:
    """Keeps what the tests of a module compile, as a program does that keeps its losses."""
    import tfrank_sel.compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrank_sel.compilation, "_in_use", {})
        yield
