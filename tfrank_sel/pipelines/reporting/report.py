"""Report of a run: a single self-contained page."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import markupsafe
import numpy as np

from tfrank_sel import data, metrics, roads
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.models.summary import compress
from tfrank_sel.ops.ranking import gain_arguments
from tfrank_sel.pipelines.analysis import sketches
from tfrank_sel.pipelines.analysis.statistics import DataSplit
from tfrank_sel.pipelines.configuration import Configuration, load
from tfrank_sel.pipelines.configuration.sections import without_secrets
from tfrank_sel.pipelines.evaluation import inspection
from tfrank_sel.pipelines.evaluation.evaluation import Comparisons, Evaluation
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.ingestion.clicks import PROPENSITIES
from tfrank_sel.pipelines.ingestion.stored_lists import Scorer
from tfrank_sel.pipelines.reporting import card, figures, pages
from tfrank_sel.pipelines.reporting.verdict import Verdict

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

SAMPLES = 3
# Number of items of a sample that the report shows.
SHOWN = 10
IMPORTANT = 20  # features whose importance is shown
WITH_VALUES = 4  # of these, with their values in the samples
_ELSEWHERE = ("features", "data.train", "data.validation", "data.test", "data.data")
BARS = 24


def write(run: "Run", mark: str) -> Path:
    """Writes `report.html` of a run.

    Args:
        run: The run, all of whose steps are done.
        mark: What the file ends with.

    Returns:
        The page.
    """
    trained, splits, models = run.trained_models, run.splits, run.scorers
    test = splits["test"]
    measured, told = run.evaluation, card.facts(run)
    judged = folders.read_json(run.output / "push" / "blessing.json")
    options: Any = {"seed": run.settings.seed, "gain": run.settings.gain}
    curves = {name: x.first(test.longest) for name, x in sorted(measured.curves.items())}
    sample = test.sample()
    scored = {name: inspection.scores(model, sample.inputs) for name, model in models.items()}
    important = inspection.feature_importances(models["ours"], test.layout, sample, **options)
    columns = inspection.columns(test.layout)
    valued = {name: columns[name] for name in list(important)[:WITH_VALUES]}
    champion = judged["champion"] and Evaluation.of(judged["champion"])
    above = run.settings.gain
    log = run.output / "ingest" / "clicks" / PROPENSITIES
    propensities = None
    if log.exists():
        propensities = roads.load("clicks", "the section `clicks`").Propensities.load(log)
    statistics = {name: split.statistics for name, split in splits.items()}
    page = pages.render(
        "report.html.jinja",
        told=told,
        verdict=Verdict.of(run),
        warnings=[*card.warnings(run), *filter(None, [champion and card.itself(champion)])],
        ceiling=card.ceiling(measured, "NDCG@10"),
        kinds=_kinds(told["features"]),
        propensities=propensities,
        run=run,
        above=above,
        measured=measured,
        training={name: fitted.figures() for name, fitted in trained.items()},
        settings=_changed_keys(run.configuration),
        slices=_slices(measured),
        blessing=judged,
        champion=champion,
        importances=list(important.items())[:IMPORTANT],
        num_features=len(important),
        most_scored=inspection.SCORED,
        anomalies=card.anomalies(run),
        splits=statistics,
        bars=_bars,
        samples=list(_samples(models, test, run.settings.gain, valued)),
        figures={
            name: markupsafe.Markup(svg)
            for name, svg in {
                "shares": figures.shares(statistics),
                "propensities": figures.propensities(propensities) if propensities else "",
                "learning": figures.learning_curves(trained),
                # Runs of earlier versions have no curves.
                "cutoffs": figures.cutoffs(curves) if curves else "",
                "slices": figures.slices(_slices(measured), "NDCG@10", measured.against),
                "errors": figures.errors(inspection.errors(scored, sample), above)
                if isinstance(above, float) and run.configuration.training.region
                else "",
                "calibration": figures.calibration(inspection.calibrations(scored, sample)),
                "champion": figures.slices(champion.slices, "NDCG@10", "champion")
                if champion
                else "",
            }.items()
        },
    )
    path = run.output / "report.html"
    folders.write_text(path, page + mark)
    return path


def _slices(evaluation: Evaluation) -> dict[str, Comparisons]:
    """The slices of some of the queries, and of more than one."""
    total = evaluation.overall["NDCG@10"].queries
    return {
        name: compared
        for name, compared in evaluation.slices.items()
        if 1 < compared["NDCG@10"].queries < total
    }


def _kinds(features: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of the features of each type, the most frequent type first."""
    names = collections.defaultdict(list)
    for name, kind in features.items():
        names[kind].append(name)
    return dict(sorted(names.items(), key=lambda item: -len(item[1])))


def _changed_keys(configuration: Configuration) -> list[tuple[str, Any, Any]]:
    """The keys whose values are not the defaults, with both values."""
    values, defaults = (
        without_secrets(x.model_dump(mode="json", by_alias=True)) for x in (configuration, load())
    )
    return [
        difference
        for key, value in values.items()
        for difference in manifests.differences(key, value, defaults[key])
        if not difference[0].startswith(_ELSEWHERE)
    ]


def _bars(histogram: Mapping[int, int], low: float, high: float) -> str:
    """A path of bars from one percentile to the other, in a box of 24 by 10."""
    places, *ends = (compress(x) for x in (sketches.middles()[list(histogram)], low, high))
    low, high = (float(end) for end in ends)
    edges = (low, high) if high > low else (low - 0.5, low + 0.5)
    counts, _ = np.histogram(places, BARS, edges, weights=list(histogram.values()))
    heights = 10.0 * counts / max(counts.max(), 1)
    return "".join(f"M{x} 10v-{y:.3g}h1V10" for x, y in enumerate(heights) if y)


def _samples(
    models: Mapping[str, Scorer],
    split: DataSplit,
    gain: str | float,
    features: Mapping[str, Sequence[tuple[str, int]]],
) -> Iterator[dict[str, Any]]:
    """Some lists with different labels as the models rank them, with values of these features."""
    measure, left = metrics.NDCG(**gain_arguments(gain), ties=AVERAGED), SAMPLES
    spec = split.spec
    for item_list in stored_lists.lists(split.shards, spec):
        if item_list.labels.min() == item_list.labels.max():
            continue
        inputs = stored_lists.batch_of(item_list, spec)
        scores = {name: model(inputs).numpy()[0] for name, model in models.items()}
        ranks = {
            name: np.argsort(np.argsort(-score, kind="stable")) + 1
            for name, score in scores.items()
        }
        best = np.argsort(ranks["ours"])[:SHOWN]
        parts = inspection.explain_pair(models["ours"], split.layout, inputs, best[:2].tolist())
        yield {
            "list": item_list,
            "best": best.tolist(),
            "scores": scores["ours"],
            "ranks": ranks,
            "values": [
                [_value(item_list, spec, i, columns) for columns in features.values()] for i in best
            ],
            "features": list(features),
            "gap": sum(parts.values()),
            "parts": [part for part in list(parts.items())[:WITH_VALUES] if part[1]],
            "ndcg": {
                name: float(measure.curve(item_list.labels[None], score[None], [10])[0, 0])
                for name, score in scores.items()
            },
        }
        left -= 1
        if not left:
            return


def _value(
    item_list: data.ItemList, spec: data.FeatureSpec, item: int, columns: Sequence[tuple[str, int]]
) -> str:
    """The values of a feature of an item, as text."""
    texts = []
    for kind, column in columns:
        if kind == spec.features:
            number = float(item_list.features[item, column])
            texts.append("" if np.isnan(number) else f"{number:.4g}")
        else:
            texts.append(str(item_list.texts[item, column]))  # type: ignore[index]
    return ", ".join(filter(None, texts))
