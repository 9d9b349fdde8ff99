"""Contracts of every link."""

import dataclasses
import functools
import json
import math
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tests.cases import LINKS, Array, LinkCase, name_of
from tests.references.links import divergence
from tfrank_sel import links, losses

every_link = pytest.mark.parametrize("case", LINKS, ids=name_of)

any_score = st.floats(-(2.0**100), 2.0**100, width=32)


def derivative(f: Callable[[tf.Tensor], tf.Tensor], x: Array) -> Array:
    points = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(points)
        y = f(points)
    return tape.gradient(y, points).numpy()


def pairs(case: LinkCase) -> tuple[Array, Array]:
    z, s = np.meshgrid(case.points, case.points)
    return z.ravel(), s.ravel()


def integrals(slope: Callable[[tf.Tensor], tf.Tensor], z: Array, s: Array) -> tuple[Array, Array]:
    """The divergence and the difference of a smooth link, as integrals of its slope."""
    t, weights = (x[:, np.newaxis] / 2.0 for x in np.polynomial.legendre.leggauss(20))
    slopes, d = slope(tf.constant(s + (0.5 + t) * (z - s))).numpy(), z - s
    return d * d * np.sum(weights * (0.5 - t) * slopes, 0), d * np.sum(weights * slopes, 0)


def is_everywhere(link: links.Link) -> bool:
    return link.domain == (-math.inf, math.inf)


@every_link
def test_equals_its_reference(case: LinkCase) -> None:
    for ours, theirs in zip(
        (case.link, case.link.potential, case.link.slope), case.reference, strict=True
    ):
        expected = [theirs(x) for x in case.points]
        np.testing.assert_allclose(ours(tf.constant(case.points)), expected, 1e-12, 1e-15)


@pytest.mark.sample(2)
@every_link
def test_potential_slope_and_inverse_belong_together(case: LinkCase) -> None:
    link, x = case.link, tf.constant(case.points)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)
    close(derivative(link.potential, case.points), link(x))
    close(derivative(link, case.points), link.slope(x))
    if link.is_invertible:
        steep = case.points[link.slope(x).numpy() > 0.0]
        np.testing.assert_allclose(link.inverse(link(steep)), steep, rtol=1e-9, atol=1e-9)
        low, high = link.image
        assert np.all((low <= link(x)) & (link(x) <= high))
    else:
        with pytest.raises(NotImplementedError, match="`inverse` requires a link with an inverse"):
            link.inverse(x)


@every_link
def test_divergence_equals_its_definition(case: LinkCase) -> None:
    z, s = pairs(case)
    expected = [divergence(case.reference, a, b) for a, b in zip(z, s, strict=True)]
    np.testing.assert_allclose(case.link.divergence(z, s), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.sample(2)
@every_link
def test_gradients_of_the_divergence_are_closed_forms(case: LinkCase) -> None:
    z, s = (tf.constant(x) for x in pairs(case))
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


@pytest.mark.sample(9)
@every_link
def test_points_near_each_other_keep_their_digits(case: LinkCase) -> None:
    s = np.float32(case.points[case.points != 0.0])
    for step in (0.0, 1e-6, 1e-3, 0.03, 0.3):
        z = np.nextafter(s, np.float32(9.0), dtype=np.float32) - np.float32(step) * s
        kinks = np.array([*case.link.kinks, math.nan])[:, np.newaxis]
        smooth = ~np.any((kinks >= np.minimum(s, z)) & (kinks <= np.maximum(s, z)), axis=0)
        inside = smooth & (z > case.points.min()) & (z < case.points.max())
        areas, rises = integrals(case.link.slope, np.float64(z[inside]), np.float64(s[inside]))
        predicted = tf.constant(z[inside])
        with tf.GradientTape() as tape:
            tape.watch(predicted)
            divergences = case.link.divergence(predicted, s[inside])
        gradient = tape.gradient(divergences, predicted)
        for found, expected in ((divergences, areas), (gradient, rises)):
            np.testing.assert_allclose(found, expected, rtol=2e-5, err_msg=str(step))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "case",
    [x for x in LINKS if not isinstance(x.link, (links.Inverse, links.CompositeSigmoid))],
    ids=name_of,
)
def test_scores_of_float64_near_each_other_keep_eight_digits(case: LinkCase) -> None:
    s = np.repeat(case.points[(case.points != 0.0) & ~np.isin(case.points, case.link.kinks)], 40)
    z = s + np.tile(np.arange(1, 41) * 2.0**-34, len(s) // 40)  # few bits: `x` is not rounded
    exact, _ = integrals(case.link.slope, z, s)
    np.testing.assert_allclose(case.link.divergence(z, s), exact, 1e-8, 1e-30)


def test_an_arctan_far_from_its_shift_keeps_its_digits() -> None:
    for scale in (1e4, 1e6):  # where it is pi / 2 - 1 / x
        value = links.Arctan(scale=scale).divergence(tf.constant([9200.0]), tf.constant([9000.0]))
        expected = (200.0 / 9000.0 - math.log(9200.0 / 9000.0)) / scale
        np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.sample(9)
@every_link
@settings(max_examples=6, deadline=None)
@given(drawn=st.lists(st.tuples(any_score, any_score), min_size=8, max_size=8))
def test_divergence_is_at_least_zero_everywhere(
    case: LinkCase, drawn: list[tuple[float, float]]
) -> None:
    z, s = np.float32(drawn).T
    z, s = np.append(z, s * np.float32(1.0 + 1e-6)), np.append(s, s)  # far, and near
    if not is_everywhere(case.link):
        z, s = (np.clip(x, case.points.min(), case.points.max()) for x in (z, s))
    here, there = tf.constant(z, tf.float32), tf.constant(s, tf.float32)
    value = case.link.divergence(here, there)
    assert math.isfinite(case.link.rises_from) or not np.any(value < 0.0)
    assert np.all(case.link.divergence(here, here) == 0.0)


@pytest.mark.sample(4)
@every_link
def test_finite_scores_have_finite_values(case: LinkCase) -> None:
    link = case.link
    ends = [-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4] if is_everywhere(link) else case.points
    z, s = (tf.constant(x.ravel(), tf.float32) for x in np.meshgrid(ends, ends))
    for value in (link(z), link.potential(z), link.divergence(z, s)):
        assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(link.slope(z)) | np.isin(z, link.kinks))


@every_link
def test_the_slope_at_a_kink_is_the_mean_of_both_sides(case: LinkCase) -> None:
    for kink in case.link.kinks:
        beside = np.array([kink - 1e-9, kink, kink + 1e-9])
        below, at, above = case.link.slope(tf.constant(beside, tf.float64)).numpy()
        if isinstance(case.link, links.Capped):
            assert at == 0.0
        elif math.isfinite(at):
            np.testing.assert_allclose(at, (below + above) / 2.0, rtol=1e-6, atol=1e-6)


@every_link
def test_outside_the_domain_all_is_nan(case: LinkCase) -> None:
    link, inside = case.link, tf.constant([case.link.origin], tf.float64)
    low, high = link.domain
    assert low < link.origin < high
    for end, beyond in ((low, -math.inf), (high, math.inf)):
        if math.isfinite(end):
            out = tf.constant(end + np.sign(beyond) * np.array([1e-9, 1.0]), tf.float64)
            within = tf.broadcast_to(inside, [2])
            for value in (
                link(out),
                link.potential(out),
                link.slope(out),
                link.divergence(out, within),
                link.divergence(within, out),
            ):
                assert np.all(np.isnan(value))


@pytest.mark.parametrize(
    "make", [links.Arcsin, links.Arctanh, links.Log, links.Logit, links.NegLog1m, links.Sin]
)
def test_the_ends_of_a_domain_belong_to_it_if_the_link_says_so(make: type[links.Link]) -> None:
    ends = tf.constant([x for x in make().domain if math.isfinite(x)], tf.float64)
    assert np.all(np.isnan(make()(ends)) != make.ends_belong)


@every_link
def test_far_scores_have_values_at_the_ends_of_the_image(case: LinkCase) -> None:
    rises = math.isinf(case.link.rises_from) and is_everywhere(case.link)
    if rises and isinstance(case.link, links.ElementaryLink):  # others have an outer bound
        far, image = case.link(tf.constant([-1e9, 1e9], tf.float64)), np.array(case.link.image)
        far = np.where((np.abs(far) > 10.0) & np.isinf(image), image, far)
        np.testing.assert_allclose(far, image, rtol=1e-6, atol=1e-8)


@pytest.mark.sample(4)
@every_link
def test_nan_stays_nan(case: LinkCase) -> None:
    link, nan, inside = case.link, tf.constant([math.nan]), tf.constant([case.link.origin])
    values = [link.divergence(*x) for x in ((nan, inside), (inside, nan))]
    values += [link(nan), link.potential(nan)]
    assert isinstance(link, links.Constant) or np.all(np.isnan(values))


@pytest.mark.sample(4)
@every_link
def test_a_link_is_a_value(case: LinkCase) -> None:
    saved = json.dumps(keras.saving.serialize_keras_object(case.link))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert loaded == case.link
    assert hash(loaded) == hash(case.link)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(case.link, dataclasses.fields(case.link)[0].name, 3.0)


def test_combinations_that_make_no_link_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`lower` must be below `upper`"):
        links.Capped(links.Exp(), 1.0, 1.0)
    with pytest.raises(ValueError, match=r"must lie in the domain \(0.0, 1.0\)"):
        links.Capped(links.Logit(), 0.5, 1.5)
    with pytest.raises(ValueError, match=r"common domain"):
        links.Sum([links.Log(), links.NegLog1m(shift=-3.0)])


@pytest.mark.parametrize(
    ("link", "inverse"),
    [
        (links.Sigmoid(scale=2.0), links.Scaled(links.Logit(), 0.5)),
        (links.Exp(), links.Log()),
        (links.Tanh(), links.Arctanh()),
        (links.Sinh(), links.Arcsinh()),
    ],
    ids=repr,
)
def test_duality_holds_near_and_far(link: links.Link, inverse: links.Link) -> None:
    rng = np.random.default_rng(0)
    y = rng.uniform(0.02, 0.98, 50)
    z = np.where(rng.random(50) < 0.5, y + 1e-9, rng.uniform(0.02, 0.98, 50))
    dual = links.Inverse(link)
    np.testing.assert_allclose(dual.divergence(z, y), inverse.divergence(z, y), rtol=1e-6)
    np.testing.assert_allclose(
        dual.divergence(z, y), link.divergence(inverse(y), inverse(z)), rtol=1e-5
    )


@pytest.mark.sample(4)
@every_link
def test_an_odd_link_is_odd_and_no_other(case: LinkCase) -> None:
    if is_everywhere(case.link):
        x = np.linspace(0.05, 4.05, 21)
        assert case.link.is_odd == np.allclose(case.link(x), -case.link(-x), rtol=1e-12)


@pytest.mark.sample(4)
@every_link
def test_a_link_rises_wherever_it_says(case: LinkCase) -> None:
    x = np.sort(case.points)
    x = x[x >= case.link.rises_from]
    assert np.all(np.diff(case.link(tf.constant(x))) >= 0.0)


@pytest.mark.parametrize(
    ("link", "function"),
    [
        (links.Sigmoid(), lambda x: 1.0 / (1.0 + np.exp(-x))),
        (links.Sinh(scale=0.5, shift=1.0), np.sinh),
        (links.Arctan(scale=2.0), np.arctan),
        (links.SignedLog1p(), lambda x: np.sign(x) * np.log1p(abs(x))),
    ],
    ids=["sigmoid", "sinh", "arctan", "kink"],
)
def test_a_link_of_a_function_equals_the_closed_form(
    link: links.ElementaryLink, function: Callable[[Array], Array]
) -> None:
    ours = links.Interpolated.of(function, -8.0, 8.0, scale=link.scale, shift=link.shift)
    z, s = np.meshgrid(np.linspace(-3.9, 3.9, 40), np.linspace(-3.7, 3.8, 41))
    for exact, found in (
        (link(s), ours(s)),
        (link.divergence(z, s), ours.divergence(z, s)),
        (link.potential(z) - link.potential(s), ours.potential(z) - ours.potential(s)),
    ):
        largest = np.abs(exact).max()
        np.testing.assert_allclose(found / largest, exact / largest, rtol=0.0, atol=1e-6)


class Softsign(links.ElementaryLink):
    """A link as users write them."""

    phi_image = (-1.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return x / (1.0 + tf.abs(x))

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x) - tf.math.log1p(tf.abs(x))

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 1.0 / tf.square(1.0 + tf.abs(x))

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return y / (1.0 - tf.abs(y))


def combinations(link: links.Link) -> list[tuple[links.Link, str]]:
    """Combinations of a link, each in one dtype: both of all would take a minute."""
    few = [(link, "float64")]
    if link.is_invertible:
        few.append((links.Inverse(link), "float32"))
    if not isinstance(link, (links.Huber, links.Log, links.Logit, Softsign)):
        return few
    low, high = link.domain
    lower = low if math.isfinite(low) else min(high, 2.0) - 3.3
    upper = high if math.isfinite(high) else lower + 3.1
    width = upper - lower
    capped = links.Capped(link, lower + 0.3 * width, upper - 0.2 * width)
    more = [(links.Scaled(capped, 0.3), "float64"), (links.Inverse(capped), "float32")]
    return [*few, (link, "float32"), *more]


def around(interval: tuple[float, float], dtype: str) -> tuple[Array, Array, Array]:
    """Points inside an interval, its ends, and points beyond."""
    low, high = interval
    a = low if math.isfinite(low) else min(high, 2.0) - 6.0
    b = high if math.isfinite(high) else a + 6.0
    near = 1e-9 if dtype == "float64" else 1e-5
    inside = [a + (b - a) * share for share in (1e-3, 0.213, 0.371, 0.691, 0.877, 0.999)]
    far = [x for x, end in ((-20.0, low), (-30.0, low), (20.0, high)) if math.isinf(end)]
    beyond = [
        end + side * step * max(1.0, abs(end))
        for end, side in ((low, -1.0), (high, 1.0))
        for step in (near, 1.0, 1e6)
        if math.isfinite(end)
    ]
    ends = [end for end in interval if math.isfinite(end)]
    inside, ends, beyond = (np.array(x, dtype) for x in ([*inside, *far], ends, beyond))
    return inside, ends, beyond


def check_door(f: Callable[[tf.Tensor], tf.Tensor], parts: tuple[Array, Array, Array]) -> None:
    """A function is finite inside, NaN beyond, and its gradient is that of its values."""
    inside, ends, beyond = parts
    step = 1e-6 * (inside.dtype == np.float64)
    x = tf.constant(np.concatenate([inside, inside - step, inside + step, ends, beyond]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    value, gradient = y.numpy(), tape.gradient(y, x).numpy()
    n, out = len(inside), len(x) - len(beyond)
    assert np.all(np.isfinite(value[:n]))
    assert not np.any(np.isnan(gradient[:n]))
    assert np.array_equal(np.isnan(value[n:]), np.isnan(gradient[n:]))
    assert np.all(np.isnan(value[out:]))
    if step:
        rise = (value[2 * n : 3 * n] - value[n : 2 * n]) / (2.0 * step)
        rounding = 1e-8 * np.abs(value[:n]).max()
        np.testing.assert_allclose(gradient[:n], rise, rtol=1e-3, atol=1e-6 + rounding)


@pytest.mark.sample(12)
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "link",
    [
        *{
            type(x.link): x.link
            for x in LINKS
            if not isinstance(x.link, (links.Capped, links.Inverse, links.Scaled, links.Sum))
        }.values(),
        Softsign(scale=2.0, shift=0.1),
        links.Logit(scale=3.0, shift=0.1),
        links.Huber(half_width=0.1),
    ],
    ids=repr,
)
def test_links_and_combinations_keep_domain_and_image(link: links.Link) -> None:
    for each, dtype in combinations(link):
        domain, middle = around(each.domain, dtype), tf.constant(each.origin, dtype)
        check_door(each, domain)
        check_door(each.potential, domain)
        check_door(lambda z, h=each, s=middle: h.divergence(z, tf.fill(tf.shape(z), s)), domain)
        if each.is_invertible:
            image = around(each.image, dtype)
            check_door(each.inverse, image)
            targets, out = np.concatenate(image)[:, np.newaxis], len(image[2])
            scores, ones = tf.fill(targets.shape, middle), tf.ones(targets.shape, dtype)
            with tf.GradientTape() as tape:
                tape.watch(scores)
                value = losses.FenchelYoungLoss(each, dtype=dtype).per_list(
                    targets, scores, ones > 0.0, ones
                )
            gradient, within = tape.gradient(value, scores).numpy(), len(targets) - out
            expected = float(each(tf.cast(middle, tf.float64))) - targets[:within]
            scale = np.abs(targets).max()
            np.testing.assert_allclose(gradient[:within], expected, rtol=1e-5, atol=1e-6 * scale)
            assert np.all(np.isfinite(value[:within]))
            assert np.all(np.isnan(value[within:]))
            assert np.all(np.isnan(gradient[within:]))


def test_a_link_with_an_inverse_of_its_own_is_refused() -> None:
    with pytest.raises(TypeError, match="must implement `preimage`"):

        class Own(links.Identity):
            def inverse(self, y: tf.Tensor) -> tf.Tensor:  # type: ignore[misc]
                return y


def test_no_public_link_is_missing() -> None:
    classes = {x for x in vars(links).values() if isinstance(x, type) and issubclass(x, links.Link)}
    assert classes - {links.Link, links.ElementaryLink} == {type(c.link) for c in LINKS}


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (np.log, {}, r"`function` must return finite values\. Received: nan at x=-4$"),
        (np.negative, {}, r"`function` must not decrease\. Received: 4, then 3\.99805 at"),
        (lambda x: 1.0, {}, r"a value for each `x`\. Received: 1 values of 4097$"),
        (np.tanh, {"high": -5.0}, "`low` must be below `high`"),
        (np.tanh, {"scale": 0.0}, "`scale` must be positive"),
    ],
)
def test_a_function_that_is_no_link_is_refused_in_one_line(
    function: Callable[[Array], Array], options: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message), np.errstate(all="ignore"):
        links.Interpolated.of(function, **{"low": -4.0, "high": 4.0, **options})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.sign(x) * np.abs(x) ** 0.3,
        lambda x: 1.0 / (1.0 + np.exp(-200.0 * (x - 0.01))),
        lambda x: np.tanh(3.0 * x) + 0.1 * x,
        lambda x: np.clip(x - 0.123, -0.5, 0.5),
        lambda x: np.interp(x, [-8.0, 1.0, 1.0001, 8.0], [0.0, 0.1, 1.0, 1.1]),
        lambda x: x**3,
    ],
    ids=["power", "steep", "mixed", "kinks", "table", "cube"],
)
def test_a_link_of_a_function_is_refined_until_it_is_within_its_tolerance(
    function: Callable[[Array], Array],
) -> None:
    link, x = links.Interpolated.of(function, -8.0, 8.0), np.linspace(-7.9, 7.9, 40_001)
    largest = np.abs(function(x)).max()
    np.testing.assert_allclose(link(x) / largest, function(x) / largest, rtol=0.0, atol=2e-6)
    assert len(link.values) < 6000
    s = np.float32(x[::997])
    np.testing.assert_allclose(link(s), link(np.float64(s)), rtol=1e-3, atol=1e-5 * largest)
    z = tf.constant(s[::-1].copy(), tf.float64)
    points = tf.constant(s, tf.float64)
    definition = link.potential(z) - link.potential(points) - (z - points) * link(points)
    np.testing.assert_allclose(link.divergence(z, points), definition, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(derivative(link.potential, np.float64(s)), link(points), rtol=1e-9)


def test_a_link_of_a_function_with_a_step_tells_how_far_it_is_off() -> None:
    with pytest.warns(UserWarning, match=r"off by up to 5\.0e-01 of the largest .* near x=0.3"):
        link = links.Interpolated.of(lambda x: (x > 0.3) * 1.0, -8.0, 8.0)
    assert link(np.array([0.299999, 0.300001])).numpy().tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="`tolerance` must be positive"):
        links.Interpolated.of(np.tanh, -1.0, 1.0, tolerance=0.0)
    with pytest.raises(ValueError, match="`knots` must increase from `low` to `high`"):
        links.Interpolated(low=0.0, high=1.0, values=[0.0, 1.0, 2.0], knots=[0.0, 2.0, 1.0])


def test_a_function_may_fall_by_rounding() -> None:
    link = links.Interpolated.of(lambda x: tf.sigmoid(tf.cast(x, tf.float32)), -40.0, 40.0)
    assert float(link(tf.constant(0.0))) == pytest.approx(0.5)
    assert link.values[-1] == 1.0
