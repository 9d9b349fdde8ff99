"""What is trained comes from outside: losses and models of a user."""

import json

import keras
import pytest
import rich.console

from tests.pipelines.test_main import small_set
from tfrank_sel import losses
from tfrank_sel.pipelines.candidates import Candidate, Settings, list_scorer
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.ingestion.ingest import Inputs
from tfrank_sel.pipelines.ingestion.inputs import expand
from tfrank_sel.pipelines.run import Plan, run


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
    splits = small_set(tmp_path).items()
    sources = [one for split, path in splits for one in expand([str(path)], split)]
    plan = Plan(Inputs(sources), candidate=Candidate(Square(name="square"), linear), baseline=None)
    quiet = Progress(rich.console.Console(quiet=True))
    settings = Settings(epochs=1, batch_size=8, hidden_units=[4])
    result = run(plan, tmp_path / "out", settings, quiet)
    [ours] = result.trained.values()
    assert [tuple(weights.shape) for weights in ours.model.weights[-4:-2]] == [(3, 4), (4,)]
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert written["against"] == result.evaluation.against == "random order"
    [(name, trained)] = written["training"].items()
    assert (name, trained["model"]) == ("ours", "linear")
    assert [fit["loss"] for fit in trained["fits"]] == ["square"]
    rules = [check.rule for check in result.blessing.checks]
    assert "NDCG@10 no worse than the random order's, to 0.02" in rules
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<tr><td>ours<td>square<td>linear<td" in page
    assert "<th>ours - random order" in page
    assert "baseline" not in page
    assert '<section id="loss">' not in page  # it is not one of lists


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
