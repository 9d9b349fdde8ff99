"""Training of LightGBM, XGBoost and CatBoost with our losses, for real."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.objectives.data import SIZES, lists
from tfrank_sel import links, losses, metrics, objectives

FEATURES, LABELS = lists()
TREES = 30
QUIET = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "seed": 0}
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
    assert derivatives._compiled.experimental_get_tracing_count() == 1


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
    pool = catboost.Pool(FEATURES, LABELS, group_id=np.repeat(np.arange(len(SIZES)), SIZES))
    params = {"depth": 4, "learning_rate": 0.1, "thread_count": 1, "random_seed": 3}
    model = objectives.train_catboost(params, pool, loss, TREES)
    assert model.tree_count_ == TREES
    assert ndcg(model.predict(FEATURES)) > RANDOM + 0.2


def test_a_tree_of_catboost_is_a_newton_step() -> None:
    catboost = pytest.importorskip("catboost")
    ids = np.repeat(np.arange(len(SIZES)), SIZES)
    pool = catboost.Pool(FEATURES, LABELS, group_id=ids)
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


def test_data_without_lists_are_refused() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    params = {**QUIET, "objective": objectives.lightgbm(losses.SoftmaxLoss())}
    with pytest.raises(ValueError, match="give the data the sizes of the lists"):
        lightgbm.train(params, lightgbm.Dataset(FEATURES, LABELS), 1)


def test_a_measure_is_a_metric_or_a_loss() -> None:
    with pytest.raises(TypeError, match="must be a metric or a loss"):
        objectives.lightgbm_metric("ndcg")  # type: ignore[arg-type]
