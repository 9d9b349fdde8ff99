"""Fixtures for all tests."""

import collections
import datetime
import fcntl
import functools
import json
import logging
import os
import pathlib
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


# Of how many cases one is in `make test`: of golden vectors, and of contracts of what all formulas,
# models and formats share. Those of the next day are the next ones, so that as many days have all.
# Each formula is compared with its reference, padded, weighted and saved every day.
DAY = os.environ.setdefault("TFRANK_SEL_DAY", str(datetime.date.today()))  # also that of workers
GOLDEN_SAMPLE = 8
SAMPLES = {
    "test_a_category_has_one_text_by_every_way_in": 3,
    "test_a_column_of_any_type_is_read_or_refused_in_one_line": 3,
    "test_a_file_that_is_read_in_parts_gives_the_same_shards_in_every_run": 2,
    "test_a_metric_is_the_same_in_every_mode": 3,
    "test_a_run_learns_corrected_labels_and_not_the_position": 2,
    "test_a_score_that_is_not_finite_makes_the_loss_of_its_list_nan": 3,
    "test_an_index_in_graphs": 3,
    "test_an_index_is_a_one_hot_row": 4,
    "test_an_index_of_masked_and_of_ragged_lists": 3,
    "test_any_input_gives_a_value_or_an_error_that_says_what_was_wanted": 3,
    "test_any_numeric_dtype_computes_in_float32": 3,
    "test_batches_of_tensorflow_find_the_same_factors": 3,
    "test_both_derivatives_equal_finite_differences": 3,
    "test_corrected_labels_are_the_attractions_of_the_simulation": 3,
    "test_defaults_fit_usual_scores_or_the_error_names_what_does": 3,
    "test_derivatives_equal_differences_of_a_float64_reference": 3,
    "test_each_format_holds_the_same": 2,
    "test_each_name_is_rewritten_or_marked_in_each_position": 3,
    "test_embeddings_reach_the_objective_of_the_factors": 3,
    "test_equal_items_score_equally": 3,
    "test_every_format_gives_the_same_lists_in_the_same_splits": 3,
    "test_every_format_is_read_from_a_store": 2,
    "test_every_mode_has_the_same_output_and_gradient": 2,
    "test_every_mode_has_the_same_value_and_gradients": 3,
    "test_gradient_is_finite_at_extreme_scores": 3,
    "test_gradients_equal_finite_differences": 3,
    "test_graphs_of_any_known_shape_agree": 3,
    "test_identifiers_are_those_of_read": 3,
    "test_it_is_what_the_parser_of_tensorflow_reads": 3,
    "test_keras_saved_model_grpc_and_rest_agree": 3,
    "test_labels_of_sessions_are_of_the_items_that_each_user_examined": 3,
    "test_lists_of_named_features_come_the_same_way": 3,
    "test_lists_one_after_the_other_equal_padded_ones": 3,
    "test_minus_infinity_is_absent_and_has_no_gradient": 3,
    "test_no_lists_and_lists_without_items_are_zero": 3,
    "test_numbers_widen_or_are_refused_in_one_line": 3,
    "test_other_columns_are_features_as_in_the_log": 3,
    "test_ragged_equals_padded": 3,
    "test_scores_equal_those_of_the_model": 3,
    "test_the_model_of_a_log_is_named_with_the_likelihood_of_its_parameters": 3,
    "test_weights_per_list_in_every_shape_agree": 3,
    "test_xla_agrees": 9,
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
    today, cases = datetime.date.fromisoformat(DAY).toordinal(), collections.Counter[str]()
    for item in items:
        sample, place = 1, 0
        if hasattr(item, "callspec") and is_golden(item.path):
            sample, place = GOLDEN_SAMPLE, zlib.crc32(item.nodeid.encode())
        elif hasattr(item, "callspec"):
            test = item.nodeid.partition("[")[0]
            sample, place = SAMPLES.get(item.originalname, 1), today + cases[test]
            cases[test] += 1
        if is_long(item.path) or place % sample:
            item.add_marker(pytest.mark.long)


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
        with open(root / f"{name}.lock", "w") as lock:
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
