"""A factorisation as a SavedModel answers the ids of users as `recommend`."""

import json
import pathlib
import urllib.request

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tfrank_sel import export
from tfrank_sel.models import SequenceEncoder
from tfrank_sel.models.als import RGCross, RGFactorizer, ids
from tfrank_sel.serving.endpoint import Endpoint, ModelConfig


def fitted(named: bool) -> RGFactorizer:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 300), rng.integers(0, 12, 300)
    users, items = np.append(users, [31] * 12), np.append(items, range(12))  # 31 took all, 30 none
    model = RGFactorizer(RGCross(0.2), num_factors=4, regularization=0.3)
    if named:
        return model.fit(pd.DataFrame({"user": [f"ü{x}" for x in users], "item": items * 10}))
    return model.fit((users, items))


@pytest.mark.sample(2)
@pytest.mark.parametrize("named", [True, False])
def test_it_answers_as_recommend(named: bool, tmp_path: pathlib.Path) -> None:
    model = fitted(named)
    export.factorization(model, tmp_path / "model", k=7)
    served = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    users = np.arange(30) if model.user_ids_ is None else model.user_ids_
    texts = [str(x) for x in users]
    answer = served(tf.constant([*texts, "unknown", *([] if named else ["30"])]))
    items, scores = model.recommend(users, k=7)
    expected = [["" if x == -1 else str(x) for x in row] for row in items]
    answered = [[x.decode() for x in row] for row in answer["items"].numpy()]
    assert answered[: len(users)] == expected
    assert any("" in row for row in expected)  # of the user who took most
    there = np.isfinite(scores)
    np.testing.assert_allclose(answer["scores"].numpy()[: len(users)][there], scores[there], 1e-4)
    assert {x for row in answered[len(users) :] for x in row} == {""}


def test_the_endpoint_serves_it(tmp_path: pathlib.Path) -> None:
    model = fitted(named=True)
    export.factorization(model, tmp_path / "model", k=3)
    export.publish(tmp_path / "model", tmp_path / "served", 1)
    with Endpoint([ModelConfig("items", tmp_path / "served")]) as endpoint:
        url = f"http://127.0.0.1:{endpoint.rest_port}/v1/models/items:predict"
        body = json.dumps({"instances": ["ü3", "ü4"]}).encode()
        with urllib.request.urlopen(url, body) as response:
            answers = json.load(response)["predictions"]
    expected = model.recommend(["ü3", "ü4"], k=3)[0]
    assert [[int(x) for x in answer["items"]] for answer in answers] == expected.tolist()


def test_what_cannot_be_answered_is_refused(tmp_path: pathlib.Path) -> None:
    model = fitted(named=True)
    with pytest.raises(ValueError, match="`k` must be positive"):
        export.factorization(model, tmp_path / "model", k=0)
    model._numberings = (model._numberings[0], ids.Numbering(np.array(["1"] * 12)))
    with pytest.raises(ValueError, match=r"the ids of items.*12 different texts"):
        export.factorization(model, tmp_path / "model")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("wrong", [b"7", 7.0, None, tf.constant("7")], ids=repr)
def test_ids_of_items_are_texts_or_integers(wrong: object, tmp_path: pathlib.Path) -> None:
    """Else the text of a value would be that of its type in Python."""
    with pytest.raises(ValueError, match="`item_ids` must be texts, or integers"):
        export.next_items(SequenceEncoder(2, 4), ["x", wrong], tmp_path / "model")  # type: ignore
