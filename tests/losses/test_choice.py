"""The choice of a loss by sensitivity: what it promises for every score and width."""

import json
from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, losses
from tfrank_sel.losses.selective.design import Wanted

every_wish = pytest.mark.parametrize("wanted", get_args(Wanted))


@every_wish
@pytest.mark.parametrize(("at", "width"), [(0.0, 3.0), (2.5, 0.25), (-100.0, 40.0)])
@pytest.mark.parametrize("ranking", [True, False])
def test_the_loss_is_as_sensitive_as_wanted(
    wanted: Wanted, at: float, width: float, ranking: bool
) -> None:
    choice = losses.design(wanted, at=at, width=width, ranking=ranking)
    assert choice.verdict.is_convex
    if wanted != "clip_low":
        assert wanted in choice.verdict.measured
    ranks = ranking and wanted != "low_norm"
    assert choice.verdict.ranks == ranks
    is_valid = ranks or wanted == "low_norm"
    assert choice.verdict.status == ("valid" if is_valid else "region_only")
    assert f"{at:g}" in choice.reason
    assert wanted in choice.reason


@every_wish
@pytest.mark.usefixtures("eagerly")
def test_errors_that_matter_cost_more(wanted: Wanted) -> None:
    loss = losses.design(wanted, ranking=True, reduction="none", dtype="float64").loss
    s = np.tile([-3.0, 0.0, 3.0], [3, 1])
    low, middle, high = loss(s, s + 0.01 * np.eye(3)).numpy()
    assert {
        "high_score": high > 3.0 * max(low, middle),
        "low_score": low > 3.0 * max(middle, high),
        "high_norm": min(low, high) > 3.0 * middle,
        "low_norm": middle > 3.0 * max(low, high),
        "clip_low": low == 0.0 < middle < high,
    }[wanted]


@every_wish
def test_the_loss_is_saved_and_finite_far_away(wanted: Wanted) -> None:
    loss = losses.design(wanted, at=1.0, label_map=links.labels.affine(1.5, -3.0)).loss
    y_true, y_pred = tf.constant([[0.0, 4.0, 2.0, -1.0]]), tf.constant([[1e4, -1e4, 0.0, 1e30]])
    saved = json.dumps(keras.saving.serialize_keras_object(loss))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert np.isfinite(loss(y_true, y_pred))
    assert loaded(y_true, y_pred) == loss(y_true, y_pred)


def test_what_a_loss_of_each_kind_is_sensitive_to() -> None:
    sigmoid = losses.SelectiveSigmoidLoss(links.Exp())
    assert losses.judge(sigmoid, "high_score").status == "region_only"
    flat = losses.MatchingLoss(links.Step())
    assert losses.judge(flat, "low_norm").measured == ()
    assert losses.judge(flat, "clip_low").status == "region_only"
    steep = losses.MatchingLoss(links.Exp(scale=20.0))  # nearly, but not quite flat
    assert losses.judge(steep, "clip_low", (-3.0, 0.0, 1.0)).status == "invalid"
    cosh = losses.SelectiveSoftmaxLoss(links.Cosh(), allow_nonconvex=True)
    verdict = losses.judge(cosh, "high_score")
    assert (verdict.status, verdict.measured) == ("invalid", ("high_score",))
    assert "not convex" in verdict.reason


def test_a_wish_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"must be one of high_score, .*Received: 'high'"):
        losses.design("high")  # type: ignore[arg-type]
    for width in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="`width` must be positive and finite"):
            losses.design("high_score", width=width)
