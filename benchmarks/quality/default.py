"""What `tfrank-sel-pipelines run` trains by default, on the folds of the quality benchmark."""

import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np
import rich.console

from benchmarks.quality.data import PARTS, Lists
from benchmarks.quality.selection import SEEDS, Scores
from tfrank_sel import data
from tfrank_sel.data import letor
from tfrank_sel.pipelines import preparation, training
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source


def train(folds: Sequence[dict[str, Lists]]) -> Scores:
    """Returns the scores of the test lists of each fold and seed: one setting, not chosen."""
    found: Scores = {}
    for number, fold in enumerate(folds):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            sources = []
            for part, split in zip(PARTS, ("train", "validation", "test"), strict=True):
                letor.write(folder / f"{part}.txt", fold[part])
                sources.append(Source(str(folder / f"{part}.txt"), split))
            quiet = Progress(rich.console.Console(quiet=True))
            layout, splits = preparation.ingested(Inputs(sources), folder, quiet)
            spec = data.FeatureSpec(len(layout.names))
            prepared = preparation.prepared(splits["train"], layout, within_list=True)
            with training.PreparedLists(
                splits["train"].batches(spec),
                splits["validation"].batches(spec),
                Settings(),
                folder / "prepared",
            ) as lists:
                for seed in SEEDS:
                    trained = training.train(
                        Candidate(),
                        prepared,
                        lists,
                        Settings(seed=seed),
                        folder / "logs",
                        on_epoch=lambda line: None,
                    )
                    found[number, seed] = [
                        np.array(trained.model(x.features[np.newaxis], training=False))[0]
                        for x in fold["test"]
                    ]
    return found
