"""Fixtures for all tests."""

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


# one of so many golden vectors is in `make test`
GOLDEN_SAMPLE = 8

TESTS = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of these files and folders, and most golden vectors, as long."""
    for item in items:
        golden = item.path.is_relative_to(TESTS / "golden") and hasattr(item, "callspec")
        left_out = golden and zlib.crc32(item.nodeid.encode()) % GOLDEN_SAMPLE
        if left_out or any(item.path.is_relative_to(TESTS / name) for name in LONG):
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
