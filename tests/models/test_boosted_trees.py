"""Trees of LightGBM as a model of TensorFlow, alone and in an ensemble."""

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import export, models
from tfrank_sel.data import FeatureSpec

lightgbm = pytest.importorskip("lightgbm")

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(40, 10, 3)).astype(np.float32)
FEATURES[..., 1] = np.round(FEATURES[..., 1])  # equal to thresholds or nearly so
LABELS = np.clip(np.round(FEATURES[..., 0] + FEATURES[..., 1] ** 2), 0, 3)
QUIET = {"objective": "lambdarank", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 3}


def trained(features: Any = FEATURES, trees: int = 20, **params: Any) -> Any:
    flat = np.asarray(features, np.float64).reshape(-1, features.shape[-1])
    data = lightgbm.Dataset(flat, LABELS.ravel(), group=[10] * 40, **params.pop("data", {}))
    return lightgbm.train({**QUIET, **params}, data, trees)


def of_lightgbm(booster: Any, features: Any) -> Any:
    flat = features.reshape(-1, features.shape[-1]).astype(np.float64)
    return booster.predict(flat, raw_score=True).reshape(features.shape[:-1])


def with_holes(features: Any) -> Any:
    return np.where(RANDOM.random(features.shape) < 0.3, np.nan, features).astype(np.float32)


@pytest.mark.sample(4)
@pytest.mark.parametrize("missing_in_training", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("leaves", [7, 32, 100])  # a part of a tree has up to 32
def test_scores_are_those_of_lightgbm(
    missing_in_training: bool, missing: bool, leaves: int
) -> None:
    learned = with_holes(FEATURES) if missing_in_training else FEATURES
    booster = trained(learned, num_leaves=leaves, min_data_in_leaf=1)
    features = RANDOM.normal(size=(5, 7, 3)).astype(np.float32)
    features[..., 1] = np.round(features[..., 1])
    features = with_holes(features) if missing else features
    found = models.BoostedTrees.from_lightgbm(booster)(features)
    np.testing.assert_allclose(found, of_lightgbm(booster, features), rtol=1e-5, atol=1e-6)


def test_the_scores_follow_the_weights() -> None:
    model = models.BoostedTrees.from_lightgbm(trained())
    predict, before = tf.function(lambda x: model(x)), model(FEATURES)
    model.set_weights([2 * x if x.dtype.kind == "f" else x for x in model.get_weights()])
    predict(FEATURES[:1])
    model.set_weights([x / 4 if x.dtype.kind == "f" else x for x in model.get_weights()])
    np.testing.assert_allclose(model(FEATURES), predict(FEATURES), rtol=1e-5, atol=1e-6)
    assert not np.allclose(model(FEATURES), before)


def test_a_float32_at_a_threshold_takes_the_same_branch() -> None:
    booster = trained(trees=3)
    thresholds = booster.trees_to_dataframe()["threshold"].dropna().to_numpy()
    near = np.float32(thresholds)
    up, down = np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))
    features = np.stack([np.concatenate([near, up, down])] * 3, axis=-1)[np.newaxis]
    found = models.BoostedTrees.from_lightgbm(booster)(features)
    np.testing.assert_allclose(found, of_lightgbm(booster, features), rtol=1e-5, atol=1e-6)


def test_a_tree_without_a_split_is_a_constant() -> None:
    booster = trained(min_data_in_leaf=400, trees=2)
    model = models.BoostedTrees.from_lightgbm(booster)
    np.testing.assert_allclose(model(FEATURES), of_lightgbm(booster, FEATURES), atol=1e-6)


@pytest.mark.long
def test_an_ensemble_of_trees_and_a_network_is_saved_and_exported(tmp_path: pathlib.Path) -> None:
    booster = trained()
    trees = models.BoostedTrees.from_lightgbm(booster)
    network = models.ListScorer([0.0] * 3, [1.0] * 3, hidden_units=[4], dropout=0.0)
    ensemble = models.Ensemble([trees, network])
    inputs = {"features": FEATURES, "mask": np.ones(FEATURES.shape[:2], bool)}
    found = ensemble(inputs).numpy()

    def standard(x: Any) -> Any:
        return (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)

    expected = standard(of_lightgbm(booster, FEATURES)) + standard(network(inputs).numpy())
    np.testing.assert_allclose(found, expected / 2, atol=1e-4)
    compiled = tf.function(ensemble, jit_compile=True, autograph=False)
    np.testing.assert_allclose(compiled(inputs), found, atol=1e-5)

    ensemble.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs), found, atol=1e-6)
    weights = [x.numpy() for x in trees.weights]
    ensemble.compile("sgd", "mse")
    ensemble.fit(inputs, LABELS, verbose=0)
    for before, after in zip(weights, trees.weights, strict=True):
        np.testing.assert_array_equal(before, after.numpy())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"data": {"categorical_feature": [1]}, "min_data_per_group": 1}, "decision_type='=='"),
        ({"zero_as_missing": True}, "missing_type='Zero'"),
        ({"linear_tree": True, "objective": "regression"}, "linear leaves"),
        ({"objective": "multiclass", "num_class": 4}, "num_tree_per_iteration=4"),
    ],
)
def test_other_trees_are_refused(params: dict[str, Any], message: str) -> None:
    features = np.abs(FEATURES) if "data" in params else FEATURES
    with pytest.raises(ValueError, match=message):
        models.BoostedTrees.from_lightgbm(trained(features, **params))


def test_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[batch_size, list_size, 3\]. Received.*2\)"):
        models.BoostedTrees.from_lightgbm(trained(trees=1))(FEATURES[..., :2])


@pytest.mark.long
def test_a_saved_model_holds_the_trees(tmp_path: pathlib.Path) -> None:
    booster = trained()
    model = models.BoostedTrees.from_lightgbm(booster)
    export.export(model, FeatureSpec(num_features=3), tmp_path / "model")
    predict = tf.saved_model.load(tmp_path / "model").signatures["predict"]
    found = predict(features=tf.constant(FEATURES), mask=tf.constant([[True]]))["scores"]
    np.testing.assert_allclose(found, of_lightgbm(booster, FEATURES), rtol=1e-5, atol=1e-6)


def test_an_infinite_threshold_parts_only_what_is_missing() -> None:
    features = np.where(RANDOM.random(FEATURES.shape) < 0.5, np.nan, FEATURES)
    flat = features.reshape(-1, 3)
    data = lightgbm.Dataset(flat, np.isnan(flat[:, 0]))
    booster = lightgbm.train({**QUIET, "objective": "regression"}, data, 2)
    assert booster.trees_to_dataframe()["threshold"].max() >= 1e300
    far = np.array([np.inf, np.finfo(np.float32).max, -np.inf, 1.0, np.nan], np.float32)
    far = np.stack([far] * 3, axis=-1)[np.newaxis]
    found = models.BoostedTrees.from_lightgbm(booster)(far)
    np.testing.assert_allclose(found, of_lightgbm(booster, far), atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("wrap", ["alone", "prepared", "ensemble", "recalibrated"])
def test_features_and_scores_keep_their_digits_under_mixed_precision(wrap: str) -> None:
    large = FEATURES * np.float32(1e5)  # float16 ends at 65504
    booster, inputs = trained(large), {"features": large, "mask": np.ones(large.shape[:2], bool)}

    def made() -> Any:
        trees = models.BoostedTrees.from_lightgbm(booster)
        if wrap == "prepared":
            return models.Prepared(models.Preparation([0.0] * 3, [1.0] * 3), trees)
        if wrap == "ensemble":
            return models.Ensemble([trees])
        return trees if wrap == "alone" else models.Recalibrated(trees, 1.0, 0.0)

    def of(model: Any) -> Any:
        return model(inputs if getattr(model, "takes_mask", False) else large)

    expected, before = of(made()), keras.mixed_precision.global_policy().name
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = made()
        np.testing.assert_array_equal(of(model), expected)
        np.testing.assert_allclose(tf.function(lambda: of(model))(), expected, atol=1e-6)
    finally:
        keras.mixed_precision.set_global_policy(before)


def test_weights_that_are_no_trees_are_refused() -> None:
    model = models.BoostedTrees.from_lightgbm(trained())
    weights = model.get_weights()
    weights[5] = -weights[5]  # a child before its node would never end
    model.set_weights(weights)
    with pytest.raises(ValueError, match="the children of a node must follow it"):
        model.forest()
