"""The estimator trains, ranks and keeps scikit-learn's conventions."""

import contextlib
import copy
import functools
import io
import pathlib
import pickle
import random
import re
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
import sklearn
import tensorflow as tf
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.references.metrics import ndcg
from tfrank_sel import Ranker, losses, models
from tfrank_sel.data.lists import Lists
from tfrank_sel.estimator import ranker as ranker_module
from tfrank_sel.estimator.lists import groups_of, weights_of
from tfrank_sel.models.preparation import inputs_of
from tfrank_sel.pipelines.candidates import Candidate, Trees
from tfrank_sel.training import networks
from tfrank_sel.training.trees import name_of

QUICK: dict[str, Any] = {"hidden_units": (16,), "learning_rate": 0.02, "random_state": 0}


def lists(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists of 3 to 8 items whose relevance rises with the first column."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(rng.permutation(count), rng.integers(3, 9, count))
    X = rng.normal(size=(len(qid), 3)).astype("float32")
    y = np.clip(np.round(X[:, 0] + 0.1 * rng.normal(size=len(qid))) + 1, 0, 3)
    return X, y, qid


X, Y, QID = lists(60, seed=0)
X_TEST, Y_TEST, QID_TEST = lists(40, seed=1)


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    loss = losses.LambdaLoss()
    return Ranker(loss, epochs=30, patience=2, **QUICK).fit(X, Y, qid=QID)


def test_scores_rank_the_items_and_the_score_is_the_mean_ndcg(ranker: Ranker) -> None:
    scores = ranker.predict(X_TEST, qid=QID_TEST)
    values = []
    for query in set(QID_TEST):
        rows = query == QID_TEST
        values.append(ndcg(Y_TEST[rows], scores[rows], np.ones(rows.sum()), k=10))
    found = ranker.score(X_TEST, Y_TEST, qid=QID_TEST)
    assert found == pytest.approx(np.mean(values), abs=1e-6)
    assert found > 0.95


def test_scores_come_in_the_order_of_the_rows(ranker: Ranker) -> None:
    scores = ranker.predict(X_TEST, qid=QID_TEST)
    order = np.random.default_rng(0).permutation(len(X_TEST))
    np.testing.assert_array_equal(ranker.predict(X_TEST[order], qid=QID_TEST[order]), scores[order])
    names = np.array([f"query {query}" for query in QID_TEST], object)
    np.testing.assert_array_equal(ranker.predict(X_TEST, qid=names), scores)
    sizes = np.diff(np.flatnonzero(np.diff(QID_TEST, prepend=-1, append=-1)))
    np.testing.assert_array_equal(ranker.predict(X_TEST, group=sizes), scores)
    np.testing.assert_array_equal(ranker.predict(sparse.csr_matrix(X_TEST), qid=QID_TEST), scores)


def test_a_model_is_traced_once_for_all_shapes(ranker: Ranker) -> None:
    loaded = pickle.loads(pickle.dumps(ranker))
    for count in (1, 3, 20):
        rows = np.isin(QID_TEST, np.unique(QID_TEST)[:count])
        loaded.predict(X_TEST[rows], qid=QID_TEST[rows])
    assert loaded._scorer.graph.experimental_get_tracing_count() == 1


@pytest.mark.long
def test_training_stops_and_keeps_the_best_epoch() -> None:
    wrong = Y_TEST.max() - Y_TEST  # which every epoch ranks worse than the one before
    ranker = Ranker(members=1, epochs=40, patience=3, **QUICK)
    ranker.fit(X, Y, qid=QID, eval_set=[(X_TEST, wrong)], eval_qid=[QID_TEST])
    [(name, history)] = ranker.history_.items()
    assert name == "rg_cross_loss"
    best = max(history["val_ndcg"])
    assert ranker.n_iter_ == history["val_ndcg"].index(best) + 4 == len(history["loss"])
    assert best > history["val_ndcg"][-1]
    assert ranker.score(X_TEST, wrong, qid=QID_TEST) == pytest.approx(best, abs=1e-6)


@pytest.mark.long
def test_equal_seeds_train_equal_rankers_of_unequal_models_and_leave_random_numbers_alone() -> None:
    random.seed(1)
    np.random.seed(1)
    two, first = (
        Ranker(losses.SoftmaxLoss(), members=members, epochs=1, **QUICK).fit(X, Y, qid=QID)
        for members in (2, 1)
    )
    assert random.random() == random.Random(1).random()
    assert np.random.random() == np.random.RandomState(1).random()
    assert list(two.history_) == ["softmax_loss", "softmax_loss_2"]
    assert isinstance(two.model_.network, models.Ensemble)
    one, other = (network.get_weights() for network in two.model_.network.members)
    assert not np.array_equal(one[0], other[0])
    for mine, its in zip(first.model_.network.get_weights(), one, strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.long
def test_lists_of_weight_zero_teach_nothing() -> None:
    wrong = Y.max() - Y  # the same lists, with the labels turned round
    twice = np.concatenate([X, X]), np.concatenate([Y, wrong])
    qid = np.concatenate([QID, QID + 1000])
    ranker = Ranker(members=2, epochs=8, validation_fraction=None, **QUICK)
    ranker.fit(*twice, qid=qid, sample_weight=np.repeat([1.0, 0.0], 60))
    assert ranker.score(X_TEST, Y_TEST, qid=QID_TEST) > 0.9
    assert "val_ndcg" not in ranker.history_["rg_cross_loss"]
    assert ranker.model_.network.members[1].num_trees == ranker_module.TREES
    assert ranker.history_["mean_squared_loss_trees"] == {}


@pytest.fixture(scope="module")
def default() -> tuple[Ranker, str]:
    """The ranker with default models, and what it prints."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        ranker = Ranker(epochs=12, verbose=2, **QUICK).fit(X, Y, qid=QID)
    return ranker, told.getvalue()


def test_the_default_is_the_ensemble_of_the_default_run(
    default: tuple[Ranker, str], tmp_path: pathlib.Path
) -> None:
    ranker, _ = default
    names = ["rg_cross_loss", "mean_squared_loss_trees", "rg_cross_loss_trees"]
    assert list(ranker.history_) == list(ranker.summary_) == names
    theirs = Candidate(trees=Trees())
    assert names == [*map(name_of, theirs.losses), *theirs.trees.names]
    assert ranker.n_iter_ == max(len(ranker.history_[x].get("loss", [])) for x in names)
    assert ranker.model_.network.factors == [0.5, 0.25, 0.25]
    network, *forests = ranker.model_.network.members
    assert isinstance(network, models.Perceptron)
    assert all(isinstance(forest, models.BoostedTrees) for forest in forests)

    rows = QID_TEST[0] == QID_TEST
    inputs = {"features": X_TEST[rows][np.newaxis], "mask": np.ones([1, rows.sum()], bool)}
    prepared = ranker.model_.preparation(inputs)
    own = [np.array(member(inputs_of(member, prepared)))[0] for member in (network, *forests)]
    standard = [(scores - scores.mean()) / scores.std() for scores in own]
    expected = np.average(standard, axis=0, weights=[2.0, 1.0, 1.0])
    found = ranker.predict(X_TEST[rows], qid=QID_TEST[rows])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert ranker.score(X_TEST, Y_TEST, qid=QID_TEST) > 0.93

    ranker.model_.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs)[0], found, atol=1e-6)
    again = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(again.predict(X_TEST[rows], qid=QID_TEST[rows]), found)
    ranker.export(tmp_path / "ranker")
    predict = tf.saved_model.load(str(tmp_path / "ranker")).signatures["predict"]
    served = predict(features=tf.constant(inputs["features"]), mask=tf.constant(inputs["mask"]))
    np.testing.assert_allclose(served["scores"][0], found, atol=1e-6)


def test_the_time_of_each_model_and_of_the_fit_is_told(default: tuple[Ranker, str]) -> None:
    ranker, told = default
    *_, last = told.splitlines()
    assert last == f"3 models in {ranker.fit_time_:.1f} s"
    seconds = re.findall(
        r"^(\w+): \d+ \w+s, best validation NDCG@10 [01]\.\d{4}, (\d+\.\d) s$", told, re.MULTILINE
    )
    assert [name for name, _ in seconds] == list(ranker.history_)
    assert sum(float(x) for _, x in seconds) <= ranker.fit_time_ + 0.2


def test_models_are_chosen_by_what_is_installed_and_by_the_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def names(**parameters: Any) -> list[str]:
        ranker = Ranker(**parameters)
        found = ranker._candidate(*ranker._losses(), X.size, True)
        return [loss.name for loss in found.losses] + (found.trees.names if found.trees else [])

    network, forest, of_list = "rg_cross_loss", "mean_squared_loss_trees", "rg_cross_loss_trees"
    assert names() == names(members=3) == [network, forest, of_list]
    assert names(members=1) == [network]
    turns = [network, f"{network}_2", forest, of_list, "mean_squared_loss_2_trees"]
    assert names(members=5) == turns
    assert names(effort="low") == [forest, of_list]
    three = [network, "lambda_loss", "softmax_loss"]
    assert names(effort="high") == [*three, forest, of_list, "lambdarank_trees"]
    assert names(effort="high", members=3) == [*three[:2], forest]
    monkeypatch.setattr(ranker_module, "MANY", 100)
    assert names() == [network, forest]
    assert names(loss=[losses.LambdaLoss(), losses.SoftmaxLoss()]) == three[1:]
    monkeypatch.setattr(ranker_module, "has_lightgbm", lambda: False)
    assert names() == names(members=1) == [network]
    assert names(members=2) == [network, f"{network}_2"]


@pytest.mark.long
def test_little_effort_trains_trees_alone() -> None:
    ranker = Ranker(effort="low", **QUICK).fit(X, Y, qid=QID)
    assert all(isinstance(x, models.BoostedTrees) for x in ranker.model_.network.members)
    assert ranker.n_iter_ == max(fit["epochs"] for fit in ranker.summary_.values())
    assert all(-1.0 < fit["adds"] < fit["validation_ndcg"] for fit in ranker.summary_.values())
    assert ranker.score(X_TEST, Y_TEST, qid=QID_TEST) > 0.9
    with pytest.raises(ValueError, match="`effort` must be one of low, default, high"):
        Ranker(effort="most").fit(X, Y, qid=QID)
    with pytest.raises(ValueError, match=r"'default' with a `loss`\. Received: low"):
        Ranker(losses.SoftmaxLoss(), effort="low").fit(X, Y, qid=QID)


def test_copies_score_the_same_and_hold_no_data(ranker: Ranker) -> None:
    expected = ranker.predict(X_TEST, qid=QID_TEST)
    ranker.feature_importances_  # noqa: B018
    pickled = pickle.dumps(ranker)
    for found in (pickle.loads(pickled), copy.deepcopy(ranker)):
        np.testing.assert_array_equal(found.predict(X_TEST, qid=QID_TEST), expected)
        np.testing.assert_array_equal(found.feature_importances_, ranker.feature_importances_)
    rows = X[QID[0] == QID]
    assert not any(row.tobytes() in pickled for row in rows)
    fresh = clone(ranker)
    assert fresh.get_params()["patience"] == 2
    with pytest.raises(NotFittedError):
        fresh.predict(X_TEST, qid=QID_TEST)


def test_a_pickled_ranker_says_that_it_lacks_the_lists_of_importances(ranker: Ranker) -> None:
    loaded = pickle.loads(pickle.dumps(ranker))
    loaded._importances = None
    with pytest.raises(AttributeError, match="Read it before you pickle the ranker"):
        loaded.feature_importances_  # noqa: B018


def test_importances_tell_which_column_matters(ranker: Ranker) -> None:
    first, *others = ranker.feature_importances_
    assert first > 0.1
    assert np.abs(others).max() < 0.05
    again = copy.deepcopy(ranker)
    again._importances, again._measured = None, ranker._measured
    np.testing.assert_array_equal(again.feature_importances_, ranker.feature_importances_)


def test_missing_numbers_of_an_array_are_those_of_a_frame() -> None:
    rng = np.random.default_rng(3)
    missing = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    of_array = Ranker(losses.LambdaLoss(), epochs=2, **QUICK).fit(missing, Y, qid=QID)
    names = ["0", "1", "2"]
    frame = pd.DataFrame(missing, columns=names)
    of_frame = clone(of_array).fit(frame, Y, qid=QID)
    scores = of_array.predict(missing, qid=QID)
    np.testing.assert_array_equal(scores, of_frame.predict(frame, qid=QID))
    assert np.isfinite(scores).all()


def test_a_missing_number_that_fit_had_none_of_is_refused(ranker: Ranker) -> None:
    with pytest.raises(ValueError, match="`X` must have no missing number"):
        ranker.predict(np.where(X_TEST > 2.0, np.nan, X_TEST), qid=QID_TEST)


def test_weights_of_lists_are_those_of_their_mean(ranker: Ranker) -> None:
    alone, queries = [], np.unique(QID_TEST)
    for query in queries:
        rows = query == QID_TEST
        alone.append(ranker.score(X_TEST[rows], Y_TEST[rows], qid=QID_TEST[rows]))
    of_query = np.arange(len(queries)) % 3
    weights = of_query[np.searchsorted(queries, QID_TEST)]
    expected = np.average(alone, weights=of_query)
    found = ranker.score(X_TEST, Y_TEST, qid=QID_TEST, sample_weight=weights)
    assert found == pytest.approx(expected)


def test_a_lost_query_is_an_error_where_fit_had_queries(ranker: Ranker) -> None:
    with pytest.raises(
        ValueError, match="are ranked as one list, but the longest one of `fit` has"
    ):
        ranker.score(X_TEST, Y_TEST)


def test_a_loss_is_named_and_its_arguments_are_parameters() -> None:
    named = Ranker("LambdaLoss", epochs=1, **QUICK).fit(X, Y, qid=QID)
    assert [*named.history_] == ["lambda_loss"]
    nested = Ranker(losses.RGCrossLoss()).set_params(loss__alpha=0.3, dropout=0.1)
    assert (nested.loss.alpha, nested.dropout) == (0.3, 0.1)
    softmax = Ranker("SoftmaxLoss").set_params(loss__targets=losses.targets.Gains())
    assert isinstance(softmax.loss.targets, losses.targets.Gains)
    with pytest.raises(ValueError, match=r"`loss__` must be followed by one of .*alpha"):
        nested.set_params(loss__beta=1.0)


SEARCHES = [cross_val_score, GridSearchCV, RandomizedSearchCV]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_pipeline_passes_queries_on(search: Any) -> None:
    scale = ColumnTransformer([("scaled", StandardScaler(), [0, 1, 2])])
    pipe = make_pipeline(scale, Ranker(losses.RGCrossLoss(), members=1, epochs=1, **QUICK))
    alphas = {"ranker__loss__alpha": [0.2, 0.4]}
    with sklearn.config_context(enable_metadata_routing=True):
        if search is cross_val_score:
            scores = search(pipe, X, Y, params={"qid": QID, "groups": QID}, cv=GroupKFold(2))
        else:
            more = {"n_iter": 2} if search is RandomizedSearchCV else {}
            found = search(pipe, alphas, cv=GroupKFold(2), **more).fit(X, Y, qid=QID, groups=QID)
            scores = found.cv_results_["mean_test_score"]
            assert found.best_estimator_.score(X, Y, qid=QID) > 0.5
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_without_metadata_routing_is_an_error(search: Any) -> None:
    scale = ColumnTransformer([("scaled", StandardScaler(), [0, 1, 2])])
    pipe = make_pipeline(scale, Ranker(losses.RGCrossLoss(), members=1, epochs=1, **QUICK))
    options: dict[str, Any] = {"cv": GroupKFold(2), "error_score": "raise"}
    options |= {"n_iter": 1} if search is RandomizedSearchCV else {}
    if search is cross_val_score:
        fit = functools.partial(search, pipe, X, Y, params={"ranker__qid": QID}, groups=QID)
    else:
        found = search(pipe, {"ranker__dropout": [0.5]}, **options)
        fit, options = functools.partial(found.fit, X, Y, ranker__qid=QID, groups=QID), {}
    with pytest.raises(ValueError, match="`qid` and `group` are missing"):
        fit(**options)


@pytest.mark.long
def test_a_search_divides_queries_and_passes_them_on() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            Ranker(members=1, epochs=6, **QUICK), {"dropout": [0.0, 0.9999]}, cv=GroupKFold(2)
        )
        search.fit(X, Y, qid=QID, groups=QID)
    assert search.best_params_ == {"dropout": 0.0}
    assert search.best_estimator_.score(X_TEST, Y_TEST, qid=QID_TEST) > 0.9


def test_an_exported_ranker_scores_as_it_does(ranker: Ranker, tmp_path: Any) -> None:
    ranker.export(tmp_path / "ranker", top_k=3)
    predict = tf.saved_model.load(str(tmp_path / "ranker")).signatures["predict"]
    rows = QID_TEST[0] == QID_TEST
    found = predict(features=tf.constant(X_TEST[rows][np.newaxis]), mask=tf.constant([[True]]))
    expected = ranker.predict(X_TEST[rows], qid=QID_TEST[rows])
    np.testing.assert_allclose(found["scores"].numpy()[0], expected, atol=1e-6)


@pytest.mark.long
def test_rows_without_queries_are_one_list_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=f"all {len(X)} rows are ranked as one list"):
        ranker = Ranker(members=1, epochs=1, **QUICK).fit(X, Y)
    whole = ranker.predict(X)  # no longer than the list of training
    np.testing.assert_array_equal(whole, ranker.predict(X, qid=np.zeros(len(X), int)))
    with pytest.warns(UserWarning, match="rows are ranked as one list"):
        ranker.predict(np.concatenate([X, X]))


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ({"members": 0}, {}, "`members` must be positive or None. Received: members=0"),
        ({"epochs": 0}, {}, "`epochs` must be positive. Received: epochs=0"),
        ({"averaging": 1.0}, {}, r"`averaging` must be in \[0, 1\). Received: averaging=1.0"),
        (
            {"weight_decay": 1.0},
            {},
            r"`weight_decay` must be in \[0, 1\). Received: weight_decay=1.0",
        ),
        (
            {"validation_fraction": 1.0},
            {},
            r"in \(0, 1\) or None. Received: validation_fraction=1.0",
        ),
        ({"dropout": 2.0}, {}, r"`dropout` must be in \[0, 1\)"),
        ({"loss": []}, {}, "a sequence of losses. Received: "),
        ({"loss": "lambda"}, {}, "a sequence of losses. Received: 'lambda'"),
        ({"loss": [losses.LambdaLoss(), losses.LambdaLoss()]}, {}, "with unique names"),
        ({"features": {}}, {}, "needs a frame with named columns"),
        ({}, {"group": [len(X)]}, "pass `qid` or `group`. Received: both"),
        ({}, {"qid": None, "group": [3, 4]}, "whose sum is the number of rows"),
        ({}, {"qid": None, "group": [1.0 * len(X)]}, "positive integers"),
        ({}, {"qid": QID[:-1]}, f"`qid` must have a value for each of {len(X)} rows"),
        ({}, {"qid": np.where(QID == 3, np.nan, QID)}, "Received: a missing value"),
        ({}, {"qid": np.where(QID == 3, None, QID)}, "Received: a missing value"),
        ({}, {"qid": np.where(QID == 3, pd.NA, QID.astype(object))}, "Received: a missing value"),
        ({}, {"X": pd.DataFrame({"x": X[:, 0] + 1j})}, "X: expected a readable table. .*complex"),
        ({}, {"y": -Y}, "`y` must not be negative. Received: -"),
        ({}, {"y": np.ones(len(X))}, "a list must have two different labels. Received: "),
        ({}, {"sample_weight": -np.ones(len(X))}, "must not be negative"),
        ({}, {"sample_weight": np.ones(7)}, "of 60 lists. Received: 7 values"),
        ({}, {"eval_qid": [QID_TEST]}, r"`eval_set` must be \[\(X, y\)\]"),
        ({}, {"eval_set": [(X, Y), (X, Y)]}, r"Received lengths: \[2, None, None\]"),
    ],
)
def test_what_cannot_be_used_is_refused(
    parameters: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Ranker(**parameters).fit(**{"X": X, "y": Y, "qid": QID, **arguments})


def test_the_extra_is_named_where_it_is_missing() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import tfrank_sel; tfrank_sel.Ranker"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs sklearn: pip install 'tfrank_sel[sklearn]'" in told.stderr


def test_weights_of_lists_follow_the_first_rows_of_lists():
    sizes, order = groups_of(5, ["b", "a", "b", "c", "a"], None)
    of_rows = np.array([1.0, 2.0, 1.0, 3.0, 2.0])
    for weights in ([1.0, 2.0, 3.0], of_rows):
        np.testing.assert_array_equal(weights_of(weights, sizes, order), of_rows[order])


def test_at_least_one_list_is_held_out():
    lists = Lists.of(np.array([1, 2, 1]), np.zeros([4, 1]))
    learned, held_out = lists.split(0.01, seed=0)
    assert (len(learned.sizes), len(held_out.sizes)) == (2, 1)


@pytest.mark.long
def test_held_out_lists_of_weight_0_are_not_measured() -> None:
    labels = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 0.0]], np.float32)
    features = np.array([[[1.0], [2.0]], [[3.0], [1.0]], [[1.0], [2.0]]], np.float32)
    weights = np.array([[1.0, 2.0], [1.0, 1.0], [0.0, 0.0]], np.float32)
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False), keras.layers.Flatten()])
    model(features)
    model.set_weights([np.ones([1, 1])])
    found = []
    for count in (2, 3):
        part = [x[:count] for x in (features, labels, weights)]
        data = tf.data.Dataset.from_tensors(tuple(part))
        validation = networks.Validation((data, data), losses.SoftmaxLoss())
        validation.set_model(model)
        found.append({})
        validation.on_epoch_end(0, found[-1])
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert found[0]["val_ndcg"] == pytest.approx(1.0)
