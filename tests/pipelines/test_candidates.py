"""Candidates with a user's losses and models."""

import json

import keras
import pytest
import rich.console

from tests.pipelines.test_main import small_set
from tfrank_sel import losses
from tfrank_sel.pipelines.candidates import Candidate, list_scorer
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.run import run


@keras.saving.register_keras_serializable("tests")
class Square(keras.losses.Loss):
    """Mean squared error of the items that are not padding: a loss of Keras alone."""

    def call(self, y_true, y_pred):
        is_item = y_true >= 0.0
        gap = keras.ops.where(is_item, y_true, 0.0) - keras.ops.where(is_item, y_pred, 0.0)
        return keras.ops.mean(keras.ops.square(gap), axis=-1)


class Unknown(Square):
    """A loss that Keras does not find by name."""


def linear(preparation, settings):
    """A model that takes features alone."""
    features = keras.Input([None, len(preparation.mean)])
    scaled = keras.layers.Normalization(mean=preparation.mean, variance=preparation.variance)(
        features
    )
    scores = keras.layers.Dense(1)(keras.layers.Dense(settings.hidden_units[0])(scaled))
    return keras.Model(features, keras.layers.Reshape([-1])(scores), name="linear")


def test_loss_model_and_baseline_are_the_users(tmp_path):
    sections = {
        "data": {split: str(path) for split, path in small_set(tmp_path).items()},
        "model": {"class": f"{__name__}:linear", "hidden_units": [4]},
        "training": {"loss": {"class": f"{__name__}:Square", "name": "square"}, "epochs": 1},
        "evaluation": {"baseline": False},
    }
    quiet = Progress(rich.console.Console(quiet=True))
    result = run(Configuration.model_validate(sections), tmp_path / "out", quiet)
    [ours] = result.trained_models.values()
    assert [tuple(weights.shape) for weights in ours.model.weights[-4:-2]] == [(3, 4), (4,)]
    assert result.evaluation.against == "random order"
    [(name, trained)] = json.loads((tmp_path / "out/train/training.json").read_text()).items()
    assert (name, trained["model"]) == ("ours", "linear")
    assert [fit["loss"] for fit in trained["fits"]] == ["square"]
    judged = json.loads((tmp_path / "out/push/blessing.json").read_text())
    assert any(", random order " in check["told"] for check in judged["checks"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<tr><td>ours<td>square<td>linear<td" in page
    assert "<th>ours - random order" in page
    assert "baseline" not in page.partition("<h2>Quality")[2].partition("<h2>Settings")[0]


def test_a_candidate_goes_through_json():
    candidate = Candidate(losses.LambdaLoss(temperature=2.0), linear)
    found = Candidate.from_config(json.loads(json.dumps(candidate.get_config())))
    assert found.loss.get_config() == candidate.loss.get_config()
    assert found.make_model is linear
    assert Candidate.from_config(Candidate().get_config()).make_model is list_scorer
    assert isinstance(Candidate.from_config(Candidate(Square()).get_config()).loss, Square)


@pytest.mark.parametrize(
    "candidate",
    [Candidate(Unknown()), Candidate(make_model=lambda preparation, settings: None)],
    ids=["loss", "model"],
)
def test_what_another_machine_cannot_import_is_refused(candidate):
    with pytest.raises(ValueError, match="registered with Keras and a `make_model` that is a func"):
        candidate.get_config()


def test_what_the_script_defines_is_refused(monkeypatch):
    monkeypatch.setattr(linear, "__module__", "__main__")
    monkeypatch.setitem(vars(__import__("__main__")), "linear", linear)
    with pytest.raises(ValueError, match="all of modules that can be imported"):
        Candidate(make_model=linear).get_config()
