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
# A test without cases is in `make test` every so many days: trainings, runs and processes of whose
# parts other tests are. Each formula is compared with its reference, padded, weighted and saved
# every day.
DAY = os.environ.setdefault("TFRANK_SEL_DAY", str(datetime.date.today()))  # also that of workers
GOLDEN_SAMPLE = 12
SAMPLES = {
    "test_a_better_version_wins_from_the_command_line": 3,
    "test_a_category_has_one_text_by_every_way_in": 3,
    "test_a_classifier_trains": 3,
    "test_a_column_of_any_type_is_read_or_refused_in_one_line": 3,
    "test_a_dataset_trains_without_a_warning": 3,
    "test_a_feature_that_vanishes_ends_the_run_where_a_gate_says_so": 3,
    "test_a_file_that_is_read_in_parts_gives_the_same_shards_in_every_run": 2,
    "test_a_loss_is_convex_at_least_zero_and_zero_where_it_should_be": 3,
    "test_a_metric_is_the_same_in_every_mode": 6,
    "test_a_model_of_a_user_starts_from_all_weights": 3,
    "test_a_model_of_two_masked_outputs_trains_and_loads": 3,
    "test_a_model_reports_it_and_keeps_it": 3,
    "test_a_network_learns_what_a_category_is_worth": 2,
    "test_a_network_with_the_layer_trains_and_is_saved": 2,
    "test_a_notebook_that_cannot_be_rewritten_is_named": 3,
    "test_a_part_fetches_what_it_needs_and_some_ahead": 3,
    "test_a_restored_iterator_goes_on_with_the_same_batches": 2,
    "test_a_run_and_the_estimator_train_the_same_members": 3,
    "test_a_run_judges_its_order_by_the_clicks_of_the_log": 3,
    "test_a_run_learns_corrected_labels_and_not_the_position": 2,
    "test_a_score_that_is_not_finite_makes_the_loss_of_its_list_nan": 3,
    "test_a_session_gets_a_team_draft_of_both_versions_which_is_logged": 2,
    "test_a_signal_ends_a_server_whose_first_version_is_loading": 3,
    "test_a_training_starts_from_the_weights_of_another_member_by_member": 3,
    "test_a_version_scores_the_trees_that_learned_from_a_run": 2,
    "test_an_ensemble_of_trees_and_a_network_is_saved_and_exported": 3,
    "test_an_explanation_adds_up_to_the_score_of_an_exact_vector": 3,
    "test_an_index_in_graphs": 6,
    "test_an_index_is_a_one_hot_row": 8,
    "test_an_index_of_masked_and_of_ragged_lists": 3,
    "test_any_input_gives_a_value_or_an_error_that_says_what_was_wanted": 3,
    "test_any_network_is_within_its_errors": 2,
    "test_any_numeric_dtype_computes_in_float32": 3,
    "test_batches_of_tensorflow_find_the_same_factors": 3,
    "test_best_are_those_of_all_logits_without_seen_items": 3,
    "test_blocks_of_lists_equal_the_whole": 3,
    "test_both_derivatives_equal_finite_differences": 4,
    "test_both_layouts_agree": 3,
    "test_compressed_files_are_read_by_their_names": 3,
    "test_corrected_labels_are_the_attractions_of_the_simulation": 3,
    "test_cosh_is_valid_up_to_its_critical_gamma_wherever_it_is_moved": 3,
    "test_defaults_fit_usual_scores_or_the_error_names_what_does": 3,
    "test_derivatives_equal_differences_of_a_float64_reference": 3,
    "test_divergence_is_at_least_zero_everywhere": 3,
    "test_each_format_holds_the_same": 2,
    "test_each_list_is_in_one_shard": 2,
    "test_each_name_is_rewritten_or_marked_in_each_position": 3,
    "test_each_position_of_a_sequence_is_a_list": 4,
    "test_eager_tapes_nest": 3,
    "test_embeddings_reach_the_objective_of_the_factors": 3,
    "test_equal_items_score_equally": 5,
    "test_equals_the_loss_on_all_logits": 5,
    "test_every_format_gives_the_same_lists_in_the_same_splits": 3,
    "test_every_format_is_read_from_a_store": 2,
    "test_every_mode_has_the_same_output_and_gradient": 2,
    "test_every_mode_has_the_same_value_and_gradients": 6,
    "test_every_type_is_read_from_records": 4,
    "test_features_that_are_known_after_the_click_are_found_in_the_log": 3,
    "test_files_of_a_store_come_as_those_on_disk": 3,
    "test_files_without_labels_are_read_as_lists_of_zeros": 3,
    "test_fit_learns_the_next_item": 2,
    "test_float32_has_six_digits_at_any_spread_of_scores": 3,
    "test_gradient_is_finite_at_extreme_scores": 3,
    "test_gradients_equal_finite_differences": 5,
    "test_gradients_of_first_and_second_order_are_exact": 2,
    "test_gradients_train_the_other_weights_and_later_all": 3,
    "test_graphs_of_any_known_shape_agree": 3,
    "test_half_precision_scores_are_computed_in_float32": 2,
    "test_heavy_items_in_one_lane_bring_the_full_degree": 3,
    "test_identifiers_are_those_of_read": 6,
    "test_intervals_of_sessions_cover_the_truth_for_a_few_queries": 3,
    "test_it_is_saved_and_exported": 3,
    "test_it_is_what_the_parser_of_tensorflow_reads": 3,
    "test_it_learns_what_no_item_tells_alone": 3,
    "test_it_trains_and_is_saved_with_the_model": 2,
    "test_items_are_shuffled_by_the_seed_before_truncation": 3,
    "test_k_of_100_among_2000": 3,
    "test_keras_makes_every_class_of_the_imported_package": 3,
    "test_keras_saved_model_grpc_and_rest_agree": 3,
    "test_labels_of_sessions_are_of_the_items_that_each_user_examined": 3,
    "test_lambda_weights_sort_and_return_each_item_its_own": 3,
    "test_large_data_have_a_provisional_result_that_changes_no_other": 3,
    "test_learns_a_cycle_and_is_saved": 2,
    "test_lists_may_come_in_any_order": 2,
    "test_lists_of_every_format_are_read_whole": 3,
    "test_lists_of_named_features_come_the_same_way": 3,
    "test_lists_of_unknown_size_are_summed_alike": 3,
    "test_lists_one_after_the_other_equal_padded_ones": 3,
    "test_little_effort_trains_trees_alone": 3,
    "test_long_lists_are_scored_in_parts": 3,
    "test_metrics_of_a_training_are_the_same_in_every_mode": 3,
    "test_minus_infinity_is_absent_and_has_no_gradient": 3,
    "test_modes_agree": 2,
    "test_moments_of_many_items_take_less_memory_than_the_items": 3,
    "test_new_items_are_recommended_by_their_features": 3,
    "test_no_lists_and_lists_without_items_are_zero": 3,
    "test_no_thread_of_tensorflow_is_left_by_a_training": 3,
    "test_nothing_is_warned_of_where_all_of_it_is_put_right": 3,
    "test_numbers_widen_or_are_refused_in_one_line": 3,
    "test_one_of_several_models_is_interleaved_as_long_as_it_has_both_versions": 2,
    "test_only_the_caller_compiles_and_once_per_shape": 3,
    "test_other_columns_are_features_as_in_the_log": 3,
    "test_places_are_the_same_counted_and_sorted": 3,
    "test_points_near_each_other_keep_their_digits": 3,
    "test_powers_are_valid_from_their_critical_constant": 3,
    "test_propensities_are_the_mean_examinations_of_the_simulation": 3,
    "test_ragged_equals_padded": 3,
    "test_rounding_of_a_member_is_no_score": 3,
    "test_rows_of_any_order_are_grouped_in_memory_and_on_disk": 3,
    "test_scores_equal_those_of_the_model": 3,
    "test_several_items_of_a_state_are_labels_of_one_list": 3,
    "test_shuffled_batches_are_whole_and_hold_each_list": 4,
    "test_simulated_propensities_are_estimated_and_covered": 3,
    "test_soft_rank_never_holds_cubes": 3,
    "test_steps_lower_the_objective_to_that_of_a_dense_solution": 2,
    "test_tau_anneals_without_another_compilation": 3,
    "test_tensorboard_and_a_saved_model_take_the_names": 3,
    "test_the_gradient_of_soft_rank_is_stable_for_long_lists": 2,
    "test_the_layout_for_a_gpu_has_no_loop": 3,
    "test_the_lists_of_all_parts_are_those_of_the_file": 2,
    "test_the_migrated_program_has_the_curve_of_the_original": 2,
    "test_the_model_of_a_log_is_named_with_the_likelihood_of_its_parameters": 3,
    "test_the_objective_never_increases": 3,
    "test_the_optimum_stays": 3,
    "test_the_pairwise_loss_never_holds_all_pairs": 3,
    "test_the_rows_of_all_parts_are_those_of_the_file_in_order": 3,
    "test_the_same_order_has_the_same_value_to_the_last_digit": 3,
    "test_the_trained_network_scores_prepared_lists_as_the_model_scores_raw_ones": 3,
    "test_typed_fields_are_read_as_tensorflow_reads_them": 4,
    "test_types_are_chosen_and_columns_without_one_are_named": 3,
    "test_versions_swap_without_a_failed_request": 3,
    "test_weights_of_items_may_follow_weights_of_lists": 2,
    "test_weights_per_list_in_every_shape_agree": 3,
    "test_what_bundles_that_fail_or_are_repeated_wrote_does_not_count": 3,
    "test_what_is_killed_at_any_change_is_written_again_and_leaves_nothing": 3,
    "test_workers_and_this_process_find_the_same": 3,
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
            sample, place = GOLDEN_SAMPLE, today + zlib.crc32(item.nodeid.encode())
        elif turns := SAMPLES.get(getattr(item, "originalname", "")):
            test = item.nodeid.partition("[")[0]
            sample, place = turns, today + zlib.crc32(test.encode()) + cases[test]
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
