"""Two stages: no leak, the same answers in any company, hostile ids, and refusals in one line."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from tests.recommend.made import QUICK, rows, taken
from tfrank_sel import losses
from tfrank_sel.data import InputError
from tfrank_sel.metrics import NDCG
from tfrank_sel.recommend import Encoder, Popular, Recommender, Source, Successors, pairs
from tfrank_sel.recommend.scores import Scores, Sums, weigh

TAKEN = taken()
NEW = {"user": ["new"] * 3, "item": ["i5", "i6", "i7"], "time": [1, 2, 3]}


def make(sources=QUICK, **options):
    return Recommender(sources, num_trees=8, num_threads=1, **options)


@pytest.fixture(scope="module")
def fitted():
    return make().fit(TAKEN)


def lessons(recommender, of):
    WHOLE.append(of)
    sources = {type(x).__name__: x for x in recommender.sources}
    return [block for block, _ in recommender.lessons(sources, of)]


def leak(recommender, of):
    """The features that change with what users took later, by which the order is taught."""
    if recommender.later is None:
        is_later = np.append(np.diff(of.users) > 0, True)
    else:
        start = np.quantile(of.times, 1.0 - recommender.later)
        is_later = of.times >= start
    items = of.items.copy()
    items[is_later] = np.random.default_rng(0).permutation(items[is_later])
    assert np.any(items != of.items)
    before, after = (lessons(recommender, x) for x in (of, dataclasses.replace(of, items=items)))
    sources = {type(x).__name__: x.fit(of) for x in recommender.sources}
    names = pairs.names(sources, of)
    changed = set()
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.items, other.items)
        changed |= {names[i] for i in np.flatnonzero((one.features != other.features).any(axis=0))}
    return changed


WHOLE = []


class Leaking(Source):
    """A retriever that has seen all that users took, whatever it is given."""

    count: int = 0

    def learn(self, taken, num_threads):
        return {}

    def scores(self, histories) -> dict[str, Scores]:
        return {"last": Sums(weigh(WHOLE[-1].of_users(histories.user_ids), 1.0, 1))}


@pytest.mark.parametrize("later", [None, 0.2])
def test_no_feature_has_seen_what_was_taken_later(later):
    assert leak(make(later=later), TAKEN) == set()


def test_a_leak_that_is_planted_is_found():
    assert leak(make((*QUICK, Leaking())), TAKEN) == {"Leaking.last"}


def test_users_are_answered_the_same_one_by_one_and_together(fitted, monkeypatch):
    ids, scores = fitted.recommend(k=6)
    monkeypatch.setattr(pairs, "BLOCK", 7)
    again = fitted.recommend(k=6)
    np.testing.assert_array_equal(again[0], ids)
    np.testing.assert_array_equal(again[1], scores)
    for user in (0, 41, 89):
        alone = fitted.recommend([f"u{user}"], k=6)
        np.testing.assert_array_equal(alone[0][0], ids[user])
        np.testing.assert_array_equal(alone[1][0], scores[user])
    doubled = fitted.recommend(["u3", "u3"], k=6)[0]
    np.testing.assert_array_equal(doubled, ids[[3, 3]])


def test_two_fits_to_a_table_in_memory_and_to_its_file_are_equal(tmp_path):
    frame = pd.DataFrame(rows(TAKEN))
    frame.to_csv(tmp_path / "taken.csv", index=False)
    first, second = make().fit(frame), make().fit(str(tmp_path / "taken.csv"))
    for one, other in zip(first.recommend(k=4), second.recommend(k=4), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_users_have_and_what_is_excluded_is_left_out(fitted):
    histories = {
        user: {*TAKEN.item_ids[TAKEN.items[TAKEN.users == user] - 1]} for user in range(90)
    }
    ids, _ = fitted.recommend(k=30)
    for user, history in histories.items():
        assert not history & {*ids[user]}
    top = fitted.recommend(["u1", "u2"], k=2)[0]
    exclude = {"user": ["u1"], "item": [top[0, 0]]}
    others = fitted.recommend(["u1", "u2"], k=2, exclude=exclude)[0]
    assert others[0, 0] == top[0, 1]
    np.testing.assert_array_equal(others[1], top[1])
    for_all = fitted.recommend(["u1", "u2"], k=9, exclude={"item": [*top.ravel(), "no item"]})[0]
    assert not {*top.ravel()} & {*for_all.ravel()}
    own = [fitted.recommend([x], k=9, exclude={"item": top.ravel()})[0][0] for x in ("u1", "u2")]
    np.testing.assert_array_equal(for_all, own)
    out, common = fitted._exclusions(TAKEN, {"item": TAKEN.item_ids})  # linear in both
    assert (out.nnz, common.nnz) == (weigh(TAKEN).nnz, len(TAKEN.item_ids))
    pairs_of_all = [(user, item) for user in ("u1", "u2", "nobody") for item in top.ravel()]
    by_user = dict(zip(("user", "item"), zip(*pairs_of_all, strict=True), strict=True))
    np.testing.assert_array_equal(fitted.recommend(["u1", "u2"], k=9, exclude=by_user)[0], own)
    repeating = make(repeats=True).fit(TAKEN)
    ids, _ = repeating.recommend(k=9)
    assert any(histories[user] & {*ids[user]} for user in histories)


def test_a_user_without_a_history_gets_popular_items_and_a_new_one_those_of_his_history(fitted):
    ids, scores = fitted.recommend(["nobody", "u1"], k=3)
    window = next(iter(Popular(count=5).fit(TAKEN).learned.values()))[:, 0]
    assert {*ids[0]} <= {*TAKEN.item_ids[np.argsort(-window, kind="stable")[:5]]}
    assert np.isfinite(scores).all()
    new, _ = fitted.recommend(histories=NEW, k=3)
    assert new[0, 0] == "i8"
    nothing = fitted.recommend(histories={**NEW, "item": ["?", "?", "?"]}, k=3)
    np.testing.assert_array_equal(nothing[0], ids[:1])
    assert fitted.recommend("u1", k=3)[0].tolist() == ids[1:].tolist()


HOSTILE = [
    *("007", "7", " a", "a ", "ü\n", '"', '"q"', "'", "\\", "a,b", "a\tb", "a\0b", "{[:,]}"),
    *("../x", "e\u0301", "é", "1e5", "True", "nan", "NULL", "\ufeffa", "🍣", "=1", "x" * 100_000),
]


@pytest.mark.parametrize("suffix", ["", "csv", "tsv", "parquet", "jsonl"])
def test_ids_are_texts_as_they_are(suffix, tmp_path):
    count = len(HOSTILE)
    users = [x for x in HOSTILE for _ in range(6)]
    items = [HOSTILE[(i + t) % count] for i in range(count) for t in range(6)]
    frame = pd.DataFrame({"user": users, "item": items, "time": range(len(users))})
    columns = pd.DataFrame(
        {"item": HOSTILE, "a|b\n": range(count), "{[:,]}": HOSTILE, "ü": HOSTILE}
    )
    path = tmp_path / f"taken.{suffix}"
    source = str(path) if suffix else frame
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif suffix:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    recommender = make((Successors(count=9), Popular(count=5))).fit(source, items=columns)
    ids, _ = recommender.recommend(HOSTILE, k=3)
    for user, own in zip(HOSTILE, ids.tolist(), strict=True):
        has = {x for who, x in zip(users, items, strict=True) if who == user}
        assert {*own} <= {*HOSTILE} - has
    recommender.save(tmp_path / "saved")
    loaded = Recommender.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.recommend(HOSTILE, k=3)[0], ids)


def test_numbers_are_the_texts_that_files_have():
    numbers = {"user": [1, 2.0, 3] * 4, "item": [7, 8, 9.0] * 4, "time": range(12)}
    numbers["item"] = [7, 8, 9, 8, 9, 7, 9, 7, 8, 10, 10, 10]
    whole = make((Successors(), Popular())).fit(numbers)
    assert whole.taken_.user_ids.tolist() == ["1", "2", "3"]
    np.testing.assert_array_equal(whole.recommend([1.0, "2"])[0], whole.recommend(["1", 2])[0])
    beside = make((Successors(), Popular())).fit({**numbers, "user": ["1", 2, "c"] * 4})
    assert beside.taken_.user_ids.tolist() == ["1", "2", "c"]


def test_what_is_saved_answers_as_before(fitted, tmp_path):
    items = {"item": TAKEN.item_ids, "price": np.arange(30.0), "brand": ["a", "b", None] * 10}
    users = {"user": TAKEN.user_ids, "town": ["x", "y", "z"] * 30}
    with_columns = make(later=0.2, repeats=True).fit(rows(TAKEN), items=items, users=users)
    encoder = Encoder(num_factors=8, max_length=5, epochs=1)
    encoded = make((encoder, Popular())).fit(TAKEN)
    for i, recommender in enumerate((fitted, with_columns, encoded)):
        recommender.save(tmp_path / f"{i}")
        loaded = Recommender.load(tmp_path / f"{i}")
        for users, histories in ((None, None), (["u3", "nobody"], None), (None, NEW)):
            before, after = (x.recommend(users, histories=histories) for x in (recommender, loaded))
            np.testing.assert_array_equal(before[0], after[0])
            np.testing.assert_array_equal(before[1], after[1])
        assert loaded.get_config() == recommender.get_config()
    config = json.loads((tmp_path / "1" / "config.json").read_text())
    assert config["recommender"]["later"] == 0.2


def test_the_trees_take_our_losses():
    recommender = make((Successors(), Popular()), loss=losses.RGCrossLoss()).fit(TAKEN)
    assert recommender.recommend(histories=NEW, k=1)[0].tolist() == [["i8"]]
    assert recommender.get_config()["loss"]["class_name"] == "RGCrossLoss"


def test_quality_is_that_of_the_metric_over_all_items(fitted):
    later = taken(seed=1)
    later = dataclasses.replace(later, user_ids=np.append(TAKEN.user_ids[:-1], "stranger"))
    found = fitted.evaluate(later, k=5)
    ids, _ = fitted.recommend(later.user_ids, k=30)
    place = {item: i for i, item in enumerate(TAKEN.item_ids)}
    values = []
    for user, own in enumerate(ids):
        had = {*TAKEN.items[TAKEN.users == user]} if user < 89 else set()
        relevant = {*later.items[later.users == user]} - had
        if not relevant:
            continue
        labels = np.zeros(30, np.float32)
        labels[[x - 1 for x in relevant]] = 1.0
        scores = np.zeros(30, np.float32)
        scores[[place[x] for x in own if x]] = range(30, 30 - sum(own != ""), -1)
        values.append(float(NDCG(k=5)(labels[np.newaxis], scores[np.newaxis])))
    best = found["two stages"]
    assert best.users == len(values)
    assert best.ndcg.mean == pytest.approx(np.mean(values), rel=1e-5)
    assert best.ndcg.low < best.ndcg.mean < best.ndcg.high
    assert {"popularity", "successors of the last item", "Factors"} <= {
        x.model for x in found.qualities
    }
    every, *each = found.coverages
    assert every.share <= sum(x.share for x in each)
    assert all(x.adds <= x.share <= every.share for x in each)
    assert f"| {best.model} | {best.ndcg} |" in f"{found}"


def test_items_that_are_new_count_as_missed(fitted):
    later = {"user": ["u1", "u1", "u2"], "item": ["none", "i8", "none"], "time": [1, 1, 1]}
    found = fitted.evaluate(later, k=30)
    assert found["two stages"].users == 2
    assert found["two stages"].recall.mean <= 0.5
    _, *ends = found["two stages"].ndcg
    assert ends == [0.0, 1.0]  # two users are too few for an interval
    _, *ends = found["popularity"].gain
    assert ends == [-1.0, 1.0]
    rare = {x.group: x.users for x in found.qualities if "fewer than 3 times" in x.group}
    assert [*rare.values()] == [2]


LATER = {"user": ["u1"], "item": ["i8"], "time": [9]}
REFUSED = [
    (lambda _: Recommender([]), "`sources` must be of different classes, and .* Received: none"),
    (lambda _: Recommender([Popular(), Popular(count=3)]), "of different classes"),
    (lambda _: Recommender([Popular(count=0)]), "one must have candidates"),
    (lambda _: Recommender(later=1.0), r"`later` must be in \(0, 1\)"),
    (lambda _: make().fit({"user": ["a"], "item": ["b"]}), "table: expected a column 'time'"),
    (lambda _: make().fit({**LATER, "item": [None]}), "table, row 0: 'item' must be UTF-8 text"),
    (lambda _: make().fit({**LATER, "time": ["soon"]}), "table, row 0: 'time' must be a finite"),
    (lambda _: make().fit(LATER), "users must take later what is among their candidates"),
    (
        lambda _: make().fit(rows(TAKEN), items={"item": ["a", "b", "a"]}),
        "a row for each item.*'a'",
    ),
    (lambda _: make().fit(rows(TAKEN), users={"x": ["a"]}), "`users`: expected a column 'user'"),
    (lambda _: make().fit({**LATER, "user": [b"\xff"]}), "table, row 0: 'user' must be UTF-8 text"),
    (lambda x: x.recommend([""]), "`users`, row 0: 'user' must be UTF-8 text"),
    (lambda x: x.recommend(exclude={"user": ["u1"]}), "`exclude`: expected a column 'item'"),
    (lambda x: x.recommend(histories={"user": ["u1"]}), "table: expected a column 'item'"),
    (lambda x: x.recommend(k=0), "`k` must be positive"),
    (lambda x: x.evaluate({**LATER, "item": ["i1"], "user": ["u0"]}, k=0), "`k` must be positive"),
    (lambda _: Recommender().recommend(["a"]), "must be set by `fit` or `load` first"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[x for _, x in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(fitted, call, message):
    with pytest.raises((ValueError, TypeError, AttributeError), match=message) as refused:
        call(fitted)
    assert len(f"{refused.value}".splitlines()) == 1
    assert isinstance(refused.value, InputError) or "row" not in message
