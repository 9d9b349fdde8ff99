"""Quality of the default model of `tfrank-sel-pipelines run`, on the benchmark's folds."""

import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import rich.console

from benchmarks.quality.data import PARTS, Lists
from benchmarks.quality.selection import SEEDS, Scores
from tfrank_sel.data import letor
from tfrank_sel.pipelines.candidates import Candidate, Settings, Trees
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.learning import preparation
from tfrank_sel.pipelines.run import run
from tfrank_sel.training import fitting
from tfrank_sel.training.lists import PreparedLists

# from a candidate and settings, and a `start` if any
Train = Callable[..., fitting.Trained]


@contextlib.contextmanager
def trainer(fold: dict[str, Lists]) -> Iterator[Train]:
    """Ingests a fold, and gives a function that trains on it as a run does."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = {}
        for part, split in zip(PARTS, ("train", "validation", "test"), strict=True):
            letor.write(folder / f"{part}.txt", fold[part])
            files[split] = [str(folder / f"{part}.txt")]
        configuration = Configuration.model_validate({"data": files})
        quiet = Progress(rich.console.Console(quiet=True))
        for step in ("ingest", "analyze"):
            ingested = run(configuration, folder / "run", quiet, only=step)
        learned, held_out = ingested.splits["train"], ingested.splits["validation"]
        prepared = preparation.fit_preparation(learned.statistics, learned.layout, within_list=True)
        batches = learned.batches(), held_out.batches()
        with PreparedLists(*batches, Settings(), folder / "prepared") as lists:

            def train(
                candidate: Candidate, settings: Settings, start: keras.Model | None = None
            ) -> fitting.Trained:
                lists.settings = settings
                return fitting.train(candidate, prepared, lists, start=start)

            yield train


def scores(model: keras.Model, lists: Lists) -> list[np.ndarray]:
    """Returns the scores of each list."""
    return [np.array(model(x.features[np.newaxis], training=False))[0] for x in lists]


def train(
    folds: Sequence[dict[str, Lists]], trees: Trees | None = None, seeds: Sequence[int] = SEEDS
) -> Scores:
    """Returns the scores of the test lists of each fold and seed: one setting, not chosen."""
    found: Scores = {}
    for number, fold in enumerate(folds):
        with trainer(fold) as trained:
            for seed in seeds:
                model = trained(Candidate(trees=trees), Settings(seed=seed)).model
                found[number, seed] = scores(model, fold["test"])
    return found
