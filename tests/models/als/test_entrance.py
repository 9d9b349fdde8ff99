"""Interactions at the entrance: narrow dtypes, gaps, new interactions, unknown users."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from tests.models.als.test_factorizer import ITEMS, USERS
from tfrank_sel.data import InputError
from tfrank_sel.models.als import RG2, RGCross, RGFactorizer
from tfrank_sel.models.als.interactions import as_matrix

NARROW = (np.bool_, np.uint8, np.int8, np.float16, np.int16, np.uint16, np.int64, np.float64)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("layout", ["tuple", "coo", "csr", "csc"])
def test_duplicates_are_summed_in_a_wide_type(dtype, layout):
    gains = np.full(400, 1 if dtype is np.bool_ else 100, dtype)
    users, items = np.zeros(400, int), np.zeros(400, int)
    given = (users, items, gains)
    if layout != "tuple" and dtype is np.float16:
        pytest.skip("SciPy has no matrices of float16")
    if layout != "tuple":
        given = sparse.coo_matrix((gains, (users, items)), (1, 1))
    if layout in ("csr", "csc"):  # compressed by hand, with duplicates
        kind = sparse.csr_matrix if layout == "csr" else sparse.csc_matrix
        given = kind((gains, users, np.array([0, 400])), (1, 1))
    assert as_matrix(given)[0, 0] == 400.0 * float(gains[0])


@pytest.mark.parametrize("objective", [RG2(alpha=0.1), RGCross(alpha=0.1)])
def test_rows_without_new_interactions_are_kept(objective):
    rng = np.random.default_rng(0)
    old = np.unique(np.stack([rng.integers(0, 20, 90), rng.integers(0, 9, 90)]), axis=1)
    model = RGFactorizer(objective, num_factors=3, sweeps=2).fit(tuple(old))
    users, items = model.user_factors_.copy(), model.item_factors_.copy()
    shape = model.seen_.shape
    model.partial_fit((np.array([3, 22, 22]), np.array([1, 1, 10])), sweeps=2)
    others = np.setdiff1d(np.arange(shape[0]), [3])
    np.testing.assert_array_equal(model.user_factors_[others], users[others])
    rest = np.setdiff1d(np.arange(shape[1]), [1])
    np.testing.assert_array_equal(model.item_factors_[rest], items[rest])
    assert np.abs(model.user_factors_[[3, 22]]).max(axis=1).min() > 0.0
    assert model.seen_.shape == (23, 11)
    assert all(model.seen_[user, item] for user, item in old.T)


def test_all_interactions_again_are_a_sweep():
    rng = np.random.default_rng(1)
    given = (np.arange(60) % 12, rng.integers(0, 5, 60))
    one, two = (RGFactorizer(num_factors=3, sweeps=x).fit(given) for x in (2, 3))
    one.partial_fit(given)
    np.testing.assert_allclose(one.user_factors_, two.user_factors_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("place", [0, 1])
def test_identifiers_with_large_gaps_are_refused(place):
    columns = [np.arange(50), np.arange(50)]
    columns[place] = 8_000_000 - columns[place]
    with pytest.raises(ValueError, match=r"indices up to 8000000.*Pass a frame"):
        as_matrix(tuple(columns))


@pytest.mark.long
def test_one_new_interaction_of_a_large_fit_is_no_gap():
    count = 100_020
    users, items = np.arange(count), np.zeros(count, int)
    for fit, more in (
        ({"user": users, "item": items}, {"user": [count - 1], "item": [1]}),
        ((users, items), (users[-1:], items[-1:] + 1)),
    ):
        model = RGFactorizer(num_factors=1, sweeps=1, regularization=0.1).fit(fit)
        model.partial_fit(more)
        assert model.seen_[count - 1].nnz == 2


@pytest.mark.parametrize("time", [["soon"] * 3, [None] * 3])
def test_what_is_not_used_is_not_read(time):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"user": [0, 0, 1], "item": [0, 1, 1], "time": time})
    frame["complex"] = [1j] * 3
    frame["sparse"] = pd.arrays.SparseArray([0.0, 1.0, 0.0])
    frame["rating"] = [1.0, 2.0, 3.0]
    frame.insert(6, "title", ["x"] * 3)
    frame.insert(6, "title", ["y"] * 3, allow_duplicates=True)
    model = RGFactorizer(num_factors=1, sweeps=1, regularization=0.1)
    for call in (model.fit, model.partial_fit):
        with pytest.warns(UserWarning, match=r"columns \[.*'rating'\], which are left out"):
            call(frame)
    assert model.seen_.shape == (2, 2)
    with pytest.raises(ValueError, match="'time' must be"):
        RGFactorizer(num_factors=1, sweeps=1).fit(frame[["user", "item", "time"]])


def test_a_user_without_interactions_is_refused():
    model = RGFactorizer(num_factors=2, sweeps=1).fit((np.array([0, 2]), np.array([0, 1])))
    with pytest.raises(ValueError, match=r"without interactions \[1\].*popular"):
        model.recommend([0, 1], k=1)


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("wrong", [1.5, np.nan, np.inf, 1e30])
def test_numbers_that_are_no_indices_are_refused(column, wrong):
    rows = np.ones([3, 3])
    rows[1, column] = wrong
    with pytest.raises(ValueError, match="must be integers from 0, or ids in a frame"):
        RGFactorizer().fit(rows)


def test_columns_of_users_and_items_may_be_named(tmp_path):
    plain = {"user": ["a", "a", "b", "c"], "item": [7, 8, 8, 9], "gain": [1.0, 2.0, 1.0, 3.0]}
    names = {"user": "userId", "item": "item id"}
    named = {names.get(x, x): y for x, y in plain.items()} | {"user": [1, 2, 3, 4]}
    one, other = (RGFactorizer(num_factors=2, sweeps=2, regularization=0.1) for _ in range(2))
    one.fit(plain, plain).partial_fit({"user": ["d"], "item": [7]})
    with pytest.warns(UserWarning, match=r"columns \['user'\], which are left out"):
        other.fit(named, named, **names)
    assert other.history_[0]["ndcg@10"] == one.history_[0]["ndcg@10"]
    other.save(tmp_path / "model")
    other = RGFactorizer.load(tmp_path / "model")
    other.partial_fit({"item id": [7], "userId": ["d"]})  # by the names of the fit
    np.testing.assert_array_equal(one.recommend("d", k=3)[0], other.recommend("d", k=3)[0])
    np.testing.assert_array_equal(one.user_factors_, other.user_factors_)
    with pytest.raises(ValueError, match="must have columns `userId`"):
        other.partial_fit({"i": [1], "u": ["a"]})
    for given, columns in ((plain, names), (named, {"user": "userId", "item": "userId"})):
        with pytest.raises(ValueError, match=r"must have columns `userId`, .* by `user=`"):
            other.fit(given, **columns)
    with pytest.raises(ValueError, match=r"name columns: .* Received: tuple"):
        other.fit((np.arange(3), np.arange(3)), **names)


@pytest.mark.parametrize("name", ["rating", "count", "timestamp"])
def test_numbers_that_have_no_role_are_warned_of(name):
    columns = [0, 0, 1], [0, 1, 1], [5.0, 1.0, 3.0]
    named = dict(zip(("user", "item", name), columns, strict=True))
    for frame in (pytest.importorskip("pandas").DataFrame(named), named):
        with pytest.warns(UserWarning, match=rf"columns \['{name}'\], which are left out: rename"):
            assert as_matrix(frame).data.tolist() == [1.0] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gains = {"user": columns[0], "item": columns[1], "gain": columns[2], "title": ["x"] * 3}
        assert as_matrix(gains).data.tolist() == [5.0, 1.0, 3.0]


@pytest.mark.parametrize(
    "times",
    [8.8e8 + USERS, 20240110 + USERS, 19752 + USERS, np.datetime64("2024-01-10") + USERS],
    ids=str,
)
def test_times_are_no_gains_unless_they_are_named_so(times):
    frame = pytest.importorskip("pandas").DataFrame({"u": USERS, "i": ITEMS, "rated": times})
    with pytest.raises(ValueError, match=r"as third column.* Received: 'rated', such as"):
        as_matrix(frame)
    named = frame.set_axis(["user", "item", "time"], axis=1)
    assert as_matrix(named).nnz == len(USERS)
    named = frame.set_axis(["user", "item", "gain"], axis=1)
    if times.dtype.kind == "M":
        with pytest.raises(InputError, match="a column 'gain' that can be of type number"):
            as_matrix(named)
    else:
        assert as_matrix(named).nnz == len(USERS)
