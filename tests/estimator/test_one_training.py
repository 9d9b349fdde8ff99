"""A run and the estimator train the same members on the same lists."""

import pathlib
from typing import Any

import numpy as np
import pytest
import rich.console

from tfrank_sel import Ranker, data
from tfrank_sel.data import letor
from tfrank_sel.estimator.fitting import Parameters
from tfrank_sel.pipelines.configuration import (
    Configuration,
    ConfigurationError,
    Override,
    load,
)
from tfrank_sel.pipelines.configuration.training import Settings as Section
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.run import run
from tfrank_sel.training.settings import TrainingSettings

SIZES = {"train": 40, "validation": 20, "test": 10}
ITEMS = 6  # of each list, so that both have the lists in the same order
QUICK: dict[str, Any] = {"hidden_units": [8, 4], "dropout": 0.2}
FITTED: dict[str, Any] = {"epochs": 3, "batch_size": 8}


def sections(folder: pathlib.Path) -> dict[str, Any]:
    """The sections of a configuration, with files of small lists."""
    random = np.random.default_rng(0)
    for split, count in SIZES.items():
        lists = []
        for query in range(count):
            features = random.normal(size=(ITEMS, 3)).astype(np.float32)
            labels = np.clip(np.round(features[:, 0] * features[:, 1] + 1.0), 0.0, 3.0)
            lists.append(data.ItemList(f"{split}{query}", labels, features, tuple("abcdef")))
        letor.write(folder / f"{split}.txt", lists)
    files = {split: [str(folder / f"{split}.txt")] for split in SIZES}
    return {"data": files, "model": QUICK, "training": FITTED, "evaluation": {"baseline": False}}


@pytest.mark.long
def test_a_run_and_the_estimator_train_the_same_members(tmp_path: pathlib.Path) -> None:
    configuration = Configuration.model_validate(sections(tmp_path))
    quiet = Progress(rich.console.Console(quiet=True))
    for step in ("ingest", "analyze", "train"):
        found = run(configuration, tmp_path / "run", quiet, only=step)
    rows = {}
    for split in ("train", "validation"):
        batches = [(x["features"].numpy(), y.numpy()) for x, y in found.splits[split].batches()]
        X, y = (np.concatenate(x) for x in zip(*batches, strict=True))
        rows[split] = X.reshape(-1, 3), y.ravel(), [ITEMS] * len(X)
    (X, y, sizes), (X_held_out, y_held_out, held_out) = rows.values()
    ranker = Ranker(**QUICK, **FITTED, random_state=TrainingSettings().seed)
    ranker.fit(X, y, group=sizes, eval_set=[(X_held_out, y_held_out)], eval_group=[held_out])
    theirs = found.trained_models["ours"]
    assert [fit.loss for fit in theirs.fits] == list(ranker.history_)
    for fit, history in zip(theirs.fits, ranker.history_.values(), strict=True):
        assert {*fit.history} == {*history}
        for name in history:
            np.testing.assert_allclose(history[name], fit.history[name], rtol=1e-5, err_msg=name)
    pairs = zip(ranker.model_.network.members, theirs.model.network.members, strict=True)
    for one, other in pairs:
        assert {**one.get_config(), "name": other.name} == other.get_config()
        for mine, its in zip(one.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-6)


def range_in(error: pytest.ExceptionInfo[ValueError]) -> str:
    """The range in a message, of a number or of each item of a sequence."""
    told, _, _ = str(error.value).partition(". Received: ")
    return told.partition("must be ")[2].removeprefix("a sequence in which each item is ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("hidden_units", [0]), ("dropout", 1.0), ("num_heads", -1), ("epochs", 0)],
        *[("patience", 0), ("batch_size", 0), ("learning_rate", 0.0), ("averaging", 1.0)],
        *[("weight_decay", -0.1), ("max_items", -1), ("seed", -1)],
    ],
)
def test_the_estimator_and_the_file_refuse_a_number_in_the_same_words(
    name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be ") as of_estimator:
        Parameters(**{name: value})
    [key] = [key for key in Configuration.by_key() if key.rpartition(".")[2] == name]
    with pytest.raises(ConfigurationError) as of_file:
        load(overrides=[Override(key, value, "--set")])
    assert range_in(of_estimator) == range_in(of_file)


def test_defaults_are_those_of_training() -> None:
    expected = vars(TrainingSettings())
    estimator, section = Ranker().get_params(), vars(Section())
    assert section.keys() > expected.keys()
    assert len(expected.keys() & estimator.keys()) == 9
    for found in (section, estimator):
        for name in found.keys() & expected.keys():
            assert type(expected[name])(found[name]) == expected[name], name
    own = vars(Parameters())
    assert {x: estimator[x] for x in own.keys() - expected.keys()}.items() <= own.items()
