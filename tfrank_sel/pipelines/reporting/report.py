"""Report of a run: a single self-contained page."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfrank_sel import data, losses, metrics
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.models.summary import compressed
from tfrank_sel.ops.ranking import GAINS
from tfrank_sel.pipelines import folders
from tfrank_sel.pipelines.analysis import sketches
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.evaluation import curves, inspection
from tfrank_sel.pipelines.evaluation.evaluation import Scorer
from tfrank_sel.pipelines.ingestion import stored
from tfrank_sel.pipelines.reporting import figures, pages
from tfrank_sel.pipelines.runs import Run
from tfrank_sel.pipelines.splits import Split
from tfrank_sel.pipelines.training import each_once

SAMPLES = 3
SHOWN = 10  # items of a sample
IMPORTANT = 20  # features whose importance is shown
BARS = 24


def write(run: Run) -> Path:
    """Writes `report.html` of a run.

    Args:
        run: The run, all of whose steps are done.

    Returns:
        The page.
    """
    trained, splits, spec = run.trained, run.splits, run.spec
    models = {name: one.scores for name, one in trained.items()}
    test, training = splits["test"], splits["train"].statistics
    measured = json.loads((run.output / "evaluate" / "metrics.json").read_text())
    judged = json.loads((run.output / "push" / "blessing.json").read_text())
    longest = max(test.statistics.list_sizes)
    options: Any = {"seed": run.settings.seed, "gain": run.settings.gain}
    found = curves.ndcg(models, spec, test.shards, longest=longest, **options)
    sample = inspection.sample(test.shards, spec, longest=longest)
    important = inspection.feature_importances(models["ours"], run.layout, spec, sample, **options)
    grades = sorted(float(label) for label in training.labels)
    grades = [grades[0], 0.5 * (grades[0] + grades[-1]), grades[-1]]
    everything = {"all": measured["metrics"], **measured["slices"]}
    # only these can be drawn for one list
    listwise = {
        f"{loss.name} ({name})": loss
        for name, _, loss in each_once(trained)
        if isinstance(loss, losses.ListwiseLoss)
    }
    statistics = {name: split.statistics for name, split in splits.items()}
    page = pages.render(
        "report.html.jinja",
        metrics=measured["metrics"],
        against=measured["against"],
        chance=measured["chance"],
        training={name: one.figures() for name, one in trained.items()},
        settings=dataclasses.asdict(run.settings),
        seconds=run.seconds,
        slices=everything,
        blessing=judged,
        champion=judged["champion"],
        importances=list(important.items())[:IMPORTANT],
        num_features=len(important),
        pushed=run.pushed,
        anomalies=_anomalies(run.output / "analyze" / "anomalies"),
        splits=statistics,
        features=list(_features(training)),
        texts=list(_texts(training)),
        samples=list(_samples(models, spec, test, run.settings.gain)),
        figures=pages.drawn(
            {
                "shares": figures.shares(statistics),
                "learning": figures.learning(trained),
                "cutoffs": figures.cutoffs(found),
                "slices": figures.slices(everything, "NDCG@10", measured["against"]),
                "calibration": figures.calibration(inspection.calibrations(models, sample)),
                "champion": _beside_champion(judged["champion"]),
                "losses": figures.losses(listwise, grades),
            }
        ),
    )
    path = run.output / "report.html"
    folders.write_text(path, page)
    return path


def _beside_champion(found: Mapping[str, Any] | None) -> str:
    """The figure of our model beside the champion; empty if there is none."""
    if found is None:
        return ""
    everything = {"all": found["metrics"], **found["slices"]}
    return figures.slices(everything, "NDCG@10", found["against"])


def _anomalies(folder: Path) -> list[dict[str, Any]]:
    """All anomalies, the widest first."""
    found = [
        {"split": path.stem, **anomaly}
        for path in sorted(folder.glob("*.json"))
        for anomaly in json.loads(path.read_text())
    ]
    return sorted(found, key=lambda one: (one["distance"] or 0.0, one["count"]), reverse=True)


def _texts(found: Statistics) -> Iterator[dict[str, Any]]:
    """A row of the table for each feature of texts."""
    for name, counts in found.texts.items():
        often = [(value, count) for value, count in counts.items() if value]
        yield {
            "name": name,
            "missing": counts.get("", 0) / found.items,
            "values": len(often),
            "often": [(value, count / found.items) for value, count in often[:5]],
        }


def _features(found: Statistics) -> Iterator[dict[str, Any]]:
    """A row of the table for each feature that is a number."""
    measures = found.features
    for i, name in enumerate(found.names):
        low, high = measures["p01"][i], measures["p99"][i]
        yield {
            "name": name,
            "bars": _bars(found.histograms[i], low, high),
            "zeros": measures["zeros"][i] / found.items,
            "missing": measures["missing"][i] / found.items,
            **{key: measures[key][i] for key in ("min", "p50", "mean", "max", "std")},
        }


def _bars(histogram: Mapping[int, int], low: float, high: float) -> str:
    """A path of bars from one percentile to the other, in a box of 24 by 10."""
    places, *ends = (compressed(x) for x in (sketches.middles()[list(histogram)], low, high))
    low, high = (float(end) for end in ends)
    edges = (low, high) if high > low else (low - 0.5, low + 0.5)
    counts, _ = np.histogram(places, BARS, edges, weights=list(histogram.values()))
    heights = 10.0 * counts / max(counts.max(), 1)
    return "".join(f"M{x} 10v-{y:.3g}h1V10" for x, y in enumerate(heights) if y)


def _samples(
    models: Mapping[str, Scorer], spec: data.FeatureSpec, split: Split, gain: str
) -> Iterator[dict[str, Any]]:
    """Some lists of several labels as the models rank them."""
    measure, left = metrics.NDCG(10, GAINS[gain], ties=AVERAGED), SAMPLES
    for one in stored.lists(split.shards, spec):
        if one.labels.min() == one.labels.max():
            continue
        inputs = stored.batch_of(one, spec)
        scores = {name: model(inputs).numpy()[0] for name, model in models.items()}
        ranks = {
            name: np.argsort(np.argsort(-score, kind="stable")) + 1
            for name, score in scores.items()
        }
        rows = [
            {
                "document": one.doc_ids[i] if one.doc_ids else f"item {i + 1}",
                "label": float(one.labels[i]),
                "score": float(scores["ours"][i]),
                **{name: int(rank[i]) for name, rank in ranks.items()},
            }
            for i in np.argsort(ranks["ours"])[:SHOWN]
        ]
        yield {
            "query": one.query_id,
            "size": len(one.labels),
            "rows": rows,
            "ndcg": {
                name: float(measure.evaluate(one.labels[None], score[None]).values[0])
                for name, score in scores.items()
            },
        }
        left -= 1
        if not left:
            return
