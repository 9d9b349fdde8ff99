"""Shows that the tests find faults: `python tests/mutants.py [--all] [NAME ...]`.

Each line of `MUTANTS` is a fault of one line: a file of `tfrank_sel`, its text, which must occur once,
the faulty text, and the files of `make test` that should find it. Half of the faults are in pipelines,
data and serving. Each fault is tried alone, in a copy of the tree, by `pytest -x -m "not long"`. The
table names the test that caught it, or that none did. In the end, the tests that caught a fault must
pass in a copy without one. The status is 1 if a fault was missed, and 2 if a text does not occur once,
a file of tests does not exist, or a test fails without a fault.

`NAME` limits the faults to files whose path has it in it; `--all` runs the folders of these tests.
"""

# ruff: noqa: E501  # a fault is a line

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "runs", "__pycache__")
FAILED_TESTS = ".pytest_cache/v/cache/lastfailed"
LIMIT = 1800.0  # seconds; a fault is caught that leaves the tests without an end
RAN = (0, 1, 2)  # pytest's statuses: the tests passed, one failed, one could not be collected
NO_END = "no end"

# fmt: off
MUTANTS = (
    # data
    ("data/batching.py", "if j > 0:", "if j > 1:", "data/test_batching.py"),
    ("data/batching.py", "% count for number in range(len(names))", "% count for number in range(1, len(names) + 1)", "data/test_batching.py"),
    ("data/batching.py", "if not 0 <= index < count:", "if not 0 <= index <= count:", "data/test_batching.py"),
    ("data/cache.py", "return np.cumsum(self.sizes) - self.sizes", "return np.cumsum(self.sizes)", "data/test_cache.py"),
    ("data/cache.py", "np.arange(edge) < sizes[..., np.newaxis]", "np.arange(edge) <= sizes[..., np.newaxis]", "data/test_cache.py"),
    ("data/decimals.py", "kinds.take(last - has_point - 1) == _MINUS", "kinds.take(last - 1) == _MINUS", "data/test_decimals.py"),
    ("data/formats/csv.py", "number = part.start + row.number - 1", "number = part.start + row.number", "data/test_formats.py data/test_parts.py data/test_bad_values.py"),
    ("data/formats/rows.py", "if not np.isfinite(features).all():", "if False:", "data/test_bad_values.py data/test_formats.py"),
    ("data/formats/values.py", "is_kept = places < max_values", "is_kept = places <= max_values", "data/test_types.py data/test_formats.py"),
    ("data/formats/jsonl.py", "each = enumerate(file, start=part.start + 1)", "each = enumerate(file, start=part.start)", "data/test_formats.py data/test_parts.py data/test_bad_values.py"),
    ("data/layout.py", "tf.reduce_all(lengths == len(header) + size)", "tf.reduce_all(lengths >= len(header) + size)", "data/test_layout.py data/test_parsing.py"),
    ("data/letor.py", "row[int(name) - 1] = _number(number)", "row[int(name) - 2] = _number(number)", "data/test_letor.py"),
    ("data/letor.py", "if not 0.0 <= value < _TOO_LARGE:", "if not 0.0 < value < _TOO_LARGE:", "data/test_letor.py"),
    ("data/packed.py", "holds = tf.reduce_all((found == wanted) | (found == 0))", "holds = tf.reduce_any((found == wanted) | (found == 0))", "data/test_packed.py"),
    ("data/segments.py", "valid = ids >= 0", "valid = ids > 0", "test_segments.py"),
    ("data/wire.py", "while length > 0x7F:", "while length > 0xFF:", "data/test_writing.py data/test_packed.py data/test_elwc.py"),
    ("data/stores.py", 'os.fspath(folder).rstrip("/")', "os.fspath(folder)", "stores/test_stores.py ../tfrank_sel/data/stores.py"),
    ("data/stores.py", "if not is_local and kinds &", "if is_local and kinds &", "stores/test_stores.py stores/test_reading.py"),
    # pipelines
    ("pipelines/analysis/bands.py", "low = edge + 1", "low = edge", "pipelines/test_drift.py pipelines/test_statistics.py"),
    ("pipelines/analysis/drift.py", "1.0 / reference.lists + 1.0 / found.lists", "1.0 / reference.lists - 1.0 / found.lists", "pipelines/test_drift.py"),
    ("pipelines/analysis/gates.py", "distance <= bound)", "distance >= bound)", "pipelines/test_gates.py pipelines/test_drift.py"),
    ("pipelines/analysis/schema.py", "(values < low) | (values > high)", "(values < low)", "pipelines/test_gates.py pipelines/test_statistics.py"),
    ("pipelines/configuration/search.py", 'if not value["low"] < value["high"]:', "if False:", "pipelines/test_configuration.py"),
    ("pipelines/evaluation/blessing.py", "compared.high >= -margin", "compared.high >= margin", "pipelines/test_evaluation.py"),
    ("pipelines/evaluation/blessing.py", "overall.queries >= rules.min_queries", "overall.queries > rules.min_queries", "pipelines/test_evaluation.py"),
    ("pipelines/evaluation/blessing.py", "milliseconds <= rules.max_milliseconds", "milliseconds >= rules.max_milliseconds", "pipelines/test_evaluation.py"),
    ("pipelines/evaluation/slices.py", "if above < len(edges)", "if above <= len(edges)", "pipelines/test_evaluation.py"),
    ("pipelines/folders.py", '<= {".lock"}', '<= set()', "pipelines/test_main.py pipelines/test_steps.py"),
    ("pipelines/ingestion/census.py", "labels.min() == labels.max()", "labels.min() != labels.max()", "pipelines/test_ingest.py"),
    ("pipelines/ingestion/census.py", "self.lists += size > 0", "self.lists += size >= 0", "pipelines/test_ingest.py"),
    ("pipelines/ingestion/findings.py", "if y == source and z < part", "if y == source and z <= part", "pipelines/test_ingest.py pipelines/test_shards.py"),
    ("pipelines/ingestion/shards.py", "self.part <= key[0] <= self.part + 1", "self.part <= key[0] < self.part + 1", "pipelines/test_shards.py pipelines/test_pieces.py"),
    ("pipelines/publication.py", "if not worst <= TOLERANCE or", "if worst <= TOLERANCE or", "pipelines/test_saved.py pipelines/test_main.py"),
    ("pipelines/rankings.py", "places + 1, doc_ids", "places, doc_ids", "pipelines/test_scoring.py"),
    # serving
    ("serving/admission.py", ">= limits.receiving", "> limits.receiving", "serving/test_limits.py"),
    ("serving/admission.py", "if self._requests >= limits.requests or", "if self._requests > limits.requests or", "serving/test_limits.py"),
    ("serving/deployment/config.py", "if largest > max_batch_size(message):", "if False:", "serving/test_check.py"),
    ("serving/deployment/model_config.py", "if self.num_versions < 1:", "if self.num_versions < 0:", "serving/test_versions.py serving/test_options.py"),
    ("serving/engine/core.py", "if status.version == version]", "if status.version != version]", "serving/test_versions.py serving/test_grpc.py"),
    ("serving/engine/core.py", "if len({config.name for config in models}) < len(models):", "if False:", "serving/test_reload.py serving/test_versions.py"),
    ("serving/engine/inference.py", "if task.method_name == REGRESS:", "if task.method_name != REGRESS:", "serving/test_grpc.py"),
    ("serving/engine/predict.py", "_set(set(sent) - set(wanted))", "_set(set(wanted) - set(sent))", "serving/test_grpc.py serving/test_conformance.py"),
    ("serving/rest/json_inputs.py", "if not limits.min <= value <= limits.max:", "if not limits.min < value <= limits.max:", "serving/test_json.py"),
    ("serving/rest/json_outputs.py", "and not np.all(np.isfinite(array)):", "and np.all(np.isfinite(array)):", "serving/test_json.py serving/test_rest.py"),
    # estimator, training, export, objectives, root
    ("estimator/fitting.py", "not 0.0 < share < 1.0", "not 0.0 < share <= 1.0", "estimator/test_ranker.py"),
    ("estimator/lists.py", "max(1, round(share * count))", "max(0, round(share * count))", "estimator/test_ranker.py"),
    ("estimator/lists.py", "np.repeat(found, sizes)", "np.repeat(found, sizes)[order]", "estimator/test_ranker.py"),
    ("training.py", "self._losses[name].update_state(loss, tf.reduce_sum(is_list))", "self._losses[name].update_state(loss)", "pipelines/test_training.py estimator/test_ranker.py"),
    ("training.py", "return share / (learning_rate * steps)", "return share / learning_rate", "pipelines/test_training.py estimator/test_ranker.py"),
    ("callbacks.py", "tf.cast(values.ndcg > 0.0, tf.float32)", "tf.cast(values.ndcg >= 0.0, tf.float32)", "test_bounds.py"),
    ("claim.py", "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB", "pipelines/test_steps.py"),
    ("features.py", "return 1 + self.out_of_vocabulary + vocabulary", "return self.out_of_vocabulary + vocabulary", "data/test_types.py models/test_types.py"),
    ("listwise.py", "mask = labels >= min_label", "mask = labels > min_label", "contracts/test_any_input.py contracts/test_every_formula.py"),
    ("compilation.py", "fills = (padding, padding, False, 0.0)", "fills = (padding, padding, True, 0.0)", "contracts/test_compilations.py contracts/test_modes.py"),
    ("serialization.py", "elif text != _in_words(argument.default):", "elif text == _in_words(argument.default):", "contracts/test_names.py"),
    ("arguments.py", "return is_number and not (finite and not math.isfinite(value))", "return is_number", "contracts/test_constructors.py"),
    ("presets/tfr/losses.py", "return losses.CalibratedSoftmaxLoss(virtual_label, temperature, GAINS", "return losses.CalibratedSoftmaxLoss(temperature, virtual_label, GAINS", "golden/test_tfr_presets.py"),
    ("export/publication.py", "if keep < 1:", "if keep < 0:", "test_export.py serving/test_releases.py"),
    ("export/signatures.py", "mask &= places <= tf.reshape(k, [-1, 1])", "mask &= places < tf.reshape(k, [-1, 1])", "test_export.py"),
    ("objectives/lists.py", "(sizes > low) & (sizes <= width)", "(sizes > low) & (sizes < width)", "objectives/test_derivatives.py"),
    ("objectives/labels.py", "if low < _min_label(formula):", "if low <= _min_label(formula):", "objectives/test_derivatives.py"),
    ("migration/rewriting.py", "if len(positional) > _places(own):", "if len(positional) < _places(own):", "migration/test_rewriting.py"),
    # models, links
    ("models/als/interactions.py", "ids.max() >= count)", "ids.max() > count)", "models/als"),
    ("models/als/retrieval.py", "1.0 / np.log2(np.arange(2, k + 2))", "1.0 / np.log2(np.arange(3, k + 3))", "models/als/test_factorizer.py"),
    ("models/als/rows.py", "product[k] + renewed / norm * direction[k]", "product[k] + norm / renewed * direction[k]", "models/als/test_solver.py"),
    ("models/als/solver.py", "self.objective.lift * total - self", "self.objective.lift * total + self", "models/als/test_solver.py"),
    ("models/boosted_trees/model.py", "below = x <= tf.gather", "below = x < tf.gather", "models/test_boosted_trees.py models/test_tree_readers.py"),
    ("models/log_q.py", "gaps += rate *", "gaps -= rate *", "models/test_log_q.py"),
    ("models/perceptron.py", "is_value = tf.cast(found > 0.0,", "is_value = tf.cast(found >= 0.0,", "models/test_types.py"),
    ("models/recalibrated.py", "blocks[-1][2] * block[0] >= block[2]", "blocks[-1][2] * block[0] <= block[2]", "models/test_recalibrated.py"),
    ("models/within_list.py", "total += tf.cast(count, x.dtype) - size", "total -= tf.cast(count, x.dtype) - size", "models/test_preparation.py models/test_list_scorer.py"),
    ("links/algebraic.py", "return x * tf.atan(x) - tf.where", "return x * tf.atan(x) + tf.where", "contracts/test_every_link.py"),
    ("links/bounded.py", "(x >= low) & (x <= high) if self.ends_belong", "(x >= low) & (x < high) if self.ends_belong", "contracts/test_every_link.py"),
    ("links/combinators.py", "inside = (s > self.lower) & (s < self.upper)", "inside = (s > self.lower) | (s < self.upper)", "contracts/test_every_link.py"),
    ("links/convexity.py", "(slope + lift) / (np.abs(slope) + lift)", "(slope - lift) / (np.abs(slope) + lift)", "links/test_convexity.py"),
    ("links/piecewise.py", "low = -math.inf if self.slope_below > 0.0", "low = -math.inf if self.slope_above > 0.0", "contracts/test_every_link.py"),
    ("links/sensitivity.py", "s, w = s[w > 0.0], w[w > 0.0]", "s, w = s[w >= 0.0], w[w >= 0.0]", "links/test_sensitivity.py"),
    # losses, metrics, ops
    ("losses/lambdas.py", "beyond = lower > float(self.k)", "beyond = lower >= float(self.k)", "golden/test_tfr_losses.py contracts/test_every_formula.py"),
    ("losses/classes/margin.py", "tf.where(c < -cos_m,", "tf.where(c < cos_m,", "contracts/test_class_labels.py contracts/test_every_formula.py"),
    ("losses/distillation/rank_errors.py", "n * (n + 1.0) * (n - 1.0)", "n * (n + 1.0) * (n + 1.0)", "losses/test_distillation.py contracts/test_every_formula.py"),
    ("losses/selective/matching.py", "once = place[:, tf.newaxis] < place", "once = place[:, tf.newaxis] <= place", "losses/test_selective.py contracts/test_every_formula.py"),
    ("losses/clicks/mixture.py", "tf.where(clicks >= 1.0,", "tf.where(clicks > 1.0,", "contracts/test_other_inputs.py"),
    ("metrics/cascade.py", "return (1.0 - self.persistence) *", "return self.persistence *", "contracts/test_every_formula.py"),
    ("metrics/base.py", "relevant = labels >= self.relevance_level", "relevant = labels > self.relevance_level", "metrics/test_conventions.py contracts/test_every_formula.py"),
    ("metrics/comparison.py", "- first", "+ first", "metrics/test_compare.py"),
    ("metrics/fusion.py", "weight * ((score - low) / span", "weight * ((score + low) / span", "metrics/test_fusion.py"),
    ("metrics/bootstrap.py", "tail = 50.0 * (1.0 - CONFIDENCE)", "tail = 50.0 * (1.0 + CONFIDENCE)", "metrics/test_compare.py"),
    ("metrics/diversity.py", "valid = labels >= self.min_label", "valid = labels > self.min_label", "contracts/test_diversity.py"),
    ("ops/interleaving.py", "placed.write(t, with_row > best)", "placed.write(t, with_row >= best)", "contracts/test_every_formula.py losses/test_softmax_family.py"),
    ("ops/pairs.py", "first.scores - second.scores", "second.scores - first.scores", "ops/test_pairs.py"),
)
# fmt: on


def main() -> int:
    """Tries the faults and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="run the folders of the tests")
    options = parser.parse_args()
    if stale := [problem for mutant in MUTANTS if (problem := _problem(*mutant))]:
        print(*stale, sep="\n", file=sys.stderr)
        return 2
    chosen = [x for x in MUTANTS if not options.names or any(y in x[0] for y in options.names)]
    caught_by: set[str] = set()
    missed = 0
    for file, old, new, tests in chosen:
        failed = _failed(_paths(tests, options.all), file, old, new)
        caught_by.update(failed)
        missed += not failed
        print(f"{'; '.join(failed) or 'MISSED'}  {file}: {old} -> {new}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught, {missed} missed")
    if failed := _failed(caught_by - {NO_END}):
        print(f"Without a fault, expected no test that fails. Received: {failed}", file=sys.stderr)
        return 2
    return int(missed > 0)


def _paths(tests: str, folders: bool) -> set[str]:
    paths = (pathlib.PurePosixPath("tests", x) for x in tests.split())
    return {str(x.parent if folders and len(x.parts) > 2 else x) for x in paths}


def _problem(file: str, old: str, new: str, tests: str) -> str:
    """What is wrong with a line of the table, empty if nothing is."""
    if (count := (ROOT / "tfrank_sel" / file).read_text().count(old)) != 1 or old == new:
        return f"tfrank_sel/{file}: expected the text once: {old!r}. Received: {count} times."
    lacking = [x for x in tests.split() if not (ROOT / "tests" / x).exists()]
    return f"tfrank_sel/{file}: no such tests: {lacking}" if lacking else ""


def _failed(
    tests: Collection[str], file: str = "__init__.py", old: str = "", new: str = ""
) -> list[str]:
    """The tests that fail in a copy of the tree that has the fault; ends at the first."""
    if not tests:
        return []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        faulty = copy / "tfrank_sel" / file
        faulty.write_text(faulty.read_text().replace(old, new) if old else faulty.read_text())
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not long", *sorted(tests)]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            return [NO_END]
        if done.returncode not in RAN:
            raise RuntimeError(f"Pytest did not run {sorted(tests)}: {done.stdout[-2000:]}")
        failed = copy / FAILED_TESTS
        return list(json.loads(failed.read_text())) if done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
