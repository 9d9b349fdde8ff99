"""The step `export`, and the trial of an exported model with requests of real lists."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from tfrank_sel import data, export as exports, models
from tfrank_sel.data import letor, typed
from tfrank_sel.export.saved_model import CARD
from tfrank_sel.pipelines.console import interrupts
from tfrank_sel.pipelines.evaluation.saved import RecordScorer, TracedScorer
from tfrank_sel.pipelines.export.requests import first_lists, infra_validate, rest_request
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.reporting import card

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

WARM_UP_LISTS = 4
TRIED_LISTS = 16  # by the signatures of an export


def export(run: "Run", folder: Path) -> None:
    """Exports and tests a model: `saved_model/`, and a query of the test split, also for REST.

    Args:
        run: The run, whose model is evaluated; it gets the exported model, loaded.
        folder: Folder to write to.
    """
    configuration, progress, facts = run.configuration, run.progress, card.facts(run)
    test, held_out = run.splits["test"], run.splits["validation"]
    model, score = run.trained_models["ours"].model, run.scorers["ours"]
    schema, saved_model = test.layout, folder / "saved_model"
    with progress.step("export") as step, interrupts.defer():
        if method := configuration.serving.recalibration:
            try:
                model = models.recalibrate(model, held_out.batches(), method)
            except ValueError as error:
                raise data.InputError("validation", f"serving.recalibration: {error}") from error
            ours = dataclasses.replace(run.trained_models["ours"], model=model)
            score = TracedScorer(ours.scores, test.inputs)
            step.tell(f"scores are expected labels: {method}")
        exports.export(
            model,
            schema,
            saved_model,
            examples=first_lists(held_out.shards, schema, WARM_UP_LISTS),
            metadata={
                "metrics": {name: x.ours for name, x in run.evaluation.overall.items()},
                "feature_names": schema.names,
                "card": facts,
            },
            score=score,
        )
        folders.write_text(saved_model / CARD, card.text(facts))
        as_onnx = folder / "model.onnx" if configuration.export.onnx else None
        if as_onnx is not None:
            try:
                exports.onnx(model, as_onnx)
            except ValueError as error:
                raise configuration.error("export.onnx", str(error)) from error
    with progress.step("infra validation") as step, interrupts.defer():
        exported = RecordScorer(str(saved_model), schema.features)
        gap = infra_validate(
            exported, score, schema, test.shards, lists=TRIED_LISTS, as_onnx=as_onnx
        )
        step.tell(f"every signature scores as the model does, to {gap:.1g}")
    # the first list with two different labels
    lists = stored_lists.lists(test.shards, schema.spec)
    first = next(x for x in lists if x.labels.min() < x.labels.max())
    if schema.types is None:
        unweighted = dataclasses.replace(first, weights=None)
        folders.write_text(folder / "one_query.txt", letor.text(unweighted))
    else:
        folders.write_text(folder / "one_query.jsonl", typed.text(first, schema.types))
    folders.write_text(folder / folders.REQUEST, rest_request(first, schema))
    run.exported_model = exported
    exported.move_to(str(run.output / "export" / "saved_model"))
