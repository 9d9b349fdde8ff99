"""A run: its configuration, and the results of its steps."""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path

import apache_beam as beam
import keras
from apache_beam.options.pipeline_options import PipelineOptions
from tensorflow_metadata.proto.v0 import schema_pb2

from tfrank_sel import data
from tfrank_sel.data import stores
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import Feature
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import schema
from tfrank_sel.pipelines.analysis.splits import Split
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
from tfrank_sel.pipelines.evaluation.lists import PackedLists
from tfrank_sel.pipelines.files import artefacts, manifests, mirrors
from tfrank_sel.pipelines.files.manifests import STEPS
from tfrank_sel.pipelines.files.mirrors import Mirror
from tfrank_sel.pipelines.ingestion.inputs import SPLITS, Inputs
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.pipelines.learning.training import Fit, Trained
from tfrank_sel.pipelines.push import Pushed


class Run:
    """A run: its configuration, and the results of its steps.

    Args:
        configuration: The configuration.
        inputs: Input files; None for synthetic data.
        mirror: The folder.
        progress: Progress display.
    """

    def __init__(
        self,
        configuration: Configuration,
        inputs: Inputs | None,
        mirror: Mirror,
        progress: Progress,
    ) -> None:
        self.configuration, self.progress = configuration, progress
        self.mirror, self.output = mirror, mirror.path
        self.given = inputs

    @functools.cached_property
    def earlier(self) -> Path | None:
        """Folder of the earlier run that this run continues."""
        found = self.configuration.data.continue_from
        if found is None:
            return None
        near = mirrors.near(found)
        manifests.check_written(near, STEPS)
        return near

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings of training."""
        return self.configuration.settings

    @functools.cached_property
    def candidates(self) -> dict[str, Candidate]:
        """The candidates to train: `baseline`, if there is one, and `ours`."""
        baseline = instantiate.baseline(self.configuration)
        ours = {"ours": instantiate.candidate(self.configuration)}
        return ours if baseline is None else {"baseline": baseline, **ours}

    @functools.cached_property
    def curated(self) -> schema_pb2.Schema | None:
        """The schema to validate all splits against, if one is configured."""
        path = self.configuration.data.schema_
        return None if path is None else schema.load(Path(stores.near(path)))

    @functools.cached_property
    def options(self) -> PipelineOptions:
        """Options of every Beam pipeline."""
        return runners.configured(self.configuration)

    @functools.cached_property
    def layout(self) -> Schema:
        """The layout of a list."""
        return Schema.read(self.output / "ingest" / "layout.json", self._inputs.columns)

    @functools.cached_property
    def spec(self) -> data.FeatureSpec:
        """Names and sizes of the parts of a stored list."""
        return self.layout.spec

    @functools.cached_property
    def types(self) -> Mapping[str, Feature] | None:
        """The types of the features that a server takes by name; None if they are packed."""
        return self.layout.types

    @property
    def _inputs(self) -> Inputs:
        return self.given or Inputs([])

    def files(self, split: str) -> str:
        """The files of a split, for errors."""
        sources = self.given.sources if self.given else ()
        return ", ".join(x.path for x in sources if x.split in (None, split)) or split

    @property
    def ingested(self) -> str:
        """The folder or URL of the records."""
        return stores.join(self.mirror.url or self.output, "ingest")

    def own_shards(self, split: str) -> list[str]:
        """The records of a split that this run ingested."""
        return artefacts.shards(stores.join(self.ingested, "records", split))

    def shards(self, split: str) -> list[str]:
        """The records of a split: those kept from earlier runs, and its own."""
        earlier = _numbered(stores.join(self.ingested, "earlier"))
        kept = [x for folder in earlier for x in artefacts.shards(stores.join(folder, split))]
        return [*kept, *self.own_shards(split)]

    @functools.cached_property
    def splits(self) -> dict[str, Split]:
        """The splits on disk."""
        folder = self.output / "analyze" / "statistics"
        return {name: Split.load(self.shards(name), folder / f"{name}.json") for name in SPLITS}

    @property
    def test_lists(self) -> PackedLists:
        """The test split."""
        return PackedLists(self.splits["test"].shards, self.spec, self.layout.context)

    @property
    def test_pipeline(self) -> beam.Pipeline | None:
        """A Beam pipeline for the test split; None if it has few lists."""
        return runners.pipeline_if_many(self.options, self.splits["test"].statistics.lists)

    def earlier_increments(self) -> list[str]:
        """Folders or URLs of the records kept from the run that this one continues."""
        assert self.earlier is not None
        earlier = Mirror.of(str(self.configuration.data.continue_from))
        folder = stores.join(earlier.url or earlier.path, "ingest")
        return self._kept([*_numbered(stores.join(folder, "earlier")), f"{folder}/records"])

    def earlier_statistics(self) -> list[str]:
        """Folders of the statistics of `earlier_increments`."""
        if self.earlier is None:
            return []
        folder = str(self.earlier / "analyze")
        return self._kept([*_numbered(stores.join(folder, "earlier")), f"{folder}/increment"])

    def _kept(self, found: list[str]) -> list[str]:
        memory = self.configuration.data.memory
        return found if memory is None else found[len(found) - min(memory, len(found)) :]

    def earlier_model(self) -> keras.Model | None:
        """The model of the earlier run that this run continues, if any."""
        if self.earlier is None:
            return None
        _ = self.candidates  # the user's modules with its classes
        return keras.models.load_model(self.earlier / "train" / "ours.keras", compile=False)

    @functools.cached_property
    def trained(self) -> dict[str, Trained]:
        """The models, `ours` and, if there is one, `baseline`."""
        folder = self.output / "train"
        figures = json.loads((folder / "training.json").read_text())
        return {
            name: Trained(
                candidate,
                keras.models.load_model(folder / f"{name}.keras", compile=False),
                (),
                [Fit(**fit) for fit in figures[name]["fits"]],
            )
            for name, candidate in self.candidates.items()
        }

    @functools.cached_property
    def evaluation(self) -> Evaluation:
        """Our model against the baseline on the test split."""
        return Evaluation.of(json.loads((self.output / "evaluate" / "metrics.json").read_text()))

    @property
    def pushed(self) -> Pushed | None:
        """The outcome of the push of our model; None before it."""
        return Pushed.load(self.output / "push")

    @property
    def serving(self) -> str:
        """Folder or URL of all served models."""
        folder = self.configuration.serving.folder
        if folder is None:
            return stores.join(self.mirror.url or self.output, "serving")
        return folder if stores.is_remote(folder) else os.path.abspath(folder)

    def digest(self, step: str) -> str:
        """Hash of the inputs of a step."""
        found = manifests.read(self.output, step)
        assert found is not None, step
        return found["digest"]

    @property
    def seconds(self) -> dict[str, float]:
        """Duration of each part of the steps, from when they ran."""
        found = (manifests.read(self.output, step) or {"seconds": {}} for step in STEPS)
        return {name: value for one in found for name, value in one["seconds"].items()}


def _numbered(folder: str) -> list[str]:
    """The numbered subfolders of a folder, by number."""
    found = {int(x.removeprefix(f"{folder}/").partition("/")[0]) for x in stores.find(folder)}
    return [stores.join(folder, str(number)) for number in sorted(found)]
