"""Model card of each published model, with reasons to doubt its data, labels or results."""

import dataclasses
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfrank_sel import artefacts
from tfrank_sel.data import stores
from tfrank_sel.data.formats import TableReader
from tfrank_sel.errors import received
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
from tfrank_sel.pipelines.evaluation.slices import OVERALL
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion.inputs import POSITIONS
from tfrank_sel.pipelines.reporting import pages

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

MOST = 12  # rows of a list of files, features, slices or anomalies on the card


def facts(run: "Run") -> dict[str, Any]:
    """Returns the facts for the card of a run's model, JSON-ready.

    Args:
        run: The run, whose model is evaluated.
    """
    configuration, metric = run.configuration, run.configuration.blessing.metric
    evaluation = run.evaluation
    settings = run.settings.model_dump().items()
    slices = {name: x[metric] for name, x in evaluation.slices.items() if name != OVERALL}
    return {
        "name": configuration.serving.model_name,
        "description": configuration.serving.description,
        "made": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "data": {
            "files": files([x.path for x in run.job.inputs.sources] if run.job.inputs else []),
            "made": run.step_manifests["ingest"].made,
            "splits": {
                name: {"lists": split.statistics.lists, "items": split.statistics.items}
                for name, split in run.splits.items()
            },
        },
        "features": {
            name: _describe_feature(x.config()) for name, x in run.records.layout.features.items()
        },
        "model": {
            "class": configuration.model.class_,
            "losses": configuration.training.loss,
            "parameters": run.trained_models["ours"].model.count_params(),
            "settings": {name: value for name, value in settings if value is not None},
        },
        "against": evaluation.against,
        "metrics": {name: dataclasses.asdict(x) for name, x in evaluation.overall.items()},
        "metric": metric,
        "slices": {
            name: dataclasses.asdict(x)
            for name, x in sorted(slices.items(), key=lambda x: (x[1].difference, x[1].ours))
        },
        "warnings": [x for x in (ceiling(evaluation, metric),) if x] + warnings(run),
        "anomalies": [
            f"{x['split']}: {', '.join(x['features'])}: "
            + received(f"expected {x['expected']}", x["received"])
            for x in anomalies(run)
        ],
    }


def files(paths: Sequence[str]) -> list[str]:
    """Returns files as a card names them: URLs as addresses, others in their common folder.

    Example:
        >>> files(["/home/me/data/1/a.csv", "/home/me/data/2/a.csv", "https://me:x@host/b.csv?sig=1"])
        ['1/a.csv', '2/a.csv', 'https://host/b.csv']
    """
    here = {x: os.path.abspath(x) for x in paths if not stores.is_remote(x)}
    folder = os.path.commonpath(map(os.path.dirname, here.values())) if here else ""
    return [os.path.relpath(here[x], folder) if x in here else artefacts.address(x) for x in paths]


def text(values: Mapping[str, Any]) -> str:
    """Returns the card in Markdown.

    Args:
        values: Result of `facts`.
    """
    return pages.render("card.md.jinja", **values, most=MOST)


def _describe_feature(config: Mapping[str, Any]) -> str:
    of_query = ", of the query" if config.get("of") == "query" else ""
    size = f" of {config['size']}" if config["type"] == "vector" else ""
    return f"{config['type']}{size}{of_query}"


CEILING = 0.97  # share of the way from a random order to the order of the labels


def warnings(run: "Run") -> list[str]:
    """Returns the warnings of a run, as sentences.

    Args:
        run: The run, whose model is evaluated.
    """
    metric = run.configuration.blessing.metric
    return [*_of_data(run), *_of_position(run), *_of_results(run.evaluation, metric)]


def ceiling(evaluation: Evaluation, metric: str) -> str:
    """Describes the highest possible value of a metric; empty if it is 1.

    Args:
        evaluation: The evaluation.
        metric: Name of the metric.
    """
    compared = evaluation.ideal.get(metric)
    if compared is None or compared.baseline > 1.0 - 1e-6:
        return ""
    lacking = round(compared.queries * (1.0 - compared.baseline))
    lists = f"{lacking} of {compared.queries} lists have no relevant item"
    return f"{lists}: {metric} is at most {compared.baseline:.3f}."


def itself(evaluation: Evaluation) -> str:
    """Returns the warning if a model seems to be compared with itself; else an empty text."""
    if any(x.low or x.high for x in evaluation.overall.values()):
        return ""
    return (
        f"The model and the {evaluation.against} have equal metrics on each query: "
        "they are the same model, or rank alike."
    )


def anomalies(run: "Run") -> list[dict[str, Any]]:
    """Returns the anomalies, the widest first: those of a split and rule as one, with all features.

    Args:
        run: The run, whose data is analysed.
    """
    by_rule: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for path in sorted((run.output / "analyze" / "anomalies").glob("*.json")):
        for x in folders.read_json(path):
            by_rule.setdefault((path.stem, x["rule"], x["action"]), []).append(x)

    def width(x: dict[str, Any]) -> tuple[float, int]:
        return x["distance"] or 0.0, x["count"]

    groups = []
    for (split, *_), alike in by_rule.items():
        alike.sort(key=width, reverse=True)
        groups.append({**alike[0], "split": split, "features": [x["feature"] for x in alike]})
    return sorted(groups, key=width, reverse=True)


def _of_data(run: "Run") -> Iterator[str]:
    for group in anomalies(run):
        names = ", ".join(group["features"])
        if group["rule"] == "leak":
            yield (
                f"A single feature orders the labels: {names} ({group['received']}). If it is "
                "known only after the label, leave it out: a server does not know it."
            )
        elif group["rule"] == "shared_queries":
            yield f"The splits train and {group['split']} share queries: {group['received']}."


def positions(run: "Run") -> list[tuple[str, bool]]:
    """Returns the columns that look like positions and are not corrected for, by name, and whether
    each is a feature.

    Args:
        run: The run.
    """
    features, inputs, data = run.records.layout.features, run.job.inputs, run.configuration.data
    corrected = run.configuration.clicks.position or data.propensity
    may_be_clicks = {*run.splits["train"].statistics.labels} <= {"0", "1"}
    names = list(features)
    if inputs is not None and isinstance(inputs.reader, TableReader):
        names = inputs.reader.schema(inputs.sources[0].path).names
    named = [x for x in names if x.lower() in POSITIONS and x != data.label]
    is_asked = corrected is None and may_be_clicks
    return [(x, x in features) for x in named if x in features or is_asked]


def _of_position(run: "Run") -> Iterator[str]:
    for name, is_feature in positions(run):
        if is_feature:
            yield (
                f"{name} is a feature. A server does not know the position of an item before it is "
                "ranked: leave it out, and correct clicks for it by clicks.position."
            )
        else:
            yield (
                f"The files have {name}, and nothing corrects the labels for it. If they are "
                "clicks, the first items have too many: see clicks.position."
            )


def _of_results(evaluation: Evaluation, metric: str) -> Iterator[str]:
    chance, ideal = evaluation.chance[metric], evaluation.ideal.get(metric)
    if ideal is not None:
        way, covered = ideal.baseline - chance.baseline, ideal.ours - chance.baseline
        if way > 0.0 and covered >= CEILING * way:
            yield (
                f"{metric} {ideal.ours:.3f} is close to the highest possible value, "
                f"{ideal.baseline:.3f}: is a feature known only after the label?"
            )
    if warning := itself(evaluation):
        yield warning
    for name, compared in evaluation.simple.items():
        if compared[metric].low <= 0.0:
            yield f"{name} ranks as well: {compared[metric].describe(metric, name)}."
