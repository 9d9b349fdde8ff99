import inspect
import json
import resource
import tracemalloc
import warnings

import keras
import numpy as np
import pytest
import scipy.sparse as sp
import tensorflow as tf

from tests import refusals
from tests.references import metrics as reference
from tfrank_sel import export
from tfrank_sel.distribution import SingleProcess
from tfrank_sel.models.als import (
    RG2,
    RGCross,
    RGFactorizer,
    WeightedSquare,
    progress,
    retrieval,
    tune,
)
from tfrank_sel.models.als.interactions import as_matrix

USERS = np.array([0, 0, 1, 1, 1, 2, 3, 3])
ITEMS = np.array([0, 1, 0, 1, 2, 3, 3, 4])
TRIPLES = (USERS, ITEMS, np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0, 1.0]))


def factorizer(**changed):
    return RGFactorizer(**{"num_factors": 3, "regularization": 0.05, "num_threads": 1, **changed})


def clusters(num_users=120, num_items=60, seed=0):
    """Users take items of their own third."""
    rng = np.random.default_rng(seed)
    alike = np.arange(num_users)[:, None] % 3 == np.arange(num_items) % 3
    taken = rng.random(alike.shape) < np.where(alike, 0.4, 0.02)
    held_out = taken & (rng.random(alike.shape) < 0.2)
    return sp.csr_matrix(taken & ~held_out, dtype=float), sp.csr_matrix(held_out, dtype=float)


UNFITTED = {
    "recommend": lambda model, _: model.recommend([0]),
    "similar_items": lambda model, _: model.similar_items([0]),
    "similar_users": lambda model, _: model.similar_users([0]),
    "explain": lambda model, _: model.explain(0, 0),
    "to_keras": lambda model, _: model.to_keras(),
    "save": lambda model, path: model.save(path),
    "export": lambda model, path: export.factorization(model, path),
}


@pytest.mark.parametrize("method", UNFITTED)
def test_a_model_that_is_not_fitted_says_so(method, tmp_path):
    with pytest.raises(AttributeError, match=r"by `fit` or `load` first\. Received: RGFactorizer"):
        UNFITTED[method](factorizer(), tmp_path / "model")
    assert not [*tmp_path.iterdir()]
    methods = {name for name, x in vars(RGFactorizer).items() if inspect.isfunction(x)}
    others = {"__init__", "fit", "partial_fit", "export"}
    assert {x for x in methods if not x.startswith("_")} <= {*UNFITTED, *others}


@pytest.mark.parametrize(
    "kind", ["tuple", "array", "sparse", "pandas", "polars", "pyarrow", "columns", "dicts"]
)
def test_every_kind_of_input_is_the_same_matrix(kind):
    named = dict(zip(("user", "item", "gain"), TRIPLES, strict=True))
    expected = sp.csr_matrix((TRIPLES[2], TRIPLES[:2])).toarray()
    make = {
        "tuple": lambda: TRIPLES,
        "array": lambda: np.stack(TRIPLES, axis=1),
        "sparse": lambda: sp.coo_matrix(expected),
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(named),
        "polars": lambda: pytest.importorskip("polars").DataFrame(named),
        "pyarrow": lambda: pytest.importorskip("pyarrow").table(named),
        "columns": lambda: named,
        "dicts": lambda: [dict(zip(named, row, strict=True)) for row in zip(*TRIPLES, strict=True)],
    }
    np.testing.assert_array_equal(as_matrix(make[kind]()).toarray(), expected)


def test_a_gain_that_is_not_given_is_one():
    matrix = as_matrix(TRIPLES[:2])
    np.testing.assert_array_equal(matrix.toarray(), as_matrix(TRIPLES).toarray() > 0)


def test_pairs_that_stand_twice_add_up_and_gains_of_zero_go():
    matrix = as_matrix((np.array([0, 0, 1]), np.array([2, 2, 0]), np.array([1.0, 2.0, 0.0])))
    assert matrix.nnz == 1
    assert matrix[0, 2] == 3.0


@pytest.mark.parametrize(
    ("interactions", "message"),
    [
        ((USERS, ITEMS[:3]), "columns of equal length"),
        ((USERS - 1, ITEMS), "`user` must be from 0"),
        ((USERS, ITEMS + 0.5), "`item` must be integers"),
        ((USERS, ITEMS, -TRIPLES[2]), "not negative"),
        ((USERS, ITEMS, TRIPLES[2] * np.nan), "finite"),
    ],
)
def test_wrong_interactions_are_refused(interactions, message):
    with pytest.raises(ValueError, match=message):
        as_matrix(interactions)


def test_what_holds_no_interactions_is_refused():
    with pytest.raises(TypeError, match="Received: str"):
        as_matrix("interactions.csv")
    with pytest.raises(ValueError, match=r"must be from 0 to 2. Received: from 0 to 3"):
        as_matrix((USERS, ITEMS), (3, 9))


def test_qualities_are_those_of_the_metrics():
    rng = np.random.default_rng(0)
    relevant = (rng.random((20, 9)) < 0.3).astype(float)
    relevant[:, 0] = 1.0  # no user without one
    ids = np.array([rng.permutation(9)[:4] for _ in range(20)], np.int32)
    found = retrieval.user_qualities(ids, sp.csr_matrix(relevant))
    formulas = (reference.ndcg, reference.recall, reference.reciprocal_rank)
    for values, formula in zip(found.values(), formulas, strict=True):
        for value, labels, row in zip(values, relevant, ids, strict=True):
            scores = [-row.tolist().index(i) if i in row else -9.0 for i in range(9)]
            assert value == pytest.approx(formula(labels, scores, np.ones(9), 4))


@pytest.mark.parametrize("objective", [RG2(alpha=0.2), RGCross(alpha=0.2, joint=True)])
def test_it_finds_what_users_will_take(objective):
    train, held_out = clusters()
    model = factorizer(objective=objective, sweeps=8).fit(train, held_out)
    assert model.history_[-1]["ndcg@10"] > 0.3
    objectives = [values["objective"] for values in model.history_]
    assert objectives == sorted(objectives, reverse=True)
    assert 0.1 < model.history_[-1]["logit_norm"] < 3.0


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_factors(threads):
    train, _ = clusters()
    first, second, other = (
        factorizer(seed=s, num_threads=threads, sweeps=3).fit(train) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.user_factors_, second.user_factors_)
    np.testing.assert_array_equal(first.item_factors_, second.item_factors_)
    assert np.any(first.user_factors_ != other.user_factors_)


def test_partial_fit_goes_on_and_takes_in_the_new():
    straight = factorizer(sweeps=5).fit(TRIPLES)
    stepwise = factorizer()
    for _ in range(5):
        stepwise.partial_fit(TRIPLES)
    np.testing.assert_allclose(stepwise.item_factors_, straight.item_factors_, rtol=1e-5)
    stepwise.partial_fit((np.append(USERS, 6), np.append(ITEMS, 7)), sweeps=2)
    assert stepwise.user_factors_.shape == (7, 3)
    assert stepwise.item_factors_.shape == (8, 3)


def test_it_starts_from_given_factors():
    cold = factorizer(sweeps=40).fit(TRIPLES)
    given = (cold.user_factors_, cold.item_factors_)
    warm = factorizer(sweeps=1).fit(TRIPLES, factors=given)
    value = cold.history_[-1]["objective"]
    assert warm.history_[0]["objective"] == pytest.approx(value, rel=1e-4)
    with pytest.raises(ValueError, match=r"shapes \(4, 3\) and \(5, 3\)"):
        factorizer().fit(TRIPLES, factors=(given[0], given[0]))


def test_it_stops_when_validation_gets_no_better_and_keeps_the_best():
    train, held_out = clusters()
    model = factorizer(regularization=1e-3, sweeps=60, patience=2).fit(train, held_out)
    ndcgs = [values["ndcg@10"] for values in model.history_]
    assert len(ndcgs) < 60
    ids, _ = model.recommend(np.arange(120), k=10)
    assert retrieval.ranking_quality(ids, held_out)["ndcg@10"] == max(ndcgs)


def test_recommendations_are_the_best_unseen_in_order():
    model = factorizer().fit(TRIPLES)
    ids, scores = model.recommend([1, 3], k=4)
    all_scores = model.user_factors_[[1, 3]] @ model.item_factors_.T
    all_scores[0, [0, 1, 2]] = all_scores[1, [3, 4]] = -np.inf
    order = np.argsort(-all_scores, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(ids, np.where([[1, 1, 0, 0], [1, 1, 1, 0]], order, -1))
    assert np.all(scores[ids == -1] == -np.inf)
    everything, _ = model.recommend([1], k=5, filter_seen=False)
    assert sorted(everything[0]) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="`k` must be positive"):
        model.recommend([1], k=0)


def test_one_user_or_item_gives_one_row():
    model = factorizer().fit(TRIPLES)
    for method in (model.recommend, model.similar_items, model.similar_users):
        for one, of_one in zip(method(2, k=3), method([2], k=3), strict=True):
            np.testing.assert_array_equal(one, of_one[0])


def test_recommendations_come_from_the_items_that_are_allowed():
    model = factorizer().fit(TRIPLES)
    everything, scores = model.recommend([0, 3], k=5)
    allowed = np.array([4, 0, 3])
    ids, found = model.recommend([0, 3], k=2, items=np.append(allowed, allowed))
    for row, of_all in enumerate(everything):
        expected = [i for i in of_all if i in allowed][:2]
        assert ids[row].tolist() == expected + [-1] * (2 - len(expected))
        assert found[row, : len(expected)] == pytest.approx(
            [scores[row, of_all.tolist().index(i)] for i in expected], rel=1e-6
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.recommend([0, 99]), "`users` must lie from 0 to .*Received: 0 to 99"),
        (lambda model: model.recommend(-1), "`users` must lie from 0 to .*Received: -1 to -1"),
        (lambda model: model.recommend(0, items=[5, 7]), "`items` must lie from 0 to 4"),
        (lambda model: model.similar_items("a"), "`items` must be integers. Received: dtype <U1"),
        (lambda model: model.similar_users([0.5]), "`users` must be integers"),
    ],
)
def test_indices_that_do_not_exist_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(factorizer().fit(TRIPLES))


@pytest.mark.parametrize("regularization", [1.0, 5.0])
def test_vectors_that_are_parallel_or_zero_are_warned_about(regularization):
    rng = np.random.default_rng(0)
    popular = sp.csr_matrix(rng.random((200, 30)) < np.linspace(0.1, 0.9, 30), dtype=float)
    with pytest.warns(UserWarning, match="every user gets the same items.*`count_exponent`"):
        factorizer(
            objective=RG2(), sweeps=30, regularization=regularization, count_exponent=1.0
        ).fit(popular)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factorizer(sweeps=8).fit(clusters()[0])


def test_similar_items_are_close_in_direction_and_others():
    train, _ = clusters()
    model = factorizer(sweeps=8).fit(train)
    ids, cosines = model.similar_items([0, 7], k=5)
    assert np.all(ids % 3 == [[0], [1]])
    assert not np.any(ids == [[0], [7]])
    assert np.all((cosines <= 1.0 + 1e-6) & (cosines > 0.5))


def test_a_saved_model_recommends_the_same(tmp_path):
    model = factorizer(objective=RGCross(alpha=0.3, joint=True)).fit(TRIPLES)
    model.save(tmp_path / "model")
    loaded = RGFactorizer.load(tmp_path / "model")
    assert loaded.objective == model.objective
    for a, b in zip(model.recommend([0, 1, 2]), loaded.recommend([0, 1, 2]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    json.loads((tmp_path / "model" / "config.json").read_text())
    with pytest.raises(FileExistsError, match="must not exist"):
        model.save(tmp_path / "model")


def test_a_save_that_fails_leaves_nothing(tmp_path):
    model = factorizer(num_factors=64).fit(TRIPLES)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))  # enough for the configuration
        with pytest.raises(OSError, match="too large"):
            model.save(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_the_keras_model_scores_alike_and_is_served_from_a_saved_model(tmp_path):
    model = factorizer().fit(TRIPLES)
    towers = model.to_keras()
    inputs = {"user": tf.constant([1, 3]), "item": tf.constant([[0, 4], [2, 2]])}
    expected = np.einsum(
        "bk,blk->bl", model.user_factors_[[1, 3]], model.item_factors_[inputs["item"].numpy()]
    )
    np.testing.assert_allclose(towers(inputs), expected, rtol=1e-5, atol=1e-6)
    towers.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs), expected, rtol=1e-5, atol=1e-6)
    archive = keras.export.ExportArchive()
    archive.track(towers)
    specs = {
        "user": tf.TensorSpec([None], tf.int32),
        "item": tf.TensorSpec([None, None], tf.int32),
    }
    archive.add_endpoint("serve", towers, input_signature=[specs])
    archive.write_out(str(tmp_path / "served"))
    served = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(served.serve(inputs), expected, rtol=1e-5, atol=1e-6)


def test_progress_goes_to_the_screen_and_to_tensorboard(tmp_path, capsys):
    model = factorizer(sweeps=2).fit(TRIPLES, verbose=True, log_dir=tmp_path)
    assert "objective" in capsys.readouterr().out
    [events] = tmp_path.iterdir()
    logged = {
        (value.tag, event.step): float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    expected = {
        (name, step): value
        for step, values in enumerate(model.history_)
        for name, value in values.items()
    }
    assert logged == pytest.approx(expected)


def test_progress_has_each_row_of_a_sweep(monkeypatch):
    reported = []
    monkeypatch.setattr(progress.Reporter, "advance", lambda self, rows: reported.append(rows))
    model = factorizer(sweeps=2).fit(TRIPLES)
    assert sum(reported) == 2 * (len(model.user_factors_) + len(model.item_factors_))


@pytest.mark.long
def test_rows_of_many_factors_take_conjugate_gradient_steps_by_default():
    def found(**settings):
        return factorizer(sweeps=2, **settings).fit(TRIPLES).user_factors_

    np.testing.assert_array_equal(found(num_factors=130), found(num_factors=130, cg_steps=3))
    np.testing.assert_array_equal(found(num_factors=128), found(num_factors=128, cg_steps=0))
    assert np.any(found(num_factors=130) != found(num_factors=130, cg_steps=0))


def test_factors_are_started_saved_and_loaded_without_a_second_copy(tmp_path):
    taken = np.arange(300_000), np.arange(300_000) % 1000
    model = factorizer(num_factors=64, dtype="float32")
    size = 301_000 * 64 * 4

    def peak(call):
        tracemalloc.start()
        call()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    def start():
        matrix = as_matrix(taken)
        model._learn(*model._factors(matrix.shape), matrix, (None, None), regularization_=0.05)

    assert peak(start) < 1.6 * size
    assert peak(lambda: model.save(tmp_path / "model")) < 0.5 * size
    assert peak(lambda: RGFactorizer.load(tmp_path / "model")) < 1.6 * size


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_factors": 0},
        {"cg_steps": -1},
        {"regularization": -1.0},
        {"dtype": "int8"},
    ],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="Received"):
        factorizer(**wrong)


def test_wrong_list_weights_are_refused():
    with pytest.raises(ValueError, match="`list_weights` must be 4 finite weights, not negative"):
        factorizer().fit(TRIPLES, list_weights=[1.0])
    with pytest.raises(ValueError, match=r"finite weights.* such as \[inf\]"):
        factorizer().fit(TRIPLES, list_weights=[1.0, 1.0, np.inf, 1.0])


@pytest.mark.long
@pytest.mark.parametrize("objective", [RG2(alpha=0.3), RGCross(alpha=0.2), WeightedSquare(2.0)])
def test_an_explanation_adds_up_to_the_score_of_an_exact_vector(objective):
    settings = {"popularity_exponent": 0.5, "count_exponent": 0.7, "dtype": "float64"}
    model = factorizer(objective=objective, sweeps=3, **settings).fit(TRIPLES)
    users = model.user_factors_.copy()
    solver = model._solver(model.seen_, None, SingleProcess(), model.regularization_)
    solver.renew_users(users, model.item_factors_)
    for user, item in ((1, 3), (0, 0), (3, 2)):
        found = model.explain(user, item)
        assert found.score == pytest.approx(users[user] @ model.item_factors_[item], rel=1e-9)
        assert sorted(found.items) == ITEMS[user == USERS].tolist()
        assert (np.diff(found.contributions) <= 0.0).all()


def test_alike_items_explain_a_score():
    train, _ = clusters()
    model = factorizer(objective=RG2(alpha=0.2), sweeps=5).fit(train)
    found = model.explain(0, 3)  # of the user's third
    alike = found.items % 3 == 0
    assert found.contributions[alike].mean() > 3.0 * found.contributions[~alike].mean()
    with pytest.raises(ValueError, match=r"`item` must lie from 0 to 59\. Received: 60"):
        model.explain(0, 60)


def test_weights_by_activity_are_weights_of_lists():
    train, _ = clusters()
    counts = np.diff(train.indptr)
    weights = counts**-0.5
    given = weights * counts.sum() / (counts @ weights)
    by_hand = factorizer(sweeps=3).fit(train, list_weights=given)
    model = factorizer(sweeps=3, activity_exponent=0.5).fit(train)
    np.testing.assert_allclose(model.item_factors_, by_hand.item_factors_, rtol=1e-5, atol=1e-7)
    double = factorizer(sweeps=3, activity_exponent=0.5).fit(train, list_weights=np.full(120, 2.0))
    assert np.any(double.item_factors_ != model.item_factors_)


def test_contributions_add_up_to_the_score_of_a_weighted_user():
    train, _ = clusters()
    model = factorizer(sweeps=60, activity_exponent=0.5, dtype="float64").fit(train)
    told = model.explain(4, 1)
    score = model.user_factors_[4] @ model.item_factors_[1]
    assert told.score == pytest.approx(score, rel=5e-3)


def test_tune_fits_the_best_settings_and_sweeps_to_all_interactions():
    train, _ = clusters()
    search = {"regularization": [0.05, 100.0], "objective": [RG2(alpha=0.2), RGCross(alpha=0.2)]}
    start = factorizer(sweeps=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of vectors that are nearly 0
        model, trials = tune(start, train, search, held_out=0.2)
    *trials, popular = trials
    assert len(trials) == 4
    values = [trial["ndcg@10"] for trial in trials]
    assert popular.keys() == {"sweeps", "ndcg@10", "recall@10", "mrr@10"}
    assert popular["ndcg@10"] < values[0]
    assert values == sorted(values, reverse=True)
    assert trials[0]["regularization"] == 0.05
    assert start.arguments()["sweeps"] == 6
    straight = factorizer(
        regularization=0.05, objective=trials[0]["objective"], sweeps=trials[0]["sweeps"]
    ).fit(train)
    np.testing.assert_array_equal(model.item_factors_, straight.item_factors_)
    assert model.seen_.nnz == train.nnz
    again = tune(start, train, {"regularization": [0.05, 0.1]}, trials=1, seed=3)[1]
    assert again == tune(start, train, {"regularization": [0.05, 0.1]}, trials=1, seed=3)[1]


def test_tune_holds_the_latest_interactions_out_and_tells_if_popular_items_are_better():
    """Early tastes are of clusters; later, everybody takes one of the popular items."""
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 40, 800), rng.integers(10, 60, 800)
    late = np.repeat(np.arange(40), 2), np.tile([0, 1], 40)
    popular = np.repeat(np.arange(100, 140), 2), np.tile([0, 1], 40)  # of other users, before
    columns = [np.concatenate(x) for x in zip((users, items), popular, late, strict=True)]
    order = rng.permutation(len(columns[0]))
    times = np.arange(len(order)).astype("datetime64[s]")[order]
    taken = tuple(x[order] for x in columns)
    search = {"regularization": [10.0]}
    with pytest.warns(UserWarning, match="no trial is better than the most popular"):
        _, trials = tune(factorizer(), taken, search, held_out=80 / len(order), times=times)
    assert trials[-1]["recall@10"] == 1.0
    with pytest.raises(ValueError, match=r"`times` must have .* Received: shape \(3,\)"):
        tune(factorizer(), taken, search, times=[1, 2, 3])


@pytest.mark.parametrize(("search", "options", "message"), refusals.of("als_searches"))
def test_searches_without_sense_are_refused(search, options, message):
    with pytest.raises(ValueError, match=message):
        tune(factorizer(), TRIPLES, search, **options)


def test_no_items_to_choose_from_and_gains_taken_back():
    model = factorizer().fit(TRIPLES)
    ids, scores = model.recommend([0, 1], k=2, items=[])
    assert ids.tolist() == [[-1, -1]] * 2
    assert np.all(scores == -np.inf)
    model.partial_fit(([0], [1], [0.0]))
    assert model.seen_[0].indices.tolist() == [0]
