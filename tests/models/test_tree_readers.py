"""Trees of XGBoost, CatBoost and scikit-learn models, as a model of TensorFlow."""

import pathlib
from typing import Any

import keras
import numpy as np
import pytest

from tfrank_sel import models

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(40, 10, 3)).astype(np.float32)
FEATURES[..., 1] = np.round(FEATURES[..., 1])  # equal to thresholds, also to 0
LABELS = np.clip(np.round(FEATURES[..., 0] + FEATURES[..., 1] ** 2), 0, 3)
HOLES = np.where(RANDOM.random(FEATURES.shape) < 0.3, np.nan, FEATURES).astype(np.float32)
ITEMS, GRADES, IDS = HOLES.reshape(-1, 3), LABELS.ravel(), np.repeat(np.arange(40), 10)
OPPOSITE = 3.0 - GRADES  # labels that stop the training after few trees


def xgboost_booster(features: Any = ITEMS, trees: int = 20, **params: Any) -> Any:
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(features, GRADES, enable_categorical=True)
    options = {"objective": "rank:ndcg", "max_depth": 4, "nthread": 1, **params}
    if options["objective"] == "rank:ndcg":
        data.set_group([10] * 40)
    return xgboost.train(options, data, trees)


def catboost_model(features: Any = ITEMS, trees: int = 20, **params: Any) -> Any:
    catboost = pytest.importorskip("catboost")
    options = {"loss_function": "YetiRank", "depth": 4, "thread_count": 1, "iterations": trees}
    model = catboost.CatBoost({**options, "verbose": 0, "allow_writing_files": False, **params})
    cat_features = [1] if features.dtype == object else []
    pool = catboost.Pool(features, GRADES, cat_features=cat_features, group_id=IDS)
    return model.fit(pool)


def raw(booster: Any, features: Any) -> Any:
    """The scores of the library itself."""
    library = type(booster).__module__.split(".")[0]
    if library == "xgboost":
        return booster.inplace_predict(features, predict_type="margin")
    return booster.predict(features, prediction_type="RawFormulaVal")


BOOSTERS = {
    "xgboost": xgboost_booster,
    "xgboost, other base score": lambda: xgboost_booster(base_score=0.5),
    "xgboost, Poisson": lambda: xgboost_booster(objective="count:poisson"),
    "xgboost, forests": lambda: xgboost_booster(num_parallel_tree=3, subsample=0.5),
    "xgboost, exact": lambda: xgboost_booster(tree_method="exact"),
    "xgboost, dense": lambda: xgboost_booster(FEATURES.reshape(-1, 3)),
    "catboost": catboost_model,
    "catboost, NaN above": lambda: catboost_model(nan_mode="Max"),
    "catboost, dense": lambda: catboost_model(FEATURES.reshape(-1, 3)),
    "catboost, bias": lambda: catboost_model(loss_function="RMSE"),
    "catboost, by leaves": lambda: catboost_model(grow_policy="Lossguide"),
    "catboost, scaled": lambda: scaled(catboost_model()),
}


def scaled(model: Any) -> Any:
    model.set_scale_and_bias(2.0, 0.25)
    return model


def read(booster: Any) -> models.BoostedTrees:
    library = type(booster).__module__.split(".")[0]
    if library == "xgboost":
        return models.BoostedTrees.from_xgboost(booster)
    if library == "catboost":
        return models.BoostedTrees.from_catboost(booster)
    return models.BoostedTrees.from_lightgbm(booster)


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", BOOSTERS.values(), ids=list(BOOSTERS))
def test_scores_are_those_of_the_library(make: Any, tmp_path: pathlib.Path) -> None:
    booster = make()
    model = read(booster)
    other = RANDOM.normal(size=(200, 3)).astype(np.float32)
    other[RANDOM.random(other.shape) < 0.3] = np.nan
    for features in (ITEMS, other):
        expected = raw(booster, features)
        np.testing.assert_allclose(model(features[:, None])[:, 0], expected, rtol=1e-6, atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(HOLES), model(HOLES))


@pytest.mark.parametrize("make", [xgboost_booster, catboost_model])
def test_a_float32_at_a_threshold_takes_the_same_branch(make: Any) -> None:
    booster = make()
    model = read(booster)
    near = np.unique(model.threshold.numpy())
    up, down = np.nextafter(near, np.float32(99)), np.nextafter(near, np.float32(-99))
    features = np.stack([np.concatenate([near, up, down, [0.0, -0.0]])] * 3, axis=-1)
    features = np.where(np.abs(features) < 1e-34, 0.0, features).astype(np.float32)
    np.testing.assert_allclose(model(features[None])[0], raw(booster, features), atol=2e-6)


@pytest.mark.parametrize("make", [xgboost_booster, catboost_model])
def test_an_ensemble_with_a_network_is_saved(make: Any, tmp_path: pathlib.Path) -> None:
    network = models.ListScorer([0.0] * 3, [1.0] * 3, hidden_units=[4], dropout=0.0)
    booster = make()
    ensemble = models.Ensemble([read(booster), network])
    inputs = {"features": FEATURES, "mask": np.ones(FEATURES.shape[:2], bool)}
    found = ensemble(inputs).numpy()
    trees = raw(booster, FEATURES.reshape(-1, 3)).reshape(FEATURES.shape[:2])
    standard = [
        (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
        for x in (trees, network(inputs).numpy())
    ]
    np.testing.assert_allclose(found, sum(standard) / 2, atol=1e-4)
    ensemble.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs), found, atol=1e-6)


def ranker(library: str, kind: str, options: dict[str, Any]) -> Any:
    """A scikit-learn model whose training stopped early."""
    pytest.importorskip("sklearn")
    module = pytest.importorskip(library)
    model, sizes = getattr(module, kind)(**options), [10] * 40
    if library == "catboost":
        held_out: Any = module.Pool(ITEMS, OPPOSITE, group_id=IDS)
        return model.fit(ITEMS, GRADES, group_id=IDS, eval_set=held_out)
    held_out = [(ITEMS, OPPOSITE)]
    return model.fit(ITEMS, GRADES, group=sizes, eval_set=held_out, eval_group=[sizes])


RANKERS: list[tuple[str, str, dict[str, Any]]] = [
    ("lightgbm", "LGBMRanker", {"early_stopping_round": 3, "verbose": -1, "min_child_samples": 3}),
    ("xgboost", "XGBRanker", {"early_stopping_rounds": 3, "n_jobs": 1}),
    (
        "catboost",
        "CatBoostRanker",
        {"early_stopping_rounds": 3, "verbose": 0, "allow_writing_files": False},
    ),
]


@pytest.mark.parametrize(("library", "kind", "options"), RANKERS, ids=[x[0] for x in RANKERS])
def test_scikit_learn_models_have_the_trees_of_the_best_iteration(
    library: str, kind: str, options: dict[str, Any]
) -> None:
    fitted = ranker(library, kind, options)
    model = read(fitted)
    assert model.num_trees < 100
    np.testing.assert_allclose(model(HOLES), fitted.predict(ITEMS).reshape(40, 10), atol=1e-6)
    if library == "lightgbm":
        again = models.BoostedTrees.from_lightgbm(fitted.booster_)
        np.testing.assert_array_equal(again(HOLES), model(HOLES))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_other_objects_are_refused(library: str) -> None:
    make = getattr(models.BoostedTrees, f"from_{library}")
    with pytest.raises(TypeError, match=rf"Expected.*{library}\..*Received: .*builtins.dict"):
        make({})
    if library != "xgboost":
        booster = xgboost_booster(trees=1)
        with pytest.raises(TypeError, match=r"Received: an object of xgboost\.core\.Booster"):
            make(booster)


def test_other_trees_of_xgboost_are_refused() -> None:
    xgboost = pytest.importorskip("xgboost")
    pandas = pytest.importorskip("pandas")
    words = pandas.Categorical(RANDOM.integers(0, 3, 400).astype(str))
    frame = pandas.DataFrame({"a": GRADES * (words == "1"), "b": words})
    for message, booster in (
        ("categorical feature 1", xgboost_booster(frame)),
        ("booster='dart'", xgboost_booster(booster="dart")),
        ("outputs=4", xgboost_booster(objective="multi:softprob", num_class=4)),
        (
            "missing=0",
            xgboost.XGBRanker(n_estimators=1, missing=0.0).fit(ITEMS, GRADES, group=[400]),
        ),
    ):
        with pytest.raises(ValueError, match=f"Expected.*Received: {message}"):
            models.BoostedTrees.from_xgboost(booster)


def test_other_trees_of_catboost_are_refused() -> None:
    words = np.stack([ITEMS[:, 0].astype(object), GRADES.astype(int).astype(str)], axis=1)
    for message, model in (
        ("categorical_features", catboost_model(words.astype(object), one_hot_max_size=9)),
        ("outputs=4", catboost_model(loss_function="MultiClass")),
    ):
        with pytest.raises(ValueError, match=f"Expected.*Received: {message}"):
            models.BoostedTrees.from_catboost(model)


@pytest.mark.parametrize("make", [xgboost_booster, catboost_model])
def test_thresholds_that_would_count_as_0_are_refused(make: Any) -> None:
    booster = make(ITEMS * np.float32(1e-37), trees=1)
    with pytest.raises(ValueError, match=r"thresholds of 0 or above 1e-35.*multiply feature \d"):
        read(booster)
