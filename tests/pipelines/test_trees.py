"""Boosted trees beside the networks of a candidate."""

import importlib.util

import keras
import lightgbm
import numpy as np
import pytest
import tensorflow as tf

from tests.pipelines.test_configuration import with_set
from tests.pipelines.test_resume import interrupting, outcome
from tfrank_sel import losses, metrics, models, objectives
from tfrank_sel.data.cache import Cache
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.pipelines.candidates import (
    Candidate,
    Settings,
    Trees,
)
from tfrank_sel.pipelines.configuration import ConfigurationError
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.training import trees
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.fitting import StartError, train
from tfrank_sel.training.lists import PreparedLists
from tfrank_sel.training.trees import DEFAULTS, LAMBDARANK, name_of

SETTINGS = Settings(epochs=2, batch_size=8, hidden_units=[4])
SMALL = {"num_iterations": 80, "num_leaves": 4, "min_data_in_leaf": 5, "num_threads": 1}
PAIR = [losses.SoftmaxLoss(), losses.RGCrossLoss()]
FOREST = [losses.LambdaLoss(), losses.RGCrossLoss()]


def lists(seed, count=60):
    """Lists whose labels depend on the product of two features, without padding for most."""
    random = np.random.default_rng(seed)
    mask = np.arange(9) < random.integers(2, 10, [count, 1])
    features = random.normal(size=[count, 9, 3]).astype(np.float32)
    labels = np.clip(np.round(features[..., 0] * features[..., 1] + 1.0), 0.0, 3.0)
    return {"features": features, "mask": mask}, np.where(mask, labels, np.nan)


def batches(seed):
    return tf.data.Dataset.from_tensor_slices(lists(seed)).batch(20)


@pytest.fixture
def caches(tmp_path):
    return [Cache.write(batches(seed), tmp_path / str(seed)) for seed in (0, 1)]


def trained(folder, candidate=None, backup=None, on_epoch=lambda epoch: None, **options):
    preparation = models.Preparation.of(batches(0))
    candidate = candidate or Candidate(PAIR, trees=Trees(FOREST, SMALL))
    with PreparedLists(batches(0), batches(1), SETTINGS, folder / "prepared") as prepared:
        hooks = Hooks(on_epoch, backup=backup)
        return train(candidate, preparation, prepared, hooks, **options)


@pytest.mark.parametrize("loss", [losses.RGCrossLoss(), LAMBDARANK], ids=name_of)
def test_trees_are_those_of_lightgbm_up_to_the_best_mean(caches, loss):
    told = []
    forest, history, seconds = trees.train(
        loss, trees.Binned(*caches, SMALL), 3, lambda *found: told.append(found)
    )
    values = history["val_ndcg"]
    assert [tree for tree, *_ in told] == list(range(1, len(values) + 1))
    assert {most for _, most, *_ in told} == {80}
    assert seconds > 0.0
    means = [np.mean(values[i - 20 : i]) for i in range(20, len(values) + 1)]
    assert forest.num_trees == 20 + int(np.argmax(means))
    inputs, labels = lists(0)
    items = inputs["features"][inputs["mask"]]
    group = inputs["mask"].sum(axis=1)
    given = {**DEFAULTS, **SMALL, "seed": 3, "deterministic": True, "verbose": -1}
    objective = loss if isinstance(loss, str) else objectives.lightgbm(loss)
    given |= {"objective": objective, "force_row_wise": True}
    data = lightgbm.Dataset(items, labels[inputs["mask"]], group=group)
    del given["num_iterations"]
    expected = lightgbm.train(given, data, forest.num_trees).predict(items)
    np.testing.assert_allclose(forest(inputs["features"])[inputs["mask"]], expected, atol=1e-5)


def test_lambdarank_takes_any_labels_and_gains_and_long_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "LONGEST", 4)

    def scores(name, function, gain, parts):
        found = []
        for seed in (0, 1):
            inputs, labels = lists(seed)
            if parts:  # of the same items
                sizes = [x for n in inputs["mask"].sum(axis=1) for x in trees._parts(int(n))]
                mask = np.arange(4) < np.array(sizes)[:, np.newaxis]
                values, grades = np.zeros([*mask.shape, 3], np.float32), np.full(mask.shape, np.nan)
                values[mask] = inputs["features"][inputs["mask"]]
                grades[mask] = labels[inputs["mask"]]
                inputs, labels = {"features": values, "mask": mask}, grades
            batches = tf.data.Dataset.from_tensor_slices((inputs, function(labels))).batch(20)
            found.append(Cache.write(batches, tmp_path / f"{name}{seed}"))
        # the last tree is the best by the linear gain of constants
        monkeypatch.setattr(trees, "_best", len)
        small = {**SMALL, "num_iterations": 10}
        model, *_ = trees.train(LAMBDARANK, trees.Binned(*found, small), 0, gain=gain)
        return model(lists(2)[0]["features"]).numpy()

    whole = scores("whole", lambda y: y, "exponential", parts=False)
    np.testing.assert_array_equal(scores("parts", lambda y: y, "exponential", parts=True), whole)
    amounts = scores("amounts", lambda y: 2.0**y - 1.0, "linear", parts=False)
    np.testing.assert_array_equal(amounts, whole)
    halves = scores("halves", lambda y: y / 2.0, "linear", parts=False)
    assert np.ptp(halves[0]) > 0.0


@pytest.mark.parametrize("loss", [losses.MeanSquaredLoss(), LAMBDARANK], ids=name_of)
@pytest.mark.parametrize(
    ("count", "scale", "leaf"),
    [(4, 1.0, 30), (60, 1.0, 170), (60, 0.0, 30)],
    ids=["few", "few of a sample", "constant"],
)
def test_items_that_no_feature_divides_get_one_score_and_a_warning(
    tmp_path, loss, count, scale, leaf
):
    inputs, labels = lists(0, count)
    inputs["features"] *= np.float32(scale)
    batches = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(20)
    cache = Cache.write(batches, tmp_path / "lists")
    items = int(inputs["mask"].sum())
    with pytest.warns(UserWarning, match=f"all {items} items one score.*min_data_in_leaf={leaf}"):
        forest, *_ = trees.train(loss, trees.Binned(cache, cache, {"min_data_in_leaf": leaf}), 1)
    assert np.ptp(forest(inputs["features"])) == 0.0


@pytest.mark.parametrize("count", [2, 4, 10, 30])
def test_few_items_are_divided_by_default(tmp_path, count):
    inputs, labels = lists(0, count)
    batches = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(20)
    cache = Cache.write(batches, tmp_path / "lists")
    binned = trees.Binned(cache, None, {"num_iterations": 20})
    forest, *_ = trees.train(losses.RGCrossLoss(), binned, 1)
    assert np.ptp(forest(inputs["features"])[inputs["mask"]]) > 0.0


def test_training_ends_if_the_mean_does_not_rise(caches, monkeypatch):
    monkeypatch.setattr(trees, "PATIENCE", 5)
    parameters = {**SMALL, "num_iterations": 1000}
    forest, history, _ = trees.train(losses.SoftmaxLoss(), trees.Binned(*caches, parameters), 0)
    assert len(history["val_ndcg"]) - forest.num_trees == 5
    assert len(history["val_ndcg"]) < 1000


def test_a_candidate_is_the_ensemble_of_networks_and_trees(tmp_path):
    told = []
    candidate = Candidate(PAIR, trees=Trees([*FOREST, LAMBDARANK], SMALL))
    found = trained(tmp_path, candidate, on_epoch=told.append)
    names = ["softmax_loss", "rg_cross_loss"]
    names += ["lambda_loss_trees", "rg_cross_loss_trees", "lambdarank_trees"]
    assert [fit.loss for fit in found.fits] == names
    assert sorted({(epoch.member, epoch.loss) for epoch in told}) == list(enumerate(names, 1))
    assert all(epoch.members == 5 and epoch.seconds_left >= 0.0 for epoch in told)
    assert [fit.validation_ndcg for fit in found.fits] == [
        max(epoch.validation_ndcg for epoch in told if epoch.loss == name) for name in names
    ]
    inputs, labels = lists(1)
    own = []
    for member in found.members:
        scores = np.ma.array(member(inputs), mask=~inputs["mask"])
        own.append((scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True))
    own = [x * share for x, share in zip(own, [1 / 4] * 2 + [1 / 6] * 3, strict=True)]
    expected = sum(own).filled(0.0)
    np.testing.assert_allclose(found.model(inputs), expected, atol=1e-5)
    whole, *rest = (sum(own) - x for x in (0.0, *own))
    ndcg = [
        float(metrics.NDCG(10, ties=AVERAGED)(labels, np.round(x, 5).filled(0.0)))
        for x in (whole, *rest)
    ]
    added = [fit.adds for fit in found.fits]
    np.testing.assert_allclose(added, ndcg[0] - np.array(ndcg[1:]), atol=1e-5)
    found.model.save(tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_array_equal(loaded(inputs), found.model(inputs))


@pytest.mark.long
def test_an_interrupted_training_of_trees_resumes(tmp_path):
    undisturbed = outcome(trained(tmp_path))
    *before, _ = (fit["epochs"] for fit in undisturbed[0])
    on_epoch, _ = interrupting(after=sum(before) + 2)  # within the second forest
    backup = tmp_path / "backup"
    with pytest.raises(InterruptedError):
        trained(tmp_path, backup=backup, on_epoch=on_epoch)
    told = []
    assert outcome(trained(tmp_path, backup=backup, on_epoch=told.append)) == undisturbed
    assert {epoch.loss for epoch in told} == {"rg_cross_loss_trees"}


@pytest.mark.long
def test_networks_start_from_those_of_the_earlier_model(tmp_path):
    first = trained(tmp_path)
    again = trained(tmp_path, start=first.model)
    assert len(again.members) == 4
    alone = trained(tmp_path, Candidate(PAIR))
    assert len(trained(tmp_path, start=alone.model).members) == 4
    assert len(trained(tmp_path, Candidate(PAIR), start=first.model).members) == 2
    with pytest.raises(StartError, match=r"losses, 1\. Received: .*, of 2"):
        trained(tmp_path, Candidate(PAIR[0]), start=first.model)


@pytest.mark.long
def test_networks_of_the_baseline_are_not_trained_twice(tmp_path):
    baseline = trained(tmp_path, Candidate(PAIR[0]))
    told = []
    found = trained(tmp_path, before=[baseline], on_epoch=told.append)
    assert found.members[0] is baseline.members[0]
    assert "softmax_loss" not in {epoch.loss for epoch in told}
    assert "lambda_loss_trees" in {epoch.loss for epoch in told}


def test_a_candidate_with_trees_is_made_again_from_its_config():
    forest = [*FOREST, LAMBDARANK]
    found = Candidate.from_config(Candidate(PAIR, trees=Trees(forest, SMALL)).get_config())
    names = ["softmax_loss", "rg_cross_loss", "lambda_loss", "rg_cross_loss", "lambdarank"]
    assert [name_of(loss) for loss in found.all_losses] == names
    assert found.trees.parameters == SMALL
    assert Candidate.from_config(Candidate(PAIR).get_config()).trees is None


def test_a_configuration_names_losses_and_parameters():
    plain = instantiate.candidate(with_set("model.trees.num_leaves=5")).trees
    assert [x.name for x in plain.losses] == ["mean_squared_loss", "rg_cross_loss"]
    assert plain.parameters == {"num_leaves": 5}
    found = instantiate.candidate(with_set("model.trees.loss=LambdaLoss")).trees
    assert [type(x) for x in found.losses] == [losses.LambdaLoss]
    assert found.parameters == {}
    both = instantiate.candidate(with_set('model.trees.loss=["lambdarank", "RGCrossLoss"]')).trees
    assert [name_of(x) for x in both.losses] == ["lambdarank", "rg_cross_loss"]
    assert instantiate.baseline(with_set("model.trees={}")).trees is None
    with pytest.raises(ConfigurationError, match=r"model.trees: parameters must be among num_"):
        instantiate.candidate(with_set("model.trees.num_leves=5"))


def test_an_ensemble_takes_the_trees_of_lightgbm_if_it_is_installed(monkeypatch):
    def chosen(*sets):
        configuration = Job.of(with_set("data.synthetic=true", *sets), "run").configuration
        found = instantiate.candidate(configuration).trees
        return configuration.model.trees, found and [*map(name_of, found.losses)]

    trees = ["mean_squared_loss", "rg_cross_loss"]
    assert chosen() == ("auto", trees)
    assert chosen('training.loss=["LambdaLoss", "SoftmaxLoss"]') == ("auto", trees)
    assert chosen("training.loss=LambdaLoss") == ("auto", None)
    assert chosen("model.trees=false") == (False, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert chosen() == (False, None)


def test_what_cannot_train_trees_is_refused(caches, monkeypatch):
    with pytest.raises(TypeError, match="loss"):
        Trees([keras.losses.MeanSquaredError()])
    with pytest.raises(ValueError, match=r"or 'lambdarank'. Received: 'rank_xendcg'"):
        Trees(["rank_xendcg"])
    with pytest.raises(ValueError, match=r"unique names. Received: \['rg_cross_loss', 'rg_cross_"):
        Trees([losses.RGCrossLoss(), losses.RGCrossLoss()])
    with pytest.raises(ValueError, match=r"among num_iterations, .*Received: \['num_leves'\]"):
        Trees(parameters={"num_leves": 7})
    with pytest.raises(ValueError, match=r"num_iterations at least 1. Received: {'num_iter"):
        Trees(parameters={"num_iterations": 0})
    with pytest.raises(ValueError, match=r"must suit LightGBM. .*num_leaves"):
        trees.train(PAIR[0], trees.Binned(*caches, {"num_leaves": -1}), 0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'tfrank_sel\[lightgbm\]'"):
        Trees()
