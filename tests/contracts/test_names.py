"""Contracts of default names: unique for different formulas, and valid in all reports of Keras."""

import collections
import pathlib
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import EVERY_LOSS, EVERY_METRIC
from tfrank_sel import links, losses, metrics
from tfrank_sel.losses import lambdas
from tfrank_sel.ops import ranking

pytestmark = pytest.mark.usefixtures("eagerly")

RNG = np.random.default_rng(5)
FEATURES = RNG.normal(size=[8, 5, 3]).astype(np.float32)
LABELS = RNG.integers(0, 3, [8, 5]).astype(np.float32)


def ranker() -> keras.Model:
    inputs = keras.Input([5, 3])
    return keras.Model(inputs, keras.layers.Reshape([5])(keras.layers.Dense(1)(inputs)))


@pytest.mark.parametrize(
    "formulas",
    [
        [case.make() for case in EVERY_LOSS],
        [case.make() for case in EVERY_METRIC],
        [metrics.NDCG(k) for k in (None, 1, 5, 10, 15)],
        [metrics.RBP(p) for p in (0.5, 0.05, 0.8, 0.81, 0.800001, 1e-7)],
        [metrics.MRR(relevance_level=level) for level in (None, 1, 1.5, 2)],
        [metrics.PWA(), metrics.PWA(1), metrics.PWA(None)],
        [metrics.Precision(3, clip_k=x) for x in (False, True)],
        [
            metrics.NDCG(3),
            metrics.NDCG(3, gain=ranking.linear_gain),
            metrics.NDCG(3, discount=ranking.linear_gain),
            metrics.NDCG(3, ties=metrics.ties.Averaged()),
            metrics.NDCG(3, ties=metrics.ties.Shuffled(1)),
            metrics.NDCG(3, ties=metrics.ties.Shuffled(2)),
            metrics.NDCG(3, averaging=metrics.averaging.DefinedLists()),
        ],
        [
            metrics.RegionDivergence(link, lower, upper)
            for link in (links.Exp(), links.Exp(scale=2.0), links.Capped(links.Exp(), upper=2.0))
            for lower, upper in ((-1.5, 1.5), (1.5, 2.0))
        ],
        [losses.NWayPairwiseLoss(1.0, [1.0] * 999 + [last]) for last in (1.0, 2.0)],
        [losses.LambdaLoss(lambdas.NDCGLambdaWeight(k)) for k in (None, 1, 10)],
        [losses.GumbelLoss(losses.ApproxNDCGLoss(t), seed=3) for t in (0.1, 1.0)],
        [losses.SelectiveSoftmaxLoss(links.Exp(), 1.0, rho) for rho in (None, [1.0], [-1.0])],
    ],
    ids=lambda formulas: type(formulas[0]).__name__,
)
def test_formulas_that_differ_have_names_that_differ(formulas: list[Any]) -> None:
    names = collections.Counter(formula.name for formula in formulas)
    assert [name for name, count in names.items() if count > 1] == []
    assert max(map(len, names)) < 120
    assert [name for name in names if not re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", name)] == []


def test_names_read_well() -> None:
    assert metrics.NDCG().name == "ndcg"
    assert metrics.NDCG(5).name == "ndcg_at_5"
    assert metrics.MAP(10, relevance_level=2).name == "map_at_10_relevance_level_2"
    assert metrics.RBP(0.5).name == "rbp_persistence_0_5"
    assert losses.SoftmaxLoss().name == "softmax_loss"
    assert metrics.NDCG(5, name="mine").name == "mine"


def test_the_cutoffs_of_a_model_are_told_apart() -> None:
    model = ranker()
    model.compile(loss=losses.SoftmaxLoss(), metrics=[metrics.NDCG(1), metrics.NDCG(5)])
    found = model.evaluate(FEATURES, LABELS, verbose=0, return_dict=True)
    scores = model.predict(FEATURES, verbose=0)
    expected = {f"ndcg_at_{k}": float(metrics.NDCG(k)(LABELS, scores)) for k in (1, 5)}
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    values = model.evaluate(FEATURES, LABELS, verbose=0)
    assert values == pytest.approx([found["loss"], *expected.values()], rel=1e-5)


def test_the_losses_of_outputs_without_names_are_told_apart() -> None:
    class TwoHeads(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.heads = [keras.layers.Dense(1), keras.layers.Dense(1)]

        def call(self, inputs: tf.Tensor) -> list[tf.Tensor]:
            return [head(inputs)[..., 0] for head in self.heads]

    model, each = TwoHeads(), [losses.SoftmaxLoss(), losses.SoftmaxLoss(temperature=0.5)]
    model.compile(loss=each, metrics=[[metrics.NDCG(1)], [metrics.NDCG(5)]])
    found = model.evaluate(FEATURES, [LABELS, LABELS], verbose=0, return_dict=True)
    scores = model.predict(FEATURES, verbose=0)
    expected = [float(loss(LABELS, s)) for loss, s in zip(each, scores, strict=True)]
    expected += [float(metrics.NDCG(k)(LABELS, s)) for k, s in zip((1, 5), scores, strict=True)]
    assert sorted(found.values()) == pytest.approx(sorted([sum(expected[:2]), *expected]), rel=1e-5)


@pytest.mark.long
@pytest.mark.compiled
def test_tensorboard_and_a_saved_model_take_the_names(tmp_path: pathlib.Path) -> None:
    model = ranker()
    region = metrics.RegionDivergence(links.Exp(scale=0.5), -1.5)
    model.compile(loss=losses.SoftmaxLoss(temperature=0.5), metrics=[metrics.NDCG(5), region])
    board = keras.callbacks.TensorBoard(str(tmp_path / "logs"))
    model.fit(FEATURES, LABELS, verbose=0, callbacks=[board])
    tags = {
        value.tag
        for path in (tmp_path / "logs").rglob("events*")
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert {"epoch_ndcg_at_5", f"epoch_{region.name}"} <= tags
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert set(loaded.evaluate(FEATURES, LABELS, verbose=0, return_dict=True)) == {
        "loss",
        "ndcg_at_5",
        region.name,
    }
    tf.saved_model.save(model, str(tmp_path / "saved"))


def test_a_saved_name_is_kept() -> None:
    config = metrics.NDCG(5, name="ndcg").get_config()
    assert metrics.NDCG.from_config(config).name == "ndcg"
