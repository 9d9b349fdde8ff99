"""Recalibration: expected labels of scores, on lists that another model scored."""

import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrank_sel import data, export, losses, metrics, models
from tfrank_sel.models.recalibrated import _isotonic, _platt

RNG = np.random.default_rng(0)


def flat() -> keras.Model:
    """A model whose score is the only feature."""
    return keras.Sequential([keras.layers.Flatten()])


def clicks(lists: int = 400, size: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and labels whose probability is an odd function of them."""
    scores = RNG.normal(size=[lists, size, 1]).astype("float32")
    probabilities = 0.05 + 0.4 / (1.0 + np.exp(-4.0 * scores[..., 0]))
    return scores, (RNG.random([lists, size]) < probabilities).astype("float32")


def labels_at_most_4(size: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0]), min_size=size, max_size=size)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_isotonic_regression_is_that_of_scipy(drawn: st.DataObject) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    size = drawn.draw(st.integers(1, 12))
    scores = np.array(drawn.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size)), float)
    labels = np.array(drawn.draw(labels_at_most_4(size)))
    weights = np.array(
        drawn.draw(st.lists(st.sampled_from([0.5, 1, 2]), min_size=size, max_size=size))
    )
    knots, values = _isotonic(scores, labels, weights)
    different = np.unique(scores)
    totals = np.array([weights[scores == x].sum() for x in different])
    means = np.array(
        [np.average(labels[scores == x], weights=weights[scores == x]) for x in different]
    )
    fitted = optimize.isotonic_regression(means, weights=totals).x
    steps = np.unique(fitted.round(9))
    np.testing.assert_allclose(values, steps, atol=1e-9)
    assert (np.diff(knots) > 0).all()
    for knot, value in zip(knots, values, strict=True):
        inside = np.isclose(fitted, value)
        assert knot == pytest.approx(np.average(different[inside], weights=totals[inside]))


def test_platt_is_the_maximum_of_the_likelihood_with_its_prior() -> None:
    scores, labels = (x.ravel().astype(float) for x in clicks(50))
    weights = RNG.uniform(0.5, 2.0, scores.shape)
    slope, intercept = _platt(3.0 * scores + 100.0, labels, weights)
    w = weights / weights.mean()
    ones, zeros = w @ labels, w @ (1.0 - labels)
    targets = np.where(labels > 0, (ones + 1) / (ones + 2), 1 / (zeros + 2))
    p = 1.0 / (1.0 + np.exp(-(slope * (3.0 * scores + 100.0) + intercept)))
    assert w @ (p - targets) == pytest.approx(0.0, abs=1e-6)
    assert (w * scores) @ (p - targets) == pytest.approx(0.0, abs=1e-6)


def test_labels_that_the_scores_separate_have_a_finite_slope() -> None:
    slope, intercept = _platt(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0, 1, 1]), np.ones(4))
    assert 0.0 < slope < 10.0
    assert slope * 1.5 + intercept == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_errors_of_calibration_fall_and_the_order_stays(method: str) -> None:
    fitted, held_out = clicks(), clicks()
    model = models.recalibrate(flat(), [fitted], method)
    found = model.predict(held_out[0], verbose=0)
    before, after = (
        float(metrics.ECE(from_logits=logits)(held_out[1], x))
        for logits, x in ((True, held_out[0][..., 0]), (False, found))
    )
    assert after < (0.1 if method == "platt" else 0.03) < before
    assert float(metrics.PCOC(from_logits=False)(held_out[1], found)) == pytest.approx(1.0, abs=0.1)
    np.testing.assert_array_equal(
        np.argsort(-found, axis=1, kind="stable"),
        np.argsort(-held_out[0][..., 0], axis=1, kind="stable"),
    )


def test_graded_labels_and_weights_and_padding() -> None:
    scores = np.array([[[0.0], [1.0], [2.0], [9.0]]], "float32")
    labels = np.array([[0.0, 4.0, 2.0, -1.0]], "float32")  # the last item is padding
    model = models.recalibrate(flat(), [(scores, labels, np.array([[1.0, 1.0, 3.0, 1.0]]))])
    assert model.max_label == 4.0
    assert list(model.knots) == [0.0, 1.75]
    assert list(model.values) == [0.0, 2.5]
    mask = tf.constant([[True, True, True, False]])
    found = model({"features": scores, "mask": mask}).numpy()
    np.testing.assert_allclose(found, [[0.0, 2.5 / 1.75, 2.5, 0.0]], atol=0.005)


def test_many_scores_are_grouped() -> None:
    scores = np.arange(30_000.0)
    knots, values = _isotonic(scores, scores / 3e4, np.ones(30_000))
    assert len(knots) == 10_000
    np.testing.assert_allclose(knots[:2], [1.0, 4.0])
    np.testing.assert_allclose(np.array(knots) / 3e4, values)


def test_in_batches_is_as_in_one() -> None:
    scores, labels = clicks(20)
    weights = RNG.uniform(0.5, 2.0, 20).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices((scores, labels, weights)).batch(7)
    one, other = (models.recalibrate(flat(), x) for x in (batches, [(scores, labels, weights)]))
    assert one.get_config()["values"] == other.get_config()["values"]
    assert one.slope == pytest.approx(other.slope)


@pytest.mark.long
def test_it_is_saved_and_exported(tmp_path: pathlib.Path) -> None:
    features = RNG.normal(size=[32, 5, 3]).astype("float32")
    labels = (features[..., 0] > 0.5).astype("float32")
    scorer = models.ListScorer([0.0] * 3, [1.0] * 3, [4])
    scorer.compile(keras.optimizers.Adam(0.1), losses.SoftmaxLoss())
    scorer.fit(features, labels, epochs=10, verbose=0)
    model = models.recalibrate(scorer, [(features, labels)])
    export.export(model, data.FeatureSpec(3), tmp_path / "saved")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    expected = model.predict(features, verbose=0)
    np.testing.assert_array_equal(loaded.predict(features, verbose=0), expected)
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["predict"]
    mask = tf.ones(labels.shape, tf.bool)
    scores = served(features=tf.constant(features), mask=mask)["scores"]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([1.0, 2.0], [1.0, 1.0], "at least two different labels.* Received: 1 and 2 of 2 items"),
        ([1.0, 1.0], [0.0, 1.0], "Received: 2 and 1 of 2 items"),
        ([1.0, 2.0], [-1.0, -1.0], "Received: 0 and 0 of 0 items"),
        ([1.0, math.inf], [0.0, 1.0], "scores must be finite. Received: inf"),
        ([2.0, 1.0], [0.0, 1.0], "labels must rise with the scores. Received: a slope of -"),
    ],
)
def test_lists_without_an_increasing_function(
    scores: list[float], labels: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        models.recalibrate(flat(), [(np.array([scores])[..., np.newaxis], np.array([labels]))])


def test_unfit_arguments() -> None:
    with pytest.raises(ValueError, match=r"'isotonic' or 'platt'. Received: method='beta'"):
        models.recalibrate(flat(), [clicks(9)], method="beta")
    with pytest.raises(ValueError, match=r"`slope` must be positive. Received: slope=0.0"):
        models.Recalibrated(flat(), 0.0, 0.0)
    with pytest.raises(ValueError, match=r"knots=\[1.0, 0.0\]"):
        models.Recalibrated(flat(), 1.0, 0.0, [1.0, 0.0], [0.0, 1.0])
