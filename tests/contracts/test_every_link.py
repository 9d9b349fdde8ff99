"""What every link must do, whatever its shape."""

import dataclasses
import json
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tests.cases import LINKS, Array, LinkCase, name_of
from tests.references.links import divergence
from tfrank_sel import links

every_link = pytest.mark.parametrize("case", LINKS, ids=name_of)

any_score = st.floats(-(2.0**100), 2.0**100, width=32)

POINTS = np.array([-3.0, -1.25, -0.5, 0.0, 0.375, 1.0, 2.5, 4.0])


def derivative(f: Callable[[tf.Tensor], tf.Tensor], x: Array) -> Array:
    points = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(points)
        y = f(points)
    return tape.gradient(y, points).numpy()


@every_link
def test_equals_its_reference(case: LinkCase) -> None:
    for ours, theirs in zip(
        (case.link, case.link.potential, case.link.slope), case.reference, strict=True
    ):
        np.testing.assert_allclose(ours(tf.constant(POINTS)), [theirs(x) for x in POINTS], 1e-12)


@every_link
def test_potential_slope_and_inverse_belong_together(case: LinkCase) -> None:
    link, x = case.link, tf.constant(POINTS)
    np.testing.assert_allclose(derivative(link.potential, POINTS), link(x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(derivative(link, POINTS), link.slope(x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(link.inverse(link(x)), POINTS, rtol=1e-9, atol=1e-9)


@every_link
def test_divergence_and_difference_equal_their_definition(case: LinkCase) -> None:
    z, s = (x.ravel() for x in np.meshgrid(POINTS, POINTS))
    expected = [divergence(case.reference, a, b) for a, b in zip(z, s, strict=True)]
    np.testing.assert_allclose(case.link.divergence(z, s), expected, rtol=1e-9, atol=1e-12)
    expected = [case.reference.h(a) - case.reference.h(b) for a, b in zip(z, s, strict=True)]
    np.testing.assert_allclose(case.link.difference(z, s), expected, rtol=1e-9, atol=1e-12)


@every_link
def test_gradients_of_the_divergence_are_closed_forms(case: LinkCase) -> None:
    z, s = (tf.constant(x.ravel()) for x in np.meshgrid(POINTS, POINTS))
    with tf.GradientTape(persistent=True) as outer:
        outer.watch([z, s])
        with tf.GradientTape() as inner:
            inner.watch([z, s])
            value = case.link.divergence(z, s)
        in_z, in_s = inner.gradient(value, [z, s])
    link = case.link
    np.testing.assert_allclose(in_z, link(z) - link(s), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(in_s, (s - z) * link.slope(s), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(outer.gradient(in_z, z), link.slope(z), rtol=1e-12)
    np.testing.assert_allclose(outer.gradient(in_z, s), -link.slope(s), rtol=1e-12)


@every_link
def test_near_points_keep_their_digits_in_float32(case: LinkCase) -> None:
    s = np.float32([-2.0, -0.5, 0.25, 1.0, 3.0])
    z = np.nextafter(s, np.float32(9.0), dtype=np.float32)
    wide = case.link.divergence(tf.constant(z, tf.float64), tf.constant(s, tf.float64))
    np.testing.assert_allclose(case.link.divergence(z, s), wide, rtol=2e-5)
    wide = case.link.difference(tf.constant(z, tf.float64), tf.constant(s, tf.float64))
    np.testing.assert_allclose(case.link.difference(z, s), wide, rtol=2e-5)


@every_link
@settings(max_examples=50, deadline=None)
@given(z=any_score, s=any_score, near=st.booleans())
def test_divergence_is_at_least_zero_everywhere(
    case: LinkCase, z: float, s: float, near: bool
) -> None:
    z = np.float32(s * (1.0 + 1e-6) if near else z)
    value = case.link.divergence(tf.constant([z]), tf.constant([s], tf.float32))
    assert not value[0] < 0.0
    assert case.link.divergence(tf.constant([z]), tf.constant([z]))[0] == 0.0


@every_link
def test_finite_scores_have_finite_values(case: LinkCase) -> None:
    ends = np.float32([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4])
    z, s = (tf.constant(x.ravel()) for x in np.meshgrid(ends, ends))
    for value in (
        case.link(z),
        case.link.potential(z),
        case.link.slope(z),
        case.link.divergence(z, s),
        case.link.difference(z, s),
    ):
        assert np.all(np.isfinite(value))


@every_link
def test_a_link_is_a_value(case: LinkCase) -> None:
    saved = json.dumps(keras.saving.serialize_keras_object(case.link))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert loaded == case.link
    assert hash(loaded) == hash(case.link)
    with pytest.raises(dataclasses.FrozenInstanceError):
        case.link.scale = 3.0


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_that_does_not_increase_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=r"`scale` must be positive and finite. Received: scale="):
        links.Sigmoid(scale=scale)
    with pytest.raises(ValueError, match=r"`factor` must be positive"):
        links.Scaled(links.Exp(), scale)


def test_a_shift_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`shift` must be finite. Received: shift=nan"):
        links.Exp(shift=float("nan"))


def test_no_public_link_is_missing() -> None:
    abstract = {"Link", "ElementaryLink", "CompositeSoftmax"}
    public = {n for n, x in vars(links).items() if isinstance(x, type)} - abstract
    assert public == {type(c.link).__name__ for c in LINKS}
