"""Evaluator component: evaluation and blessing of a model against the champion."""

import json
import logging
import os

import apache_beam as beam
from tfx.components.evaluator import constants, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import standard_artifacts
from tfx.utils import io_utils, path_utils
from tfx.v1.dsl.components import (
    BeamComponentParameter,
    InputArtifact,
    OutputArtifact,
    Parameter,
    component,
)

from tfrank_sel.pipelines import Blessing, Rules, SavedScorer, bless, evaluate, side_by_side
from tfrank_sel.pipelines.tfx.sequences import SequenceExamples, SequenceSchema, pattern, records

_log = logging.getLogger(__name__)


@component(use_beam=True)
def Evaluator(  # noqa: N802
    examples: InputArtifact[standard_artifacts.Examples],
    schema: InputArtifact[standard_artifacts.Schema],
    model: InputArtifact[standard_artifacts.Model],
    evaluation: OutputArtifact[standard_artifacts.ModelEvaluation],
    blessing: OutputArtifact[standard_artifacts.ModelBlessing],
    columns: Parameter[str],
    baseline_model: InputArtifact[standard_artifacts.Model] = None,
    rules: Parameter[str] = "{}",
    seed: Parameter[int] = 42,
    gain: Parameter[str] = '"exponential"',
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Evaluates on the split `test`, and blesses according to `rules`, the fields of `Rules` as
    JSON.

    `baseline_model` is the champion: the latest blessed model, if there is one. `columns` is the
    config of the `Columns` of the lists, and `gain` that of the evaluation, as JSON. TFMA evaluates
    `tf.Example` row by row; here a row is a list.
    """
    layout = SequenceSchema.load(schema.uri, columns)
    ours, champion = (
        saved and SavedScorer(path_utils.serving_model_path(saved.uri), layout.signature)
        for saved in (model, baseline_model)
    )
    test = pattern(examples, "test")
    evaluated = evaluate(
        ours,
        champion,
        SequenceExamples([test], layout.spec, layout.context, layout=layout),
        evaluation.uri,
        seed=seed,
        against="champion",
        gain=json.loads(gain),
        pipeline=beam_pipeline,
    )
    one_by_one = (layout.predict_inputs(serialized)[0] for serialized in records(test).batch(1))
    with_items = (inputs for inputs in one_by_one if inputs["mask"].shape[1])
    compared = side_by_side(ours, champion, with_items)
    milliseconds = compared["milliseconds"]["ours"]["p99"]
    blessed = bless(evaluated, Rules(**json.loads(rules)), milliseconds=milliseconds)
    for name, figures in (
        ("metrics", evaluated.figures()),
        ("blessing", {**blessed.figures(), "beside": compared}),
    ):
        path = os.path.join(evaluation.uri, f"{name}.json")
        io_utils.write_string_file(path, json.dumps(figures, indent=2) + "\n")
    _write(blessing, model, baseline_model, blessed)
    ruled = evaluated.overall[blessed.rules.metric]
    _log.info(
        "%s %.4f over %d queries: %s",
        blessed.rules.metric,
        ruled.ours,
        ruled.queries,
        "; ".join(blessed.reasons) or "blessed",
    )


class BlessingExecutor(
    Evaluator.EXECUTOR_SPEC.executor_class,  # type: ignore[name-defined]
    executor.Executor,
):
    """Executor of `Evaluator`, which the entry point of TFX's containers treats as TFX's own
    evaluator.

    Only for those does the entry point add the model's platform name to the blessing, by which
    Kubeflow's resolver finds the blessed model.
    """


Evaluator.EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(BlessingExecutor)


def _write(
    blessing: standard_artifacts.ModelBlessing,
    model: standard_artifacts.Model,
    baseline: standard_artifacts.Model | None,
    outcome: Blessing,
) -> None:
    """Writes the blessing in the format of the stock Evaluator, for Resolver and Pusher."""
    name = constants.BLESSED_FILE_NAME if outcome.blessed else constants.NOT_BLESSED_FILE_NAME
    io_utils.write_string_file(os.path.join(blessing.uri, name), "")
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, int(outcome.blessed))
    blessing.set_string_custom_property(
        constants.ARTIFACT_PROPERTY_BLESSING_MESSAGE_KEY, "; ".join(outcome.reasons)
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
