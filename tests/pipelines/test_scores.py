"""Labels that are scores: a region of the highest, its loss, its measures, and the report."""

import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests.pipelines.test_configuration import with_set
from tfrank_sel import losses
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.analysis import drift
from tfrank_sel.pipelines.configuration import ConfigurationError, load
from tfrank_sel.pipelines.configuration.sections import Configuration
from tfrank_sel.pipelines.learning import instantiate

LABELS = np.random.default_rng(1).exponential(60.0, size=500)


def seconds(lists=90, size=8):
    """A table of items whose label is a number of seconds, many of them 0, and its features."""
    random = np.random.default_rng(0)
    x = random.normal(size=(lists * size, 3))
    delay = 600.0 * np.exp(x[:, 0] + 0.3 * random.normal(size=len(x))) - 200.0
    delay = np.maximum(delay, 0.0)
    return pd.DataFrame(
        {"day": np.repeat(np.arange(lists), size).astype(str), "seconds": delay.astype(np.float32)}
        | {"item": [f"i{i}" for i in range(len(x))]}
        | {name: x[:, i] for i, name in enumerate("abc")}
    )


def invoke(path, output, *options):
    columns = ["--data", path, "--query", "day", "--label", "seconds", "--doc-id", "item"]
    return CliRunner().invoke(app, ["run", *map(str, columns), "--output", str(output), *options])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores")
    seconds().to_parquet(folder / "table.parquet")
    options = ["--region", "0.1", "--epochs", "12", "--learning-rate", "0.02"]
    options += ["--set", "model.hidden_units=[8]", "--set", "model.dropout=0.0"]
    result = invoke(folder / "table.parquet", folder / "out", *options)
    assert result.exit_code == 0, (result.output, result.exception)
    return folder / "out", result


def served(output, table):
    """Scores of the published model, of each row."""
    [place] = (output / "serving" / "ranker").iterdir()
    model = tf.saved_model.load(str(place)).signatures["predict"]
    found = []
    for _, rows in table.groupby("day", sort=False):
        parts = {x: tf.constant(rows[x].to_numpy(np.float32)[None]) for x in "abc"}
        mask = tf.fill([1, len(rows)], True)
        found.append(model(**parts, mask=mask)["scores"].numpy()[0])
    return np.concatenate(found)


@pytest.mark.long
def test_a_region_trains_the_designed_loss_beside_squares_of_clipped_labels(run):
    output, result = run
    fits = json.loads((output / "train" / "training.json").read_text())
    assert fits["ours"]["fits"][0]["loss"].startswith(("mean_squared_loss", "matching_loss"))
    assert fits["baseline"]["fits"][0]["loss"].startswith("mean_squared_loss_lower_")
    assert "excess error" in result.stdout
    assert "P@10" in result.stdout
    assert not list((output / "analyze" / "anomalies").glob("validation.json")) or (
        "label_" not in (output / "analyze" / "anomalies" / "validation.json").read_text()
    )


def test_the_excess_error_is_that_of_the_served_model(run):
    output, _ = run
    found = json.loads((output / "evaluate" / "metrics.json").read_text())
    counts = json.loads((output / "analyze" / "statistics" / "train.json").read_text())["labels"]
    labels = np.repeat([float(x) for x in counts], [*counts.values()])
    above = losses.choice.threshold(labels, 0.1)
    table = seconds()
    table["score"] = served(output, table)
    assert found["metrics"]["excess error"]["queries"] < 90
    test = json.loads((output / "analyze" / "statistics" / "test.json").read_text())
    assert test["lists"] == found["metrics"]["excess error"]["queries"]
    # the split is by a hash of the query: its labels tell which it has
    known = {np.float32(x) for x in test["labels"]}
    errors, ideal = [], []
    for _, rows in table.groupby("day", sort=False):
        if {np.float32(x) for x in rows["seconds"]} <= known:
            y, z = (np.maximum(rows[x].to_numpy(np.float64), above) for x in ("seconds", "score"))
            errors.append(np.sqrt(np.mean((z - y) ** 2)))
            ideal.append(np.sqrt(np.mean((above - y) ** 2)))
    np.testing.assert_allclose(found["metrics"]["excess error"]["ours"], np.mean(errors), rtol=1e-3)
    # a random order has no scores: its error is that of predicting nothing in the region
    chance = found["chance"]["excess error"]["baseline"]
    np.testing.assert_allclose(chance, np.mean(ideal), rtol=1e-3)
    assert found["ideal"]["excess error"]["baseline"] == 0.0
    # lists without an item in the region count 0
    ndcgs = found["chance"]["NDCG@10"]["baseline"], found["ideal"]["NDCG@10"]["baseline"]
    assert ndcgs[0] < found["metrics"]["NDCG@10"]["ours"] <= ndcgs[1]


def test_the_report_draws_the_error_by_label_and_a_run_repeats_from_its_configuration(run):
    output, _ = run
    page = (output / "report.html").read_text()
    assert "Error by label" in page
    assert "Root mean square error by label" in page
    again = load(output / "config.toml")
    assert again.training.loss == [{"class": "design"}]
    assert again.evaluation.baseline == {"class": "MeanSquaredLoss", "lower": "region"}
    assert again.training.region == 0.1


def test_the_loss_and_the_unit_of_the_model_are_read_from_the_labels():
    found = instantiate.named_candidates(with_set("training.region=0.2"), LABELS)
    assert found["ours"].loss.get_config() == (
        losses.design(scores=LABELS, share=0.2).loss.get_config()
    )
    for one in found.values():
        assert one.arguments == {"scale": LABELS.std(), "shift": LABELS.mean()}
    assert found["baseline"].loss.lower == losses.choice.threshold(LABELS, 0.2)
    own = with_set("training.region=0.2", "training.loss={class='design', ranking=true}")
    values = losses.design(scores=LABELS, share=0.2, ranking=True).loss
    assert instantiate.candidate(own, LABELS).loss.get_config() == values.get_config()
    huber = with_set(
        "training.region=0.2", "training.loss={class='MatchingLoss', link={class='Huber'}}"
    )
    assert instantiate.candidate(huber, LABELS).loss.link.__class__.__name__ == "Huber"


def test_a_number_as_gain_is_the_threshold():
    found = with_set("training.region=0.2", "evaluation.gain=90")
    assert instantiate.baseline(found, LABELS).loss.lower == 90.0
    designed = losses.design(scores=LABELS, share=0.2, at=90.0).loss
    assert instantiate.candidate(found, LABELS).loss.get_config() == designed.get_config()


@pytest.mark.parametrize(
    ("sets", "labels", "reason"),
    [
        (["training.loss.class=LambdaLoss"], None, "training.loss must match scores with"),
        (["evaluation.baseline=RGCrossLoss"], None, "evaluation.baseline must match scores with"),
        (["training.loss=['design', 'MeanSquaredLoss']"], None, "training.loss must be one loss"),
        (["model.trees={}"], None, "model.trees must be unset with `training.region`"),
        (["training.loss={class='design', wide=2}"], None, "training.loss: design cannot be made"),
        ([], np.array([0.0, 1.0, 1.0]), "training.region is for labels that are scores, of more"),
        ([], np.ones(4), "training.region is for labels that are scores, of more"),
        (["evaluation.gain=1e9"], LABELS, "evaluation.gain must be from "),
        (["evaluation.gain=-1"], LABELS, "evaluation.gain must be from "),
    ],
)
def test_what_has_no_region_is_refused_by_a_line(sets, labels, reason):
    configuration = with_set("training.region=0.2", *sets)
    with pytest.raises(ConfigurationError) as found:
        instantiate.named_candidates(configuration, labels)
    assert reason in str(found.value)
    assert len(str(found.value).splitlines()) == 1


def test_design_needs_a_region_and_a_region_is_a_share():
    with pytest.raises(ConfigurationError, match="needs labels that are scores: name their share"):
        instantiate.candidate(with_set("training.loss.class=design"))
    with pytest.raises(ConfigurationError, match=r"training.region must be in \(0, 0.5\)"):
        with_set("training.region=0.5")
    with pytest.raises(ConfigurationError, match=r"training.region must be unset with clicks"):
        with_set("training.region=0.1", "clicks.position=place")
    in_python = Configuration(training=Configuration().training.model_copy(update={"region": 0.1}))
    assert in_python.training.loss == [{"class": "design"}]


def test_labels_of_many_values_drift_by_tenths():
    def of(values):
        return {str(x): 1 for x in values}

    random = np.random.default_rng(2)
    one, other, far = (of(random.normal(size=5000) + shift) for shift in (0.0, 0.0, 1.0))
    alike, apart = (drift._of_grades(one, x) for x in (other, far))
    assert max(abs(alike[0][i] - alike[1][i]) for i in range(10)) < 120
    assert alike[0].total() == alike[1].total() == 5000
    assert apart[1][0] < 200 < 500 < apart[1][9]
    assert drift._of_grades({"0": 3, "1": 2}, {"1": 5}) == ({"0": 3, "1": 2}, {"1": 5})
