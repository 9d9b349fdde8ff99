"""Ids of the users and items of a frame."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from tfrank_sel import artefacts
from tfrank_sel.models.als import RGFactorizer
from tfrank_sel.models.als.ids import Numbering, number_ids
from tfrank_sel.models.als.interactions import read


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
@pytest.mark.parametrize(
    "name_of", [lambda i: f"id {i:02}", lambda i: 8_000_000 - 7 * i], ids=["texts", "integers"]
)
def test_ids_of_a_frame_come_back_in_every_method(tmp_path, kind, name_of):
    library = pytest.importorskip(kind)
    frame = {"pandas": "DataFrame", "pyarrow": "table"}[kind]

    def named(users, items):
        return getattr(library, frame)({"who": list(map(name_of, users)), "what": items})

    users, items = np.random.default_rng(0).integers(0, 9, (2, 60))
    users, items = np.append(users, range(9)), np.append(items, range(9))
    number = np.array([name_of(i) for i in range(9)])
    place = np.argsort(np.argsort(number))
    plain = RGFactorizer(num_factors=3, sweeps=3).fit((place[users], items))
    model = RGFactorizer(num_factors=3, sweeps=3).fit(
        named(users, items), named(users[:5], items[:5])
    )
    model.save(tmp_path / "model")
    for one in (model, RGFactorizer.load(tmp_path / "model")):
        np.testing.assert_array_equal(one.user_factors_, plain.user_factors_)
        best, scores = one.recommend(number[[4, 2]], k=3)
        expected, values = plain.recommend(place[[4, 2]], k=3)
        np.testing.assert_array_equal(best, expected)
        np.testing.assert_array_equal(scores, values)
        alike, _ = one.similar_users(number[1], k=8)
        assert {*alike.tolist(), number[1]} == {*number.tolist()}
        explained = one.explain(number[3], 1)
        assert explained.score == pytest.approx(plain.explain(place[3], 1).score, rel=1e-6)
    with pytest.raises(ValueError, match=r"`users` must be ids of the fit\. Received: "):
        model.recommend([name_of(10)])
    with pytest.raises(ValueError, match="must be a frame of ids"):
        model.partial_fit((users, items))
    model.partial_fit(named([3, 20], [1, 2]))
    assert model.user_ids_.tolist()[-1] == name_of(20)
    assert model.recommend(name_of(20), k=2)[0].shape == (2,)


def test_ids_of_any_type_follow_a_fit_of_none():
    nothing = Numbering(np.zeros(0, np.int64))
    assert nothing.find("users", np.array(["a", "b"], object)).tolist() == [-1, -1]
    for column in (pa.array(["b", "a"]), pa.array([2, 1])):
        codes, known = number_ids("users", column, "table", nothing)
        assert known.ids[codes].tolist() == column.to_pylist()


@pytest.mark.sample(4)
@pytest.mark.parametrize("of_more", ["int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("of_fit", ["int8", "uint8", "int64", "uint64"])
def test_integers_of_any_types_are_kept_exactly(of_fit, of_more):
    pd = pytest.importorskip("pandas")
    limit, more = (min(np.iinfo(x).max, 2**63 - 1) for x in (of_fit, of_more))
    users = np.array([limit - 1, limit - 2, limit], of_fit)
    model = RGFactorizer(num_factors=2, sweeps=1).fit(pd.DataFrame({"u": users, "i": [0, 1, 2]}))
    model.partial_fit(pd.DataFrame({"u": np.array([more - 3], of_more), "i": [1]}))
    assert {*model.user_ids_.tolist()} == {*users.tolist(), more - 3}
    assert model.recommend(more - 3, k=2)[0].shape == (2,)


def test_floats_that_do_not_hold_each_integer_are_no_ids():
    model = RGFactorizer(num_factors=2, sweeps=1).fit({"user": [16777216, 12], "item": [0, 1]})
    for users in (np.float32([16777217]), [np.float32(16777217)], np.float32(16777217)):
        with pytest.raises(ValueError, match="without rounding"):
            model.recommend(users)
    for users in (np.float32([12]), [12.0], np.array([[12]], ">i4")[0], np.array(["12"])[:0]):
        assert model.recommend(users, k=1)[0].shape == (len(users), 1)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_a_missing_id_is_refused_in_any_encoding(kind):
    column = pa.array([1, None, 1], pa.int64()).cast(kind)
    for users in (column, column.dictionary_encode(), pa.compute.run_end_encode(column)):
        with pytest.raises(ValueError, match=r"interactions, row 1: 'user' must be .* nothing"):
            read(pa.table({"user": users, "item": [0, 1, 2]}))


@pytest.mark.parametrize("ids", [[1, 2], ["a", "b"]])
def test_no_interactions_are_told_whatever_the_ids(ids):
    model = RGFactorizer(num_factors=2, sweeps=1).fit({"user": ids, "item": ids})
    for call in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=r"must have at least one\. Received: none"):
            call({"user": [], "item": []})


def test_integers_beyond_the_type_of_the_fit_are_refused():
    pd = pytest.importorskip("pandas")
    frames = [
        pd.DataFrame({"u": np.array(users, np.uint64), "i": [0, 1]})
        for users in ([7, 2**63 - 1], [2**63 + 1, 2**64 - 1])
    ]
    small, large = (RGFactorizer(num_factors=2, sweeps=1).fit(frame) for frame in frames)
    assert large.user_ids_.tolist() == [2**63 + 1, 2**64 - 1]
    assert large.recommend(2**63 + 1, k=2)[0].tolist() == [1, -1]
    assert large.similar_users(2**63 + 1, k=2)[0].tolist() == [2**64 - 1] * 2  # -1 in uint64
    with pytest.raises(ValueError, match=r"no limits\. Received: from 922337203685477"):
        small.partial_fit(frames[1])
    with pytest.raises(ValueError, match=r"must be from 0 to .* Received: from -1 to -1"):
        large.recommend(-1)


UNUSUAL = {
    "floats": ([12.0, 7.0, 12.0], [7, 12]),
    "nullable": (pa.array([12, None, 7], pa.int64()).fill_null(12), [7, 12]),
    "beyond 64 bits": ([2**70, 7, 7], ["1180591620717411303424", "7"]),
    "a NUL at the end": (["a", "a\0", "a"], ["a", "a\0"]),
    "categories": (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
    "zeros": (["7", "007", "7.0"], ["007", "7", "7.0"]),
    "dates": (
        np.array(["2024-02-29", "2024-01-01", "2024-02-29"], "M8[s]"),
        ["2024-01-01", "2024-02-29"],
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_ids_are_as_in_all_tables(name, tmp_path):
    users, expected = UNUSUAL[name]
    model = RGFactorizer(num_factors=2, sweeps=1).fit({"user": users, "item": [0, 1, 2]})
    assert model.user_ids_.tolist() == expected
    model.save(tmp_path / "model")
    for one in (model, RGFactorizer.load(tmp_path / "model")):
        assert one.user_ids_.tolist() == expected
        assert one.recommend(expected, k=1)[0].shape == (len(expected), 1)


@pytest.mark.parametrize("wrong", [None, float("nan"), "", "\ud800", 1.5, 2.0**60])
def test_what_identifies_nobody_is_refused_with_its_row(wrong):
    users = ["a", "b", wrong] if isinstance(wrong, str | None) else [1.0, 2.0, wrong]
    place = "" if wrong == 1.5 else "interactions, row 2: "
    with pytest.raises(ValueError, match=f"{place}.*user.* must be .*Received: "):
        RGFactorizer(num_factors=2).fit({"user": users, "item": ["x", "y", "z"]})


def test_one_long_id_costs_its_own_length():
    users = np.array([f"u{i}" for i in range(20_000)], object)
    users[7] = "x" * 2_000
    tracemalloc.start()
    try:
        read({"user": users, "item": np.arange(20_000)})
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_texts_that_were_saved_in_a_fixed_width_are_loaded(tmp_path):
    model = RGFactorizer(num_factors=2, sweeps=1).fit({"user": ["b", "a"], "item": ["x", "y"]})
    model.save(tmp_path / "model")
    arrays = {**np.load(tmp_path / "model" / "arrays.npz")}
    old = {name: x for name, x in arrays.items() if not name.startswith(("user_ids", "item_ids"))}
    old |= {"user_ids": np.array(["a", "b"]), "item_ids": np.array(["x", "y"])}
    with artefacts.folder(tmp_path / "old", "RGFactorizer") as written:
        config = (tmp_path / "model" / "config.json").read_bytes()
        (written / "config.json").write_bytes(config)
        np.savez(written / "arrays.npz", **old)
    loaded = RGFactorizer.load(tmp_path / "old")
    assert loaded.user_ids_.tolist() == ["a", "b"]
    assert loaded.recommend("a", k=1)[0].tolist() == model.recommend("a", k=1)[0].tolist()


def test_validation_of_others_than_of_the_fit_is_told():
    rng = np.random.default_rng(0)
    taken = {"user": rng.integers(0, 9, 90), "item": rng.integers(0, 9, 90)}
    options = {"num_factors": 2, "sweeps": 2, "regularization": 0.1}
    held_out = {"user": [0, 1, 2], "item": [3, 4, 5]}
    alone = RGFactorizer(**options).fit(taken, held_out)
    with_others = {"user": [0, 1, 99, 2], "item": [3, 4, 5, 5]}
    with pytest.warns(UserWarning, match="1 of 4 interactions for validation are not among"):
        told = RGFactorizer(**options).fit(taken, with_others)
    assert told.history_ == alone.history_
    with pytest.raises(ValueError, match="at least half of the interactions for validation must"):
        RGFactorizer(**options).fit(taken, {"user": [0, 98, 99], "item": [3, 4, 5]})
