"""A run: its configuration, and the results of its steps."""

import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tensorflow_metadata.proto.v0 import schema_pb2

from tfrank_sel import lazy
from tfrank_sel.arguments import StrPath
from tfrank_sel.data import stores
from tfrank_sel.data.formats import Schema
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import schema
from tfrank_sel.pipelines.analysis.statistics import DataSplit, Statistics
from tfrank_sel.pipelines.configuration import Configuration, load
from tfrank_sel.pipelines.configuration.training import Settings
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders, manifests, mirrors
from tfrank_sel.pipelines.files.manifests import Written
from tfrank_sel.pipelines.ingestion.inputs import SPLITS, Inputs, Job
from tfrank_sel.pipelines.ingestion.stored_lists import Earlier, Ranking, Records, Scorer
from tfrank_sel.pipelines.run.steps import STEPS
from tfrank_sel.pipelines.runners import Options
from tfrank_sel.terminal import Terminal

if TYPE_CHECKING:
    from tfrank_sel.distribution import Group
    from tfrank_sel.losses import choice
    from tfrank_sel.pipelines.evaluation import evaluation as evaluations, saved
    from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
    from tfrank_sel.pipelines.learning import instantiate, step as learning, workers
    from tfrank_sel.pipelines.push import step as pushing
    from tfrank_sel.pipelines.push.step import Pushed
    from tfrank_sel.training.candidates import Candidate
    from tfrank_sel.training.fitting import Trained
else:  # of steps with models, which import TensorFlow
    choice = lazy.Module("tfrank_sel.losses.choice")
    evaluations = lazy.Module("tfrank_sel.pipelines.evaluation.evaluation")
    instantiate = lazy.Module("tfrank_sel.pipelines.learning.instantiate")
    learning = lazy.Module("tfrank_sel.pipelines.learning.step")
    pushing = lazy.Module("tfrank_sel.pipelines.push.step")
    saved = lazy.Module("tfrank_sel.pipelines.evaluation.saved")
    workers = lazy.Module("tfrank_sel.pipelines.learning.workers")

# The keys of which objects are made.
_OBJECTS: Mapping[str, set[str]] = {
    "model": {"class_", "trees"},
    "training": {"loss", "optimizer", "schedule", "region", "workers"},
    "evaluation": {"baseline"},
}


class Run:
    """A run: its configured objects, and the results of its steps.

    Args:
        job: What it is given.
        progress: Progress display.
    """

    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.configuration, self.output = job.configuration, job.path

    def prepare(self, trains: bool = False) -> None:
        """Makes the configured objects, before data are read.

        Args:
            trains: Whether the workers train.

        Raises:
            tfrank_sel.pipelines.configuration.ConfigurationError: If one cannot be made.
        """
        if trains:
            # The group must exist before TensorFlow makes any object.
            _ = self.group
        _ = self.options, self.curated_schema
        if trains or not _has_default_models(self.configuration):
            _ = self.candidates

    @functools.cached_property
    def step_manifests(self) -> dict[str, Written]:
        """The manifests of the steps that have been run."""
        return manifests.read_manifests(self.output, STEPS)

    @property
    def seconds(self) -> dict[str, float]:
        """The duration of each part of the run, and of each step that is kept when it ran."""
        steps = (self.step_manifests[name] for name in STEPS if name in self.step_manifests)
        kept = {part: seconds for step in steps for part, seconds in step.seconds.items()}
        return {**self.progress.seconds, **kept}

    @functools.cached_property
    def earlier(self) -> Earlier | None:
        """The earlier run that this run continues, whose files are checked."""
        data = self.configuration.data
        if data.continue_from is None:
            return None
        earlier = Earlier.of(data.continue_from, data.memory)
        for step in manifests.read_manifests(earlier.path, STEPS).values():
            step.check()
        return earlier

    @functools.cached_property
    def group(self) -> "Group":
        """The workers, which must join before TensorFlow runs anything."""
        return workers.join(self.configuration, self.job.place)

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings of training; the gain of a region is the score above which it is."""
        settings = self.configuration.settings
        if self.configuration.training.region is None or not isinstance(settings.gain, str):
            return settings
        above = choice.threshold(self.labels, self.configuration.training.region)
        return settings.model_copy(update={"gain": above})

    @functools.cached_property
    def candidates(self) -> "dict[str, Candidate]":
        """The candidates, before they see the labels: `baseline`, if there is one, and `ours`."""
        return instantiate.named_candidates(self.configuration)

    @functools.cached_property
    def curated_schema(self) -> schema_pb2.Schema | None:
        """The schema to validate all splits against, if one is configured."""
        path = self.configuration.data.schema_
        return None if path is None else schema.load(Path(stores.near(path)))

    @functools.cached_property
    def options(self) -> Options:
        """Options of Beam; None for this process."""
        return runners.beam_options(self.configuration)

    @functools.cached_property
    def records(self) -> Records:
        """The records."""
        columns = (self.job.inputs or Inputs([])).columns
        layout = Schema.read(self.output / "ingest" / "layout.json", columns)
        return Records(stores.join(self.job.place, "ingest"), layout)

    @functools.cached_property
    def splits(self) -> dict[str, DataSplit]:
        """The splits on disk."""
        folder = self.output / "analyze" / "statistics"
        return {
            x: DataSplit.of(self.records, x, Statistics.load(folder / f"{x}.json")) for x in SPLITS
        }

    @property
    def labels(self) -> np.ndarray:
        """The labels of the training split."""
        counts = self.splits["train"].statistics.labels
        return np.repeat([float(x) for x in counts], [*counts.values()])

    @functools.cached_property
    def trained_models(self) -> "dict[str, Trained]":
        """The models, `ours` and, if there is one, `baseline`."""
        return learning.read(self.output / "train", self.candidates)

    @functools.cached_property
    def scorers(self) -> dict[str, Scorer]:
        """The scoring function of each of the models, whose graph all steps share."""
        inputs = self.splits["test"].inputs
        models = self.trained_models.items()
        return {name: saved.TracedScorer(x.scores, inputs) for name, x in models}

    @functools.cached_property
    def exported_model(self) -> "saved.RecordScorer":
        """The exported model, loaded at first use."""
        folder = self.output / "export" / "saved_model"
        return saved.RecordScorer(str(folder), self.records.layout.features)

    @functools.cached_property
    def evaluation(self) -> "Evaluation":
        """Our model against the baseline on the test split."""
        return evaluations.Evaluation.of(
            folders.read_json(self.output / "evaluate" / "metrics.json")
        )

    @property
    def push_outcome(self) -> "Pushed | None":
        """The outcome of the push of our model; None before it."""
        return pushing.Pushed.load(self.output / "push")

    def compare(self, scorer: Scorer, others: Mapping[str, Scorer]) -> "Evaluation":
        """Compares another scoring function with the exported ranker, on the test split.

        Args:
            scorer: The function; it becomes a graph.
            others: More to compare it with, by name.
        """
        test, settings = self.splits["test"], self.settings

        def ranking(other: Scorer) -> Ranking:
            graph = saved.TracedScorer(other, test.inputs)
            return lambda _, inputs: graph(inputs).numpy()

        with tempfile.TemporaryDirectory() as scratch:
            return evaluations.evaluate(
                saved.TracedScorer(scorer, test.inputs),
                self.exported_model,
                test,
                scratch,
                seed=settings.seed,
                against="ranker",
                gain=settings.gain,
                has_irrelevant=test.has_irrelevant,
                simple={name: ranking(other) for name, other in others.items()},
            )


def _has_default_models(configuration: Configuration) -> bool:
    """Whether losses, models and optimizer are those of the default, which can be made."""
    default = Configuration()
    return not configuration.modules and all(
        getattr(configuration, section).model_dump(include=keys)
        == getattr(default, section).model_dump(include=keys)
        for section, keys in _OBJECTS.items()
    )


def open_run(folder: StrPath) -> Run:
    """Opens the folder of a run that ended, or the URL of one in a store, for its results.

    Raises:
        tfrank_sel.data.InputError: If it is no folder of a run.
    """
    path = mirrors.near(os.fspath(folder))
    return Run(Job(load(path / folders.CONFIGURATION), None, path), Progress(Terminal()))
