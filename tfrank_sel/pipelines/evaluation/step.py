"""The step `evaluate`: the candidate against the baseline, and against simple rankings."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfrank_sel import data
from tfrank_sel.commandline import log_warnings
from tfrank_sel.data import packed
from tfrank_sel.data.formats import Schema
from tfrank_sel.models import summary
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import leakage
from tfrank_sel.pipelines.analysis.statistics import DataSplit
from tfrank_sel.pipelines.console import Activity
from tfrank_sel.pipelines.evaluation import clicks, evaluation
from tfrank_sel.pipelines.evaluation.evaluation import PER_SESSION, Comparisons
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.ingestion.clicks import SHOWN
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.ingestion.stored_lists import Ranking, Scorer, Tensors

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

COUNTED = 1_000_000  # items whose labels popularity counts


@dataclasses.dataclass(frozen=True)
class ByFeature:
    """Ranks items by a column of numbers; those without a value come last.

    Args:
        schema: The features.
        column: Index of the column.
        sign: 1 to rank large values first, -1 to rank small ones first.
    """

    schema: Schema
    column: int
    sign: float

    def __call__(self, serialized: tf.Tensor, inputs: Tensors) -> np.ndarray:
        numbers = inputs[self.schema.spec.features].numpy()
        columns = summary.joined_columns(self.schema.features, numbers)[..., self.column]
        least = float(np.finfo(np.float32).min)
        values = np.clip(self.sign * columns, 0.5 * least, None)
        return np.where(np.isnan(values), least, values)


@dataclasses.dataclass(frozen=True)
class ByPopularity:
    """Ranks items by the mean label that they have in the training split.

    Args:
        spec: Names of the parts and number of features.
        labels: Mean label of each item by its identifier, for few labels drawn to `mean`.
        mean: Mean label of all items.
    """

    spec: data.FeatureSpec
    labels: Mapping[bytes, float]
    mean: float

    def __call__(self, serialized: tf.Tensor, inputs: Tensors) -> np.ndarray:
        ids = packed.parse(serialized, self.spec)[self.spec.doc_id].numpy()
        return np.array([self.labels.get(x, self.mean) for x in ids.ravel()]).reshape(ids.shape)


def rankings(train: DataSplit) -> dict[str, Ranking]:
    """Returns the simple rankings of the data, by name.

    They are: the number that best orders the labels of the training split alone, and popularity if
    items occur in several lists.

    Args:
        train: The training split.
    """
    by_name: dict[str, Ranking] = {}
    lists, layout, spec = train.sample(), train.layout, train.spec
    names = summary.column_names(layout.features)
    if names:
        mask = lists.inputs["mask"]
        rows = summary.joined_columns(layout.features, lists.inputs[spec.features][mask])
        order, _ = leakage.agreement(rows, lists.labels[mask], np.nonzero(mask)[0])
        best = int(np.abs(order[0]).argmax())
        by_name[f"{names[best]} alone"] = ByFeature(layout, best, float(np.sign(order[0, best])))
    if popularity := _popularity(train.shards, spec):
        by_name["popularity"] = popularity
    return by_name


def _popularity(shards: Sequence[str], spec: data.FeatureSpec) -> ByPopularity | None:
    sums, counts = collections.Counter[bytes](), collections.Counter[bytes]()
    for serialized in stored_lists.serialized_batches(shards):
        parsed = packed.parse(serialized, spec)
        mask = parsed["mask"].numpy()
        ids, labels = (parsed[x].numpy()[mask].tolist() for x in (spec.doc_id, spec.label))
        if b"" in ids:  # items without an identifier have no popularity
            return None
        counts.update(ids)
        for name, label in zip(ids, labels, strict=True):
            sums[name] += label
        if counts.total() >= COUNTED:
            break
    if 2 * len(counts) > counts.total():
        return None
    mean = sums.total() / counts.total()
    return ByPopularity(spec, {x: (sums[x] + mean) / (n + 1) for x, n in counts.items()}, mean)


def _by_clicks(job: Job, step: Activity, scorer: Scorer, test_split: DataSplit) -> Comparisons:
    """Our model against the order of the log; none if the log does not tell its value."""
    settings, folder = job.configuration.settings, job.path / "ingest" / "clicks"
    try:
        with log_warnings(step.tell):
            comparisons, effective = clicks.compare(
                scorer,
                test_split,
                folder,
                job.configuration.clicks,
                gain=settings.gain,
                seed=settings.seed,
            )
    except clicks.UnknownValueError as error:
        hint = "" if job.configuration.clicks.session else ". Name clicks.session"
        step.tell(f"no value of the new order: {error}{hint}")
        return {}
    except ValueError as error:
        raise data.InputError(str(folder / SHOWN), str(error)) from error
    line = comparisons[PER_SESSION].describe(PER_SESSION, "logged order")
    step.tell(f"{line}; {effective:.0%} of the impressions are effective")
    return comparisons


def evaluate(run: "Run", folder: Path) -> None:
    """Compares our model with the baseline and simple rankings: `metrics.json`.

    Args:
        run: The run, whose candidates are trained.
        folder: Folder to write to.
    """
    job, scores, splits = run.job, run.scorers, run.splits
    # The log belongs to the lists of the test split that this run ingested.
    test_split = dataclasses.replace(splits["test"], shards=run.records.own("test"))
    train, test, metric = splits["train"], splits["test"], job.configuration.blessing.metric
    with run.progress.step("evaluation") as step:
        step.reads(test.shards, times=2)
        has_irrelevant = test.has_irrelevant or metric == "MRR"
        scored = evaluation.evaluate(
            scores["ours"],
            scores.get("baseline"),
            test,
            str(folder),
            seed=run.settings.seed,
            gain=run.settings.gain,
            has_irrelevant=has_irrelevant,
            simple=rankings(train),
            pipeline=runners.pipeline(run.options),
        )
        step.tell(f"{test.statistics.lists} queries of the test split")
        if not test.has_irrelevant:
            step.tell("all labels are above 0: MRR is 1 for any order")
        for name, compared in scored.simple.items():
            step.tell(compared[metric].describe(metric, name))
        step.tell(f"slices: {len(scored.slices) - 1}")
        if job.configuration.clicks.position is not None:
            scored = dataclasses.replace(
                scored, clicks=_by_clicks(job, step, scores["ours"], test_split)
            )
        folders.write_json(folder / "metrics.json", scored.figures())
