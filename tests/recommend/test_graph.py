"""The SavedModel of a recommender answers as `recommend`, item by item, also by a server."""

import json
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

from tests.recommend.made import QUICK, rows, taken
from tests.recommend.test_recommender import HOSTILE
from tfrank_sel import export
from tfrank_sel.recommend import Encoder, Factors, Popular, Recommender, Source, Successors
from tfrank_sel.recommend.scores import Scores
from tfrank_sel.serving.endpoint import Endpoint, ModelConfig

TAKEN = taken()
ITEMS = {"item": TAKEN.item_ids[2:], "price": [*range(27), None], "brand": ["a", "b", "", "c"] * 7}
USERS = {"user": TAKEN.user_ids[:80], "age": [*range(79), None], "town": ["x", "y", "z", ""] * 20}
ITEMS["none"], USERS["none"] = [""] * 28, [""] * 80
COLUMNS = {"items": ITEMS, "users": USERS}


def fitted(sources=QUICK, columns=False, **options):
    recommender = Recommender(sources, num_trees=20, num_threads=1, **options)
    return recommender.fit(rows(TAKEN), **(COLUMNS if columns else {}))


def loaded(recommender, path, k=12):
    recommender.export(path / "model", k)
    return tf.saved_model.load(path / "model").signatures


def padded(texts):
    return tf.ragged.constant(texts, dtype=tf.string).to_tensor("")


def check(answer, recommender, *given, k=12, **options):
    """Whether scores are equal to the rounding of float32, and items where scores differ."""
    ids, scores = recommender.recommend(*given, k=99, **options)
    answered, items = (
        answer["scores"].numpy(),
        np.char.decode(answer["items"].numpy().astype("S"), "utf-8"),
    )
    is_item = ids[:, :k] != ""
    assert is_item.any()
    assert np.all(answered[~is_item] == np.float32(export.PADDING_SCORE))
    np.testing.assert_array_equal(items == "", ~is_item)
    for own, best, row, values in zip(ids, scores, items, answered, strict=True):
        there = row != ""
        score_of = dict(zip(own, best, strict=True))
        for close in (values[there], [score_of[x] for x in row[there]]):
            np.testing.assert_allclose(close, best[:k][there], rtol=1e-5, atol=1e-6)
        assert len({*row[there]}) == there.sum()
        gaps = np.diff(np.maximum(best[: k + 1], -1e9), prepend=np.inf)
        is_apart = gaps < -1e-5
        is_apart[:-1] &= is_apart[1:]
        is_apart = is_apart[:k] & there
        np.testing.assert_array_equal(row[is_apart], own[:k][is_apart])


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_a_user_of_the_fit_is_answered_the_same(repeats, columns, tmp_path):
    recommender = fitted(repeats=repeats, columns=columns)
    served = loaded(recommender, tmp_path)["serving_default"]
    users = [*TAKEN.user_ids, "nobody"]
    check(served(tf.constant(users)), recommender, users)
    for user in ("u17", "nobody"):  # alone, as a server asks
        check(served(tf.constant([user])), recommender, [user])


def test_histories_and_exclusions_of_a_request_are_those_of_recommend(tmp_path):
    recommender = fitted(columns=True)
    served = loaded(recommender, tmp_path)["recommend"]
    own = {
        "new": ["i5", "i6", "i7"],
        "u3": ["i9", "no item", "i9", "i2"],  # a user of the fit, since when he took others
        "": [*TAKEN.item_ids[TAKEN.items[:200] - 1]],
        "strange": ["no item"],
        "u4": ["no item", "i4"],
    }
    table = [(user, item, t) for user, items in own.items() for t, item in enumerate(items)]
    table = dict(zip(("user", "item", "time"), zip(*table, strict=True), strict=True))
    out = ["i8", "no item", "i20"]
    answer = served(
        user=tf.constant([*own]), history=padded([*own.values()]), exclude=padded([out] * len(own))
    )
    named = {**table, "user": [user or "?" for user in table["user"]]}
    users = [user or "?" for user in own]
    check(answer, recommender, users, histories=named, exclude={"item": out})
    assert not {x.encode() for x in out} & {*answer["items"].numpy().ravel()}
    # of a user without items in the request, the history is that of the fit
    histories, none = padded([["", ""], ["", "i5"]]), padded([[""], ["i1"]])
    answer = served(user=tf.constant(["u3", ""]), history=histories, exclude=none)
    check({name: x[:1] for name, x in answer.items()}, recommender, ["u3"])


OTHERS = [
    (Popular(count=3),),
    (Factors(num_factors=70), Successors()),
    (Encoder(count=9, num_factors=16, max_length=4, epochs=1), Popular()),
]


@pytest.mark.parametrize("sources", OTHERS)
def test_other_sources_are_answered_the_same(sources, tmp_path):
    """Of more items than factors, and than candidates; and of one retriever alone."""
    recommender = fitted(sources)
    served = loaded(recommender, tmp_path, 40)["serving_default"]
    check(served(tf.constant(TAKEN.user_ids.tolist())), recommender, k=40)


def test_ids_are_texts_as_they_are(tmp_path):
    items = [HOSTILE[(i + t) % len(HOSTILE)] for i in range(len(HOSTILE)) for t in range(6)]
    users = [x for x in HOSTILE for _ in range(6)]
    table = {"user": users, "item": items, "time": [*range(len(users))]}
    columns = {"item": HOSTILE, "a|b\n": [*range(len(HOSTILE))], "{[:,]}": HOSTILE, "": HOSTILE}
    recommender = Recommender((Successors(count=9), Popular(count=5)), num_trees=5)
    recommender.fit(table, items=columns)
    served = loaded(recommender, tmp_path, 3)["serving_default"]
    check(served(tf.constant([*HOSTILE, "é "])), recommender, [*HOSTILE, "é "], k=3)


def test_a_server_answers_it_and_refuses_one_that_is_damaged(tmp_path):
    recommender = fitted()
    recommender.export(tmp_path / "model", 3)
    export.publish(tmp_path / "model", tmp_path / "served", 1)
    with Endpoint([ModelConfig("items", tmp_path / "served")]) as endpoint:
        url = f"http://127.0.0.1:{endpoint.rest_port}/v1/models/items:predict"

        def ask(**body):
            with urllib.request.urlopen(url, json.dumps(body).encode()) as response:
                return [x["items"] for x in json.load(response)["predictions"]]

        ids, _ = recommender.recommend(["u3", "nobody"], k=3)
        assert ask(instances=["u3", "nobody"]) == ids.tolist()
        request = {"user": "u3", "history": [], "exclude": []}
        assert ask(signature_name="recommend", instances=[request]) == ids[:1].tolist()
        request = {"user": "", "history": ["i5", "i6"], "exclude": ["i7"]}
        new = {"user": ["n", "n"], "item": ["i5", "i6"], "time": [1, 2]}
        ids, _ = recommender.recommend(histories=new, k=3, exclude={"item": ["i7"]})
        assert ask(signature_name="recommend", instances=[request]) == ids.tolist()
    [variables] = (tmp_path / "served" / "1").glob("variables/*.data*")
    variables.write_bytes(b"damaged!" + variables.read_bytes()[8:])
    with pytest.raises(ValueError, match="must have the content that was written"):
        export.publish(tmp_path / "served" / "1", tmp_path / "others", 1)


class Other(Source):
    """A retriever whose scores are computed by NumPy alone."""

    def learn(self, taken, num_threads):
        return {}

    def scores(self, histories) -> dict[str, Scores]:
        class Unknown(Scores):
            def at(self, users, items):
                return np.zeros(len(users), np.float32)

        return {"zero": Unknown()}


def test_what_has_no_graph_is_refused(tmp_path):
    recommender = fitted((*QUICK, Other()))
    with pytest.raises(ValueError, match=r"needs scores of `recommend.scores`.*Unknown"):
        recommender.export(tmp_path / "model")
    with pytest.raises(ValueError, match="`k` must be positive"):
        recommender.export(tmp_path / "model", 0)
    with pytest.raises(AttributeError, match="must be set by `fit`"):
        Recommender().export(tmp_path / "model")
    assert not [*tmp_path.iterdir()]


def test_inputs_of_different_batch_sizes_are_refused(tmp_path):
    served = loaded(fitted((Popular(count=3),)), tmp_path)["recommend"]
    one, two = padded([["i1"]]), padded([["i1"], [""]])
    for user, history, exclude in (("ab", one, two), ("ab", two, one), ("a", two, one)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must have as many rows"):
            served(user=tf.constant([*user]), history=history, exclude=exclude)
