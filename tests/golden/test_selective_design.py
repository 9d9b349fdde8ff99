"""Replays the golden design table: which loss for which sensitivity, and what it measures."""

from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import vectors
from tests.golden.paper_links import link_of, scaling_of
from tests.golden.vectors import Case
from tfrank_sel import links, losses
from tfrank_sel.losses.choice import Wanted

SCORES = tf.constant([[-3.0, 0.0, 3.0]], tf.float64)
ROWS = vectors.contents("selective_design.json")["rows"]


def name_of(row: Case) -> str:
    return f"{row['desired']}-{row['loss']}-{(row.get('q') or row['link'])['kind']}"


def loss_of(row: Case) -> Any:
    if row["loss"] == "composite_softmax":
        gamma = float(row["gamma"])
        return losses.SelectiveSoftmaxLoss(scaling_of(row), gamma, allow_nonconvex=True)
    if row["loss"] == "composite_sigmoid":
        gamma = float(row["gamma"])
        return losses.SelectiveSigmoidLoss(scaling_of(row), gamma, allow_nonconvex=True)
    if row["loss"] == "scalar":
        return losses.MatchingLoss(link_of(row["link"], row), allow_nonconvex=True)
    assert row["loss"] == "decomposed", f"no replay for the loss {row['loss']!r}"
    return losses.DecomposedMatchingLoss(link_of(row["link"], row), allow_nonconvex=True)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_replay(row: Case) -> None:
    verdict = losses.judge(loss_of(row), row["desired"])
    assert (verdict.status, list(verdict.measured)) == (row["status"], row["measured"])
    assert verdict.is_convex == row["convex_jointly"]
    assert verdict.ranks == row["ranking_sensitive"]
    for actual, expected in zip(verdict.sensitivities, row["sens_at_minus3_0_3"], strict=True):
        assert actual == pytest.approx(expected, rel=1e-10, abs=0.0)
    if "p_at_minus3_0_3" in row:
        link = links.CompositeSoftmax(scaling_of(row), float(row["gamma"]), allow_nonconvex=True)
        p = link.probabilities(SCORES, tf.ones([1, 3], tf.bool), tf.ones([1, 3], tf.float64))
        np.testing.assert_allclose(p[0], row["p_at_minus3_0_3"], rtol=1e-10)


@pytest.mark.parametrize("wanted", sorted({row["desired"] for row in ROWS}))
def test_the_choice_is_one_of_the_valid_rows(wanted: Wanted) -> None:
    assert wanted in get_args(Wanted)
    choice = losses.design(wanted, ranking=wanted != "low_norm")
    assert choice.verdict.status == "valid"
    rows = [row for row in ROWS if row["desired"] == wanted and row["status"] == "valid"]
    if isinstance(choice.loss, losses.SelectiveSoftmaxLoss):
        assert isinstance(choice.loss.scaling, links.Scaled)
        chosen: tuple[str, links.Link] = ("composite_softmax", choice.loss.scaling.link)
    else:
        chosen = ("decomposed", choice.loss.link)
    assert (chosen[0], type(chosen[1])) in {
        (row["loss"], type(link_of(row.get("q") or row["link"], row))) for row in rows
    }
