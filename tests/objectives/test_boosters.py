"""Training of LightGBM, XGBoost and CatBoost with our losses, for real."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.objectives.data import SIZES, lists
from tfrank_sel import links, losses, metrics, objectives
from tfrank_sel.objectives import closed_forms
from tfrank_sel.objectives.boosters import Measured
from tfrank_sel.ops import ranking

FEATURES, LABELS = lists()
TREES = 30
QUIET = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "seed": 0}
DEPTH_3 = {"depth": 3, "learning_rate": 0.2, "thread_count": 1}
IDS = np.repeat(np.arange(len(SIZES)), SIZES)
EAGER = {"disable_default_eval_metric": 1, "min_child_weight": 0.0, "nthread": 1, "seed": 0}


def ndcg(scores: Any) -> float:
    rows = (tf.RaggedTensor.from_row_lengths(x, SIZES) for x in (LABELS, scores))
    return float(metrics.NDCG(5)(*rows))


RANDOM = ndcg(np.random.default_rng(2).normal(size=len(LABELS)))
LOSSES = [
    losses.RGCrossLoss(),
    losses.LambdaLoss(),
    losses.MatchingLoss(links.Exp()),
    losses.ListMLELoss(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda x: type(x).__name__)
def test_lightgbm_learns(loss: losses.ListwiseLoss) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    params = {**QUIET, "objective": objectives.lightgbm(loss), "metric": "None"}
    data = lightgbm.Dataset(FEATURES, LABELS, group=SIZES)
    evaluated: dict[str, Any] = {}
    model = lightgbm.train(
        params,
        data,
        TREES,
        valid_sets=[data],
        feval=[
            objectives.lightgbm_metric(metrics.NDCG(5)),
            objectives.lightgbm_metric(loss),
        ],
        callbacks=[lightgbm.record_evaluation(evaluated)],
    )
    values, costs = (evaluated["training"][x.name] for x in (metrics.NDCG(5), loss))
    assert len(values) == TREES
    assert ndcg(model.predict(FEATURES)) > RANDOM + 0.2
    np.testing.assert_allclose(values[-1], ndcg(model.predict(FEATURES)), atol=1e-5)
    assert costs[-1] < costs[0]


def test_a_ranker_of_lightgbm_learns_the_same() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    objective = objectives.lightgbm(losses.RGCrossLoss())
    data = lightgbm.Dataset(FEATURES, LABELS, group=SIZES)
    model = lightgbm.train({**QUIET, "objective": objective, "metric": "None"}, data, TREES)
    ranker = lightgbm.LGBMRanker(
        objective=objective,
        metric="None",
        n_estimators=TREES,
        n_jobs=1,
        min_child_samples=5,
        verbose=-1,
    )
    ranker.fit(
        FEATURES,
        LABELS,
        group=SIZES,
        eval_X=(FEATURES,),
        eval_y=(LABELS,),
        eval_group=[SIZES],
        eval_metric=objectives.lightgbm_metric(metrics.NDCG(5)),
    )
    np.testing.assert_allclose(ranker.predict(FEATURES), model.predict(FEATURES), rtol=1e-6)
    found = ranker.evals_result_["training"]["ndcg_at_5"][-1]
    np.testing.assert_allclose(found, ndcg(ranker.predict(FEATURES)), atol=1e-5)


def test_two_trainings_compile_once() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    objective = objectives.lightgbm(losses.RGCrossLoss())
    data = lightgbm.Dataset(FEATURES, LABELS, group=SIZES)
    for _ in range(2):  # each copies its parameters
        lightgbm.train({**QUIET, "objective": objective, "metric": "None"}, data, 2)
    (derivatives,) = objective.args  # type: ignore[attr-defined]
    assert sum(x.experimental_get_tracing_count() for x in derivatives._graphs) == 1


def test_lists_of_weight_0_teach_lightgbm_nothing() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    half = len(SIZES) // 2
    items = SIZES[:half].sum()
    junk = np.where(np.arange(len(LABELS)) < items, LABELS, LABELS.max() - LABELS)
    weights = np.where(np.arange(len(LABELS)) < items, 1.0, 0.0)
    params = {**QUIET, "objective": objectives.lightgbm(losses.RGCrossLoss()), "metric": "None"}
    both = lightgbm.Dataset(FEATURES, junk, group=SIZES, weight=weights)
    learned = ndcg(lightgbm.train(params, both, TREES).predict(FEATURES))
    plain = lightgbm.Dataset(FEATURES, junk, group=SIZES)
    spoiled = ndcg(lightgbm.train(params, plain, TREES).predict(FEATURES))
    assert learned > spoiled + 0.1


@pytest.mark.parametrize("loss", LOSSES[:2], ids=lambda x: type(x).__name__)
def test_xgboost_learns(loss: losses.ListwiseLoss) -> None:
    xgboost = pytest.importorskip("xgboost")
    weights = np.ones(len(SIZES))  # per list
    data = xgboost.DMatrix(FEATURES, LABELS, group=SIZES, weight=weights)
    evaluated: dict[str, Any] = {}
    model = xgboost.train(
        EAGER,
        data,
        TREES,
        obj=objectives.xgboost(loss),
        custom_metric=objectives.xgboost_metric(metrics.NDCG(5)),
        evals=[(data, "train")],
        evals_result=evaluated,
        verbose_eval=False,
    )
    scores = model.predict(data, output_margin=True)
    assert ndcg(scores) > RANDOM + 0.2
    np.testing.assert_allclose(evaluated["train"]["ndcg_at_5"][-1], ndcg(scores), atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES[:2], ids=lambda x: type(x).__name__)
def test_catboost_learns(loss: losses.ListwiseLoss) -> None:
    catboost = pytest.importorskip("catboost")
    pool = catboost.Pool(FEATURES, LABELS, group_id=IDS)
    params = {"depth": 4, "learning_rate": 0.1, "thread_count": 1, "random_seed": 3}
    model = objectives.train_catboost(params, pool, loss, TREES)
    assert model.tree_count_ == TREES
    assert ndcg(model.predict(FEATURES)) > RANDOM + 0.2


def test_a_tree_of_catboost_is_a_newton_step() -> None:
    catboost = pytest.importorskip("catboost")
    pool = catboost.Pool(FEATURES, LABELS, group_id=IDS)
    params = {"depth": 1, "learning_rate": 1.0, "l2_leaf_reg": 0.0, "random_strength": 0.0}
    params |= {"bootstrap_type": "No", "thread_count": 1}
    model = objectives.train_catboost(params, pool, losses.SoftmaxLoss(), 1)
    gradient, diagonal = objectives.Derivatives(losses.SoftmaxLoss())(
        LABELS, np.zeros(len(LABELS)), None, SIZES
    )
    scores = model.predict(FEATURES)
    for value in np.unique(scores):
        leaf = scores == value
        step = -gradient[leaf].sum() / diagonal[leaf].sum()
        np.testing.assert_allclose(value, step, rtol=1e-3)


def test_catboost_changes_no_pool() -> None:
    catboost = pytest.importorskip("catboost")
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(LABELS)).astype(np.float32)
    pool = catboost.Pool(FEATURES, LABELS, group_id=IDS, weight=weights, baseline=LABELS)
    with pytest.raises(catboost.CatBoostError):
        objectives.train_catboost({"depth": 99}, pool, losses.SoftmaxLoss(), 2)
    first, second = (
        objectives.train_catboost(DEPTH_3, pool, losses.SoftmaxLoss(), 5) for _ in range(2)
    )
    assert not pool.is_quantized()
    np.testing.assert_array_equal(pool.get_weight(), weights)
    np.testing.assert_allclose(np.ravel(pool.get_baseline()), LABELS)
    found = first.predict(FEATURES)
    np.testing.assert_array_equal(second.predict(FEATURES), found)
    np.testing.assert_allclose(first.predict(pool) - LABELS, found, atol=1e-6)
    without = catboost.Pool(FEATURES, LABELS, group_id=IDS, weight=weights)
    other = objectives.train_catboost(DEPTH_3, without, losses.SoftmaxLoss(), 5)
    np.testing.assert_allclose(other.predict(FEATURES), found, atol=1e-5)


@pytest.mark.parametrize("count", [2, 12])  # one-hot, and statistics of the labels
def test_catboost_learns_from_categorical_features(count: int) -> None:
    catboost = pytest.importorskip("catboost")
    edges = np.quantile(FEATURES[:, 0], np.linspace(0.0, 1.0, count + 1)[1:-1])
    categories = np.digitize(FEATURES[:, 0], edges).astype(str)
    rows = np.column_stack([FEATURES[:, 1:].astype(object), categories])
    pool = catboost.Pool(rows, LABELS, group_id=IDS, cat_features=[3])
    model = objectives.train_catboost(DEPTH_3, pool, losses.RGCrossLoss(), TREES)
    assert ndcg(model.predict(rows)) > RANDOM + 0.1
    pool.quantize()
    with pytest.raises(ValueError, match=r"must not be quantized.*categorical features \[3\]"):
        objectives.train_catboost(DEPTH_3, pool, losses.RGCrossLoss(), 1)


def test_catboost_refuses_texts() -> None:
    catboost = pytest.importorskip("catboost")
    rows = [[x, "some words"] for x in FEATURES[:, 0]]
    pool = catboost.Pool(rows, LABELS, group_id=IDS, text_features=[1])
    with pytest.raises(ValueError, match=r"Received: a pool with features \[1\]"):
        objectives.train_catboost(DEPTH_3, pool, losses.SoftmaxLoss(), 1)


def test_a_fitted_ranker_of_lightgbm_pickles() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    ranker = lightgbm.LGBMRanker(
        objective=objectives.lightgbm(losses.RGCrossLoss(), probes=2, floor=0.1, seed=3),
        metric="None",
        n_estimators=5,
        n_jobs=1,
        verbose=-1,
    )
    ranker.fit(FEATURES, LABELS, group=SIZES)
    loaded = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(loaded.predict(FEATURES), ranker.predict(FEATURES))
    (derivatives,) = loaded.objective.args
    assert (derivatives.probes, derivatives.floor, derivatives.seed) == (2, 0.1, 3)
    loaded.fit(FEATURES, LABELS, group=SIZES)
    np.testing.assert_allclose(loaded.predict(FEATURES), ranker.predict(FEATURES), rtol=1e-6)


@pytest.mark.parametrize(
    ("metric", "is_maximised"),
    [
        (metrics.NDCG(5), True),
        (metrics.ARP(), False),
        (losses.SoftmaxLoss(), False),
        (metrics.BrierScore(), False),
        (metrics.ECE(from_logits=False), False),
        (metrics.PCOC(), False),
    ],
    ids=lambda x: x.name if hasattr(x, "name") else "",
)
def test_evaluation_equals_the_metric_and_pickles(metric: Any, is_maximised: bool) -> None:
    random = np.random.default_rng(3)
    labels = np.minimum(LABELS, 1.0)
    scores, weights = random.uniform(size=len(labels)), random.uniform(size=len(labels))
    made = objectives.lightgbm_metric(metric)
    given = labels, scores, weights, SIZES
    found = made(*given)
    rows = (tf.RaggedTensor.from_row_lengths(x, SIZES) for x in given[:3])
    assert found == (metric.name, pytest.approx(float(metric(*rows)), rel=1e-5), is_maximised)
    assert made(*given) == found  # keeps no state
    assert pickle.loads(pickle.dumps(made))(*given) == found


@pytest.mark.parametrize("k", [2, None])
@pytest.mark.parametrize("gain", ranking.GAINS)
@pytest.mark.parametrize("odd", ["", "NaN scores", "NaN weight", "infinite label", "negative"])
def test_ndcg_equals_that_of_padded_lists(
    k: int | None, gain: str, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, sizes = np.random.default_rng(1), np.array([3, 6, 1, 0, 4, 30])
    items = int(sizes.sum())
    labels = random.choice([0.0, 1.0, 2.0, 600.0, np.nan], items)
    scores = random.choice([-np.inf, np.nan, -1.0, -0.0, 0.0, 1.0], items)
    of_items = random.uniform(0.5, 2.0, items)
    of_items[:3] = 0.0
    of_lists = random.uniform(0.5, 2.0, len(sizes))
    if odd == "NaN scores":
        scores[:9] = np.where(random.random(9) < 0.5, -np.inf, np.nan)
    elif odd == "NaN weight":
        of_items[4] = np.nan
    elif odd == "infinite label":
        labels[4] = np.inf
    elif odd == "negative":
        of_lists[:2] *= -1.0
    metric = metrics.NDCG(k, ranking.GAINS[gain])
    for weights in (None, of_items, of_lists):
        value = Measured(metric)(labels, scores, weights, sizes)
        with monkeypatch.context() as patch:
            patch.setattr(closed_forms, "measures", lambda _: False)
            by_graph = Measured(metric)(labels, scores, weights, sizes)
        np.testing.assert_allclose(value, by_graph, rtol=1e-6)


def test_objective_and_metric_of_xgboost_pickle() -> None:
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(FEATURES, LABELS, group=SIZES)
    made = objectives.xgboost(losses.SoftmaxLoss()), objectives.xgboost_metric(metrics.NDCG(5))
    loaded = pickle.loads(pickle.dumps(made))
    (objective, metric), (other, same) = made, loaded
    np.testing.assert_allclose(objective(LABELS, data), other(LABELS, data))
    assert metric(LABELS, data) == same(LABELS, data)


def test_a_model_of_xgboost_is_saved_with_an_objective_of_choice(tmp_path) -> None:
    xgboost = pytest.importorskip("xgboost")
    matrix = xgboost.DMatrix(FEATURES, LABELS, group=SIZES)
    objective = objectives.xgboost(losses.RGCrossLoss())
    model = xgboost.train(EAGER, matrix, 3, obj=objective)
    wanted = model.predict(matrix, output_margin=True)
    model.set_param({"objective": "rank:pairwise"})
    model.save_model(tmp_path / "model.json")
    saved = json.loads((tmp_path / "model.json").read_text())
    assert saved["learner"]["objective"]["name"] == "rank:pairwise"
    loaded = xgboost.Booster(model_file=tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(matrix, output_margin=True), wanted)


def test_data_without_lists_are_refused() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    params = {**QUIET, "objective": objectives.lightgbm(losses.SoftmaxLoss())}
    with pytest.raises(ValueError, match="give the data the sizes of the lists"):
        lightgbm.train(params, lightgbm.Dataset(FEATURES, LABELS), 1)


def test_a_loss_in_place_of_an_objective_is_told_what_to_write() -> None:
    lightgbm, loss = pytest.importorskip("lightgbm"), losses.SoftmaxLoss()
    data = lightgbm.Dataset(FEATURES, LABELS, group=SIZES)
    with pytest.raises(ValueError, match=r"in lightgbm, write `objectives.lightgbm\(loss\)`"):
        lightgbm.train({**QUIET, "objective": loss}, data, 1)
    with pytest.raises(ValueError, match=r"in lightgbm, write `objectives.lightgbm\(loss\)`"):
        lightgbm.LGBMRanker(objective=loss, **QUIET).fit(FEATURES, LABELS > 1.0, group=SIZES)
    xgboost = pytest.importorskip("xgboost")
    matrix = xgboost.DMatrix(FEATURES, LABELS)
    matrix.set_group(SIZES)
    with pytest.raises(ValueError, match=r"in xgboost, write `objectives.xgboost\(loss\)`"):
        xgboost.train({}, matrix, 1, obj=loss)


def test_a_measure_is_a_metric_or_a_loss() -> None:
    with pytest.raises(TypeError, match="must be a metric or a loss"):
        objectives.lightgbm_metric("ndcg")  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", [metrics.NDCG(5), metrics.MRR(), losses.SoftmaxLoss()])
def test_a_list_of_weight_0_is_not_measured(metric: Any) -> None:
    measured, scores = objectives.boosters.Measured(metric), np.arange(9.0) - 8.0  # none positive
    labels = np.array([0, 1, 0, 1, 0, 0, 2, 1, 0], np.float32)
    weights = np.array([1, 1, 1, 0, 0, 0, 1, 0, 2], np.float32)
    rest = np.array([0, 1, 2, 6, 7, 8])
    without = measured(labels[rest], scores[rest], weights[rest], [3, 3])
    assert without > 0.0
    assert measured(labels, scores, weights, [3, 3, 3]) == pytest.approx(without, rel=1e-5)
    assert measured(labels, scores + 99.0, None, [3, 3, 3]) == pytest.approx(
        measured(labels, scores, None, [3, 3, 3]), rel=1e-5
    )
