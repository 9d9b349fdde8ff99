"""The softmax bounds the metrics from below; where it does not, that is shown, too."""

import functools
import math
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrank_sel import callbacks, losses
from tfrank_sel.bounds import SoftmaxBounds, softmax_bounds
from tfrank_sel.losses import margin, targets

pytestmark = pytest.mark.usefixtures("eagerly")

exactly = functools.partial(softmax_bounds, dtype="float64")
# rounding alone may take the bound above a metric that meets it
ROUNDING = 1.0 + 1e-13


def random_lists(size: int, num_labels: int) -> tuple[Any, Any]:
    """Lists of a relevant item at least, a half of them with many ties."""
    rng = np.random.default_rng(size)
    labels = rng.integers(0, num_labels, (4000, size)).astype(float)
    labels[:, 0] = np.maximum(labels[:, 0], 1.0)
    scores = rng.normal(size=labels.shape) * rng.choice([0.1, 1.0, 30.0], (4000, 1))
    scores[::2] = scores[::2].round()
    return labels, scores


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("temperature", [0.25, 1.0, 5.0])
def test_binary_relevance_bounds_rr_ap_and_ndcg(size: int, temperature: float) -> None:
    values = exactly(*random_lists(size, 2), temperature)
    for metric in (values.rr, values.ap, values.ndcg):
        assert np.all(values.bound <= metric * ROUNDING)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30])
def test_graded_relevance_bounds_rr_and_ndcg(size: int) -> None:
    values = exactly(*random_lists(size, 5))
    for metric in (values.rr, values.ndcg):
        assert np.all(values.bound <= metric * ROUNDING)


@pytest.mark.long
@settings(max_examples=30)
@given(data=st.data())
def test_no_binary_list_breaks_the_bound(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    tied = st.sampled_from([-300.0, 0.0, 1.0, 1.0 + 1e-12, 300.0])
    score = st.lists(tied | st.floats(-50, 50), min_size=size, max_size=size)
    label = st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size).filter(any)
    rows = data.draw(st.lists(st.tuples(label, score), min_size=8, max_size=8))
    values = exactly(*zip(*rows, strict=True))
    for metric in (values.rr, values.ap, values.ndcg):
        assert np.all(values.bound <= metric * ROUNDING)


def test_the_bound_is_met_by_ties_and_by_a_relevant_item_on_top() -> None:
    tied = exactly([[0.0, 1.0, 0.0, math.nan]], [[2.0, 2.0, 2.0, 9.0]])
    np.testing.assert_allclose([tied.bound, tied.rr, tied.ap], [[1 / 3]] * 3)
    sure = exactly([[0.0, 1.0]], [[-900.0, 0.0]])
    np.testing.assert_array_equal([sure.bound, sure.rr, sure.ap, sure.ndcg], [[1.0]] * 4)


def test_ties_count_pessimistically_wherever_they_stand() -> None:
    for labels in ([1.0, 0.0, 2.0], [2.0, 0.0, 1.0], [0.0, 2.0, 1.0]):
        values = exactly([labels], [[1.0, 1.0, 1.0]])
        np.testing.assert_allclose(values.rr, [0.5])
        dcg, ideal = 1 / math.log2(3) + 3 / 2, 3 + 1 / math.log2(3)
        np.testing.assert_allclose(values.ndcg, [dcg / ideal])


def test_the_mean_loss_bounds_the_mean_metrics() -> None:
    values = exactly(*random_lists(7, 2))
    for metric in (values.rr, values.ap, values.ndcg):
        assert np.mean(values.loss) >= -np.log(np.mean(metric))


def test_a_loss_of_the_union_of_positives_bounds_nothing() -> None:
    scores = np.array([1.0] + [0.99] * 50)  # one irrelevant item above fifty relevant ones
    p = np.exp(scores) / np.sum(np.exp(scores))
    [rr] = exactly([[0.0] + [1.0] * 50], [scores]).rr
    assert np.sum(p[1:]) > 0.97
    assert rr == 0.5


def test_peaked_targets_do_not_bound_an_ndcg_of_flat_gains() -> None:
    gains = np.array([1.01] + [1.0] * 50 + [0.0] * 1000)
    scores = np.array([40.0] + [-40.0] * 50 + [0.0] * 1000)
    labels = np.log2(1.0 + gains)
    peaked = losses.SoftmaxLoss(targets=targets.Softmax(1e-4), dtype="float64")
    values = exactly([labels], [scores])
    assert np.exp(-peaked([labels], [scores])) > 0.99
    assert values.ndcg[0] < 0.5
    assert values.bound[0] <= values.ndcg[0]  # targets of the gains do bound it


@pytest.mark.parametrize("used", [margin.NormFace(), margin.CosFace(0.35), margin.ArcFace(0.5)])
def test_margins_keep_the_bound(used: margin.Margin) -> None:
    rng = np.random.default_rng(0)
    cosines = np.cos(np.pi * rng.random((4000, 6)))
    cosines[::4] = np.cos(np.pi * (1.0 - 0.2 * rng.random((1000, 6))))  # all nearly opposite
    labels = np.eye(6)[rng.integers(0, 6, 4000)]
    loss = losses.MarginSoftmaxLoss(used, scale=30.0, reduction="none", dtype="float64")
    values = exactly(labels, cosines)
    for metric in (values.rr, values.ap, values.ndcg):
        assert np.all(np.exp(-loss(labels, cosines)) <= metric * ROUNDING)


def test_arcface_without_the_fallback_breaks_the_bound() -> None:
    labels, cosines = [[1.0, 0.0]], [[-0.995, -0.97]]
    arcface, without = (
        losses.MarginSoftmaxLoss(margin.ArcFace(0.5, fall_back), scale=30.0, dtype="float64")
        for fall_back in (True, False)
    )
    [rr] = exactly(labels, cosines).rr
    np.testing.assert_allclose(np.exp(-without(labels, cosines)), 0.813, atol=5e-4)
    assert np.exp(-without(labels, cosines)) > rr
    assert np.exp(-arcface(labels, cosines)) < rr


def points_of(run: pathlib.Path) -> dict[str, list[float]]:
    """The values of each tag of a run of TensorBoard, in the order they were written."""
    points: dict[str, list[float]] = {}
    [file] = run.iterdir()
    for event in tf.compat.v1.train.summary_iterator(str(file)):
        for value in event.summary.value:
            points.setdefault(value.tag, []).append(float(tf.make_ndarray(value.tensor)))
    return points


@pytest.mark.long
@pytest.mark.compiled
def test_the_callback_draws_loss_bound_and_metrics_in_one_chart(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(64, 5)).astype("float32")
    labels = np.eye(5, dtype="float32")[features.argmax(axis=1)]
    labels[0] = 0.0  # no bound holds for a list without a relevant item
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(20)
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(5)])
    model.compile(keras.optimizers.Adam(0.05), loss=losses.SoftmaxLoss())
    log = callbacks.LogSoftmaxBounds(tmp_path, data)
    for _ in range(2):
        model.fit(data, epochs=3, verbose=0, callbacks=[log])
        lines = {run.name: points_of(run) for run in tmp_path.iterdir()}
        assert set(lines) == set(SoftmaxBounds._fields)
        # runs of one tag share a chart
        assert {tuple(points) for points in lines.values()} == {("softmax_bounds",)}
        line = {name: np.array(points["softmax_bounds"]) for name, points in lines.items()}
        assert all(len(values) == 3 for values in line.values())
        np.testing.assert_allclose(line["bound"], np.exp(-line["loss"]), rtol=1e-5)
        for metric in ("rr", "ap", "ndcg"):
            assert np.all(line["bound"] <= line[metric])
        values = softmax_bounds(labels[1:], model.predict(features[1:], verbose=0))
        np.testing.assert_allclose(line["rr"][-1], np.mean(values.rr), rtol=1e-5)
        for run in tmp_path.iterdir():
            [file] = run.iterdir()
            file.unlink()


def test_the_callback_counts_lists_by_their_weights(tmp_path: pathlib.Path) -> None:
    features = np.random.default_rng(2).normal(size=(6, 4)).astype("float32")
    labels = np.eye(4, dtype="float32")[[0, 1, 2, 3, 0, 1]]
    weights = np.array([1, 0, 3, 2, 0, 1], "float32")
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4)])
    model.compile("sgd", losses.SoftmaxLoss())
    for of_items in (weights, np.repeat(weights[:, None], 4, axis=1)):
        data = tf.data.Dataset.from_tensor_slices((features, labels, of_items)).batch(4)
        log = callbacks.LogSoftmaxBounds(tmp_path / str(of_items.ndim), data)
        log.set_model(model)
        log.on_train_begin()
        log.on_epoch_end(0)
        log.on_train_end()
        values = softmax_bounds(labels, model.predict(features, verbose=0))
        for name in ("loss", "rr", "ap", "ndcg"):
            [value] = points_of(log.log_dir / name)["softmax_bounds"]
            expected = np.average(getattr(values, name), weights=weights)
            np.testing.assert_allclose(value, expected, rtol=1e-5)
