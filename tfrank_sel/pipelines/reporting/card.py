"""Model card: one page for each published model."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from tfrank_sel.pipelines.evaluation.evaluation import Comparison
from tfrank_sel.pipelines.evaluation.slices import OVERALL
from tfrank_sel.pipelines.files import manifests
from tfrank_sel.pipelines.reporting import judgement, pages
from tfrank_sel.pipelines.runs import Run

MOST = 12  # rows of a list of files, features, slices or anomalies on the card


def facts(run: Run) -> dict[str, Any]:
    """Returns the facts for the card of a run's model, JSON-ready.

    Args:
        run: The run, whose model is evaluated.
    """
    configuration, metric = run.configuration, run.configuration.blessing.metric
    ingested, found = manifests.read(run.output, "ingest"), run.evaluation
    assert ingested is not None
    settings = run.settings.model_dump().items()
    slices = {name: x[metric] for name, x in found.slices.items() if name != OVERALL}
    return {
        "name": configuration.serving.model_name,
        "description": configuration.serving.description,
        "made": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "data": {
            "files": [source.path for source in run.given.sources] if run.given else [],
            "made": ingested["made"],
            "splits": {
                name: {"lists": split.statistics.lists, "items": split.statistics.items}
                for name, split in run.splits.items()
            },
        },
        "features": {name: _described(x.config()) for name, x in run.layout.features.items()},
        "model": {
            "class": configuration.model.class_,
            "losses": configuration.training.loss,
            "parameters": run.trained["ours"].model.count_params(),
            "settings": {name: value for name, value in settings if value is not None},
        },
        "against": found.against,
        "metrics": {name: dataclasses.asdict(x) for name, x in found.overall.items()},
        "metric": metric,
        "slices": {
            name: dataclasses.asdict(slices[name]) for name in sorted(slices, key=_by(slices))
        },
        "warnings": [x for x in (judgement.ceiling(found, metric),) if x] + judgement.warnings(run),
        "anomalies": [
            f"{x['split']}: {', '.join(x['features'])}: expected {x['expected']}. "
            f"Received: {x['received']}"
            for x in judgement.anomalies(run)
        ],
    }


def text(told: Mapping[str, Any]) -> str:
    """Returns the card in Markdown.

    Args:
        told: Result of `facts`.
    """
    return pages.render("card.md.jinja", **told, most=MOST)


def _by(slices: Mapping[str, Comparison]) -> Any:
    """The key that sorts slices, the worst difference first."""
    return lambda name: (slices[name].ours - slices[name].baseline, slices[name].ours)


def _described(config: Mapping[str, Any]) -> str:
    of_query = ", of the query" if config.get("of") == "query" else ""
    size = f" of {config['size']}" if config["type"] == "vector" else ""
    return f"{config['type']}{size}{of_query}"
