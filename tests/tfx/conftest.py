"""One run of the pipeline over a small set, which the tests look at from all sides."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from typer.testing import CliRunner

from tfrank_sel import data
from tfrank_sel.data.formats import Columns, records
from tfrank_sel.features import Feature
from tfrank_sel.pipelines.tfx import sequences
from tfrank_sel.pipelines.tfx.__main__ import app

# More queries than SchemaGen takes for categories of a feature, which an identifier is not.
LISTS, ITEMS, FEATURES = 160, 6, 3


def made_lists() -> list[data.ItemList]:
    """Lists of one size, so that little has to be compiled; the first feature tells the label."""
    random = np.random.default_rng(0)
    made = []
    for query in range(LISTS):
        features = random.normal(size=(ITEMS, FEATURES)).astype(np.float32)
        labels = np.clip(np.round(features[:, 0] + 1.0), 0.0, 2.0)
        ids = tuple(f"q{query}d{item}" for item in range(ITEMS))
        made.append(data.ItemList(f"q{query}", labels, features, ids))
    return made


def layout_of(
    kinds: dict[str, str], features: dict[str, Feature] | None = None
) -> sequences.SequenceSchema:
    """The layout of lists with features of these kinds, and a label that is a number."""
    known = {
        sequences.LABEL: ("float_list", 1),
        **{name: (kind, 1) for name, kind in kinds.items()},
    }
    found = records.schema_of((known, {}), Columns(), "the schema")
    return sequences.SequenceSchema(features or found.features, kinds=(known, {}))


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run."""

    output: pathlib.Path
    stdout: str

    def artefact(self, component: str, name: str) -> pathlib.Path:
        """Folder of what a component wrote last."""
        folder = self.output / "artefacts" / component / name
        return max(folder.iterdir(), key=lambda path: int(path.name))

    def layout(self, columns: Columns | None = None) -> sequences.SequenceSchema:
        """What the lists hold, by the schema that was found."""
        return sequences.SequenceSchema.load(
            str(self.artefact("SchemaGen", "schema")),
            json.dumps((columns or Columns()).get_config()),
        )

    def split(self, name: str) -> str:
        """Pattern of the files of a split."""
        return str(self.artefact("ExampleGen", "examples") / f"Split-{name}" / "*")


def run_pipeline(output: pathlib.Path, *options: str) -> Run:
    """Runs the pipeline; a busy machine may take longer than a second to rank a list."""
    words = ["run", f"--output={output}", "--most-milliseconds=60000", *options]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    return Run(output, done.stdout)


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("tfx")
    sequences.write(folder / "data" / "lists.tfrecord", made_lists())
    options = [f"--data={folder / 'data'}", "--epochs=3", "--batch-size=8"]
    return run_pipeline(folder / "out", *options)
