"""Invalid options of a pipeline."""

import math
from typing import Any

import keras
import pytest

from tfrank_sel.data.formats import Columns
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.configuration.data import Gates
from tfrank_sel.pipelines.evaluation.blessing import Rules
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (Candidate, "loss", "RGCrossLoss"),
        (Candidate, "make_model", keras.Model),
        (Columns, "features", "price"),
        (Gates, "zero", "stop"),
        (Gates, "missing", {"threshold": "0.2"}),
        (Gates, "missing", {"threshold": 1.5}),
        (Inputs, "sources", ["train.txt"]),
        (Inputs, "adjacent", "no"),
        (Rules, "margin", math.nan),
        (Rules, "min_queries", "many"),
        (Settings, "averaging", 1.0),
        (Settings, "weight_decay", -0.1),
        (Settings, "epochs", 2.5),
        (Settings, "epochs", 0),
        (Settings, "hidden_units", 64),
        (Settings, "learning_rate", math.inf),
        (Settings, "learning_rate", -0.1),
        (Settings, "seed", -1),
        (Source, "split", 1),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(
    options: Any, name: str, value: Any
) -> None:
    needed = {
        Inputs: {"sources": [Source("train.txt")]},
        Source: {"path": "train.txt"},
    }.get(options, {})
    options(**needed)
    with pytest.raises((TypeError, ValueError), match=name):
        options(**{**needed, name: value})


def test_an_infinite_bound_is_none() -> None:
    assert Rules(margin=math.inf).margin == math.inf
