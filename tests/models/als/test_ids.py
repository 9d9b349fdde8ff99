"""Ids of the users and items of a frame."""

import numpy as np
import pytest

from tfrank_sel.models.als import RGFactorizer


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
