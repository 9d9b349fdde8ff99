"""The evaluator: a model against the last one blessed, query by query, and whether it may go."""

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tfx.components.evaluator import constants, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import standard_artifacts
from tfx.utils import io_utils, path_utils
from tfx.v1.dsl.components import InputArtifact, OutputArtifact, Parameter, component

from tfrank_sel import metrics
from tfrank_sel.pipelines.evaluation.bootstrap import paired_bootstrap
from tfrank_sel.pipelines.tfx.lists import PARSED_AT_ONCE, Layout, pattern, records

RULED_BY = "NDCG@10"

_log = logging.getLogger(__name__)


@component
def Evaluator(  # noqa: N802
    examples: InputArtifact[standard_artifacts.Examples],
    schema: InputArtifact[standard_artifacts.Schema],
    model: InputArtifact[standard_artifacts.Model],
    evaluation: OutputArtifact[standard_artifacts.ModelEvaluation],
    blessing: OutputArtifact[standard_artifacts.ModelBlessing],
    baseline_model: InputArtifact[standard_artifacts.Model] = None,
    least_ndcg: Parameter[float] = 0.0,
    tolerance: Parameter[float] = 0.01,
    seed: Parameter[int] = 42,
) -> None:
    """Evaluates on the split `test`, and blesses a model that is good enough and no worse.

    TFMA evaluates row by row of `tf.Example`; here a list is the row. See `verdict` for the rule.
    """
    layout = Layout.load(schema.uri)
    serialized = records(pattern(examples, "test"))
    ours = per_query(path_utils.serving_model_path(model.uri), serialized, layout)
    baseline = None
    if baseline_model is not None:
        before = path_utils.serving_model_path(baseline_model.uri)
        baseline = per_query(before, serialized, layout)
    found = verdict(ours, baseline, least_ndcg=least_ndcg, tolerance=tolerance, seed=seed)
    io_utils.write_string_file(
        os.path.join(evaluation.uri, "metrics.json"), json.dumps(found, indent=2) + "\n"
    )
    _bless(blessing, model, baseline_model, found)
    _log.info(
        "%s %.4f over %d queries: %s",
        RULED_BY,
        found["metrics"][RULED_BY]["ours"],
        found["queries"],
        "; ".join(found["objections"]) or "blessed",
    )


class BlessingExecutor(
    Evaluator.EXECUTOR_SPEC.executor_class,  # type: ignore[name-defined]
    executor.Executor,
):
    """Runs `Evaluator`, and is one of TFX's own evaluators to the entry point of its containers.

    Only of these does it give the blessing the model's name on the platform, by which Kubeflow's
    resolver finds the blessed model.
    """


Evaluator.EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(BlessingExecutor)


def per_query(
    saved_model: str, serialized: tf.data.Dataset, layout: Layout
) -> dict[str, np.ndarray]:
    """Returns each metric's value for each query, in the order of the lists.

    Args:
        saved_model: Folder of a SavedModel that `tfrank_sel.export` wrote.
        serialized: Serialized lists; those without items count 0.
        layout: What describes an item.

    Raises:
        ValueError: If the model ranks by another number of features, or there is no list.
    """
    loaded = tf.saved_model.load(saved_model)
    predict = loaded.signatures["predict"]
    wanted = predict.structured_input_signature[1]["features"].shape[-1]
    if wanted != len(layout.features):
        raise ValueError(
            f"{saved_model} must rank by the {len(layout.features)} features of the lists. "
            f"Received: a model of {wanted}"
        )
    # shapes change from batch to batch: XLA would compile for each
    measures = [*(metrics.NDCG(k, name=f"NDCG@{k}") for k in (1, 5, 10)), metrics.MRR(name="MRR")]
    evaluate = metrics.Evaluator(measures, jit_compile=False)
    parts = []
    for features, labels, _ in serialized.batch(PARSED_AT_ONCE).map(layout.parse):
        scores = predict(features=features, mask=~tf.math.is_nan(labels))["scores"]
        parts.append(evaluate(labels, scores))
    if not parts:
        raise ValueError("the split `test` must hold a list. Received: none")
    return {
        measure.name: np.concatenate([part[measure.name].values.numpy() for part in parts])
        for measure in measures
    }


def verdict(
    ours: Mapping[str, np.ndarray],
    baseline: Mapping[str, np.ndarray] | None,
    *,
    least_ndcg: float,
    tolerance: float,
    seed: int,
) -> dict[str, Any]:
    """Compares two models, and says what speaks against the new one.

    It must have a mean NDCG@10 of at least `least_ndcg`, and if there is a baseline, the 95 %
    interval of the difference must not reach below `-tolerance`.

    Args:
        ours: Each metric of the new model, query by query.
        baseline: The same of the model that was blessed last, or None.
        least_ndcg: See above.
        tolerance: See above.
        seed: Seed of the bootstrap.

    Returns:
        `queries`, their number; `metrics`, of each the mean for `ours`, and with a baseline also
        for `baseline`, and the interval from `low` to `high` of the difference; `objections`,
        sentences; none if the model may go.
    """
    means: dict[str, dict[str, float]] = {}
    for name, values in ours.items():
        means[name] = {"ours": float(values.mean())}
        if baseline is not None:
            low, high = paired_bootstrap(values - baseline[name], seed=seed)
            theirs = float(baseline[name].mean())
            means[name] |= {"baseline": theirs, "low": low, "high": high}
    objections, ruled = [], means[RULED_BY]
    if ruled["ours"] < least_ndcg:
        objections.append(f"{RULED_BY} must be at least {least_ndcg:g}, is {ruled['ours']:.4f}")
    if ruled.get("low", 0.0) < -tolerance:
        objections.append(
            f"{RULED_BY} must not be more than {tolerance:g} below the baseline's: "
            f"the difference is from {ruled['low']:+.4f} to {ruled['high']:+.4f}"
        )
    return {"queries": len(ours[RULED_BY]), "metrics": means, "objections": objections}


def _bless(
    blessing: standard_artifacts.ModelBlessing,
    model: standard_artifacts.Model,
    baseline: standard_artifacts.Model | None,
    found: Mapping[str, Any],
) -> None:
    """Writes the blessing as the stock Evaluator does, so that Resolver and Pusher understand."""
    blessed = not found["objections"]
    name = constants.BLESSED_FILE_NAME if blessed else constants.NOT_BLESSED_FILE_NAME
    io_utils.write_string_file(os.path.join(blessing.uri, name), "")
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, int(blessed))
    blessing.set_string_custom_property(
        constants.ARTIFACT_PROPERTY_BLESSING_MESSAGE_KEY, "; ".join(found["objections"])
    )
    blessing.set_string_custom_property(
        constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri
    )
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    if baseline is not None:
        blessing.set_string_custom_property(
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY, baseline.uri
        )
        blessing.set_int_custom_property(
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY, baseline.id
        )
