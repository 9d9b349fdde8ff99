"""The choice of a loss by sensitivity: what it promises for every score and width."""

import json
import re
from typing import Any, get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings, strategies as st
from scipy import optimize

from tfrank_sel import links, losses
from tfrank_sel.losses import choice as choice_of_loss
from tfrank_sel.losses.choice import Wanted

pytestmark = pytest.mark.usefixtures("eagerly")

every_wish = pytest.mark.parametrize("wanted", get_args(Wanted))


@pytest.mark.sample(3)
@every_wish
@pytest.mark.parametrize(("at", "width"), [(0.0, 3.0), (2.5, 0.25), (-100.0, 40.0)])
@pytest.mark.parametrize("ranking", [True, False])
def test_the_loss_is_as_sensitive_as_wanted(
    wanted: Wanted, at: float, width: float, ranking: bool
) -> None:
    if ranking and wanted == "low_norm":
        with pytest.raises(ValueError, match="`ranking` must be False for 'low_norm'"):
            losses.design(wanted, at=at, width=width, ranking=True)
        return
    choice = losses.design(wanted, at=at, width=width, ranking=ranking)
    assert choice.verdict.is_convex
    assert "since no `scores` are given" in choice.reason
    if wanted != "clip_low":
        assert wanted in choice.verdict.measured
    assert choice.verdict.ranks == ranking
    is_valid = ranking or wanted == "low_norm"
    assert choice.verdict.status == ("valid" if is_valid else "region_only")
    assert f"{at:g}" in choice.reason
    assert wanted in choice.reason


@every_wish
def test_errors_that_matter_cost_more(wanted: Wanted) -> None:
    ranking = wanted != "low_norm"
    loss = losses.design(wanted, ranking=ranking, reduction="none", dtype="float64").loss
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


def lists_of_scores(seed: int, kind: str) -> np.ndarray:
    """Lists with a long tail of high scores, short ones, or five grades; the last is padding."""
    random = np.random.default_rng(seed)
    scores = {
        "tail": random.lognormal(size=(30, 40)),
        "short": random.beta(2.0, 5.0, size=(30, 40)),
        "grades": np.round(random.uniform(0.5, 5.5, size=(30, 40))),
    }[kind]
    scores[:, -5:] = np.nan
    return scores


def assert_moved(first: Any, other: Any, a: float, b: float, scores: np.ndarray) -> None:
    """The second loss is as sensitive at `a * s + b` as the first at `s`, but for a factor."""
    assert getattr(other, "gamma", None) == getattr(first, "gamma", None)
    link, moved = (getattr(x, "scaling", None) or choice_of_loss._link(x) for x in (first, other))
    s = np.random.default_rng(0).choice(scores[~np.isnan(scores)], 50) + 1e-7 * np.nanstd(scores)
    slopes, expected = (
        x / (x.max() or 1.0) for x in (moved.slope(a * s + b).numpy(), link.slope(s).numpy())
    )
    np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-12)


of_every_kind = pytest.mark.parametrize("kind", ["tail", "short", "grades"])
either = pytest.mark.parametrize("ranking", [True, False])


@pytest.mark.sample(6)
@of_every_kind
@either
@pytest.mark.parametrize("wanted", ["high_score", "low_score", "clip_low"])
@pytest.mark.parametrize(("a", "b"), [(60.0, 7.0), (1e-3, -2.0)])
def test_a_loss_of_scores_moves_and_stretches_with_them(
    kind: str, ranking: bool, wanted: Wanted, a: float, b: float
) -> None:
    scores = lists_of_scores(0, kind)
    first = losses.design(wanted, scores=scores, ranking=ranking)
    other = losses.design(wanted, scores=a * scores + b, ranking=ranking)
    assert other.verdict.status == first.verdict.status != "invalid"
    assert type(other.loss) is type(first.loss)
    assert_moved(first.loss, other.loss, a, b, scores)


@of_every_kind
@either
def test_low_scores_are_the_mirror_image_of_high_ones(kind: str, ranking: bool) -> None:
    scores = lists_of_scores(1, kind)
    high = losses.design("high_score", scores=scores, ranking=ranking).verdict
    low = losses.design("low_score", scores=-scores, ranking=ranking).verdict
    np.testing.assert_allclose(low.sensitivities[::-1], high.sensitivities, rtol=1e-9)


@of_every_kind
def test_errors_of_the_given_share_of_scores_cost_most(kind: str) -> None:
    scores = lists_of_scores(2, kind)
    choice = losses.design(scores=scores, ranking=True, share=0.2, reduction="none")
    region = scores >= np.nanquantile(scores, 0.8)
    size = 0.1 * np.nanstd(scores)
    inside, outside = (
        np.sum(choice.loss(scores, scores + size * part)) / part.sum()
        for part in (region, ~region & ~np.isnan(scores))
    )
    assert inside > 3.0 * outside


def test_an_exponential_of_long_tails_is_sensitive_to_few_of_the_region() -> None:
    loss = losses.SelectiveSoftmaxLoss(links.Exp())
    tails = np.random.default_rng(0).exponential(size=(30, 40))
    verdict = losses.judge(loss, "high_score", tails)
    assert (verdict.status, verdict.measured) == ("invalid", ("high_score",))
    assert "few items of the region" in verdict.reason
    assert losses.judge(loss, "high_score", lists_of_scores(0, "grades")).status == "valid"


@either
def test_a_region_of_one_grade_has_the_sensitivity(ranking: bool) -> None:
    stars = np.random.default_rng(0).choice(5, [40, 20], p=[0.06, 0.11, 0.27, 0.34, 0.22]) + 1.0
    verdict = losses.design(scores=stars, share=0.2, ranking=ranking).verdict
    assert verdict.measured == ("high_score",)


def test_squares_are_sensitive_where_labels_are_not_clipped() -> None:
    scores = lists_of_scores(0, "grades")
    clipped = losses.MeanSquaredLoss(lower=4.0)
    assert losses.judge(clipped, "high_score", scores).status == "region_only"
    assert losses.judge(clipped, "clip_low", scores).status == "invalid"
    assert losses.judge(losses.MeanSquaredLoss(), "high_score", scores).status == "even"


def test_squares_with_a_label_map_are_no_candidate() -> None:
    choice = losses.design(scores=lists_of_scores(0, "tail"), label_map=links.labels.log1p())
    assert isinstance(choice.loss, losses.MatchingLoss)


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (1e-3, 2.0)])
def test_a_loss_with_a_cap_tells_nothing_above_it_apart(a: float, b: float) -> None:
    seconds, cap = 60.0 * np.random.default_rng(0).weibull(0.6, (200, 10)), 300.0
    both: dict[str, Any] = {"scores": a * seconds + b, "cap": a * cap + b, "dtype": "float64"}
    both["reduction"] = "none"
    squares = losses.design(**both).loss
    link = losses.design(**both, label_map=links.labels.affine(1.0, 0.0)).loss
    idle = a * np.array([[300.0], [320.0], [5000.0]]) + b
    assert {type(squares), type(link)} == {losses.MeanSquaredLoss, losses.MatchingLoss}
    assert len({*squares(idle, np.zeros([3, 1])).numpy()}) == 1
    np.testing.assert_allclose(link(idle, idle[::-1]), 0.0, atol=1e-12)
    assert np.all(link(idle, np.full([3, 1], a * 250.0 + b)) > 0.0)
    same = losses.design(**both | {"scores": np.minimum(both["scores"], both["cap"])}).loss
    assert squares.lower == pytest.approx(same.lower, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": range(100), "cap": 80.0}, "`cap` must be above 89, where the region begins"),
        ({"scores": range(100), "cap": 95.0, "at": 95.0}, "must be above 95, where"),
        ({"cap": 95.0}, "`cap` requires 'high_score', `scores`"),
        ({"scores": range(100), "cap": 95.0, "ranking": True}, "ranking=False. Received: cap=95"),
    ],
)
def test_a_cap_without_use_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        losses.design(**arguments)


@pytest.mark.parametrize(
    ("scores", "share", "message"),
    [
        (np.ones([2, 3]), 0.1, "`scores` must be finite.*Received: 6 scores"),
        ([1.0, np.inf], 0.1, "`scores` must be finite"),
        ([1.0, 2.0], 0.5, r"`share` must be in \(0, 0.5\)"),
    ],
    ids=["equal", "infinite", "half"],
)
def test_scores_without_a_region_are_refused(
    scores: np.ndarray, share: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        losses.design(scores=scores, share=share)


def _distributions() -> dict[str, np.ndarray]:
    random, shape = np.random.default_rng(0), (200, 10)
    sparse = {
        f"revenue, {share:.0%} zeros": np.where(
            random.random(shape) < share, 0.0, random.lognormal(3.0, 1.0, shape)
        )
        for share in (0.8, 0.95, 0.99)
    }
    tails = {f"log-normal {x}": random.lognormal(0.0, x, shape) for x in (0.5, 1.0, 2.0, 4.0, 5.0)}
    return {
        **sparse,
        **tails,
        "normal": random.normal(size=shape),
        "uniform": random.uniform(size=shape),
        "exponential": random.exponential(60.0, shape),
        "durations, idle after 300": np.minimum(60.0 * random.weibull(0.6, shape), 300.0),
        "Student": random.standard_t(2, shape),
        "Pareto": random.pareto(1.5, shape),
        "Poisson": random.poisson(3.0, shape).astype(float),
        "two modes": random.normal(random.choice([-5.0, 5.0], shape)),
        "clicks": (random.random(shape) < 0.1).astype(float),
        "grades": random.choice(5, shape, p=[0.5, 0.3, 0.1, 0.07, 0.03]).astype(float),
        "stars": random.choice([1.0, 2.0, 3.0, 4.0, 5.0], shape, p=[0.05, 0.05, 0.1, 0.3, 0.5]),
        "losses": -random.lognormal(0.0, 2.0, shape),
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("wanted", [x for x in get_args(Wanted) if "score" not in x])
@pytest.mark.parametrize("ranking", [True, False])
def test_defaults_fit_usual_scores_or_the_error_names_what_does(
    wanted: Wanted, ranking: bool
) -> None:
    ranking &= wanted != "low_norm"
    for name, scores in _distributions().items():
        try:
            choice = losses.design(wanted, scores=scores, ranking=ranking)
        except ValueError as error:
            told = str(error)
            [other] = re.findall("no norm: take '(.*?)'", told)
            choice = losses.design(other, scores=scores, ranking=ranking)
        assert choice.verdict.status != "invalid", name


@pytest.mark.long
@given(
    kind=st.sampled_from(sorted(_distributions())),
    factor=st.floats(-6.0, 6.0),
    move=st.floats(-10.0, 10.0),
    seed=st.integers(0, 100),
    wanted=st.sampled_from(choice_of_loss.ENDS),
    ranking=st.booleans(),
    share=st.sampled_from([0.05, 0.1, 0.2, 0.4]),
)
@settings(max_examples=60, deadline=None)
def test_a_design_fits_its_scores_in_every_unit(
    kind: str, factor: float, move: float, seed: int, wanted: Wanted, ranking: bool, share: float
) -> None:
    scores = np.random.default_rng(seed).choice(_distributions()[kind].ravel(), [40, 10])
    assume(len(np.unique(scores)) > 1)
    a = 10.0**factor
    b = move * a * scores.std()
    first, other = (
        losses.design(wanted, scores=x, ranking=ranking, share=share)
        for x in (scores, a * scores + b)
    )
    assert first.verdict.status == other.verdict.status != "invalid"
    assert first.verdict.ranks == ranking
    assert type(first.loss) is type(other.loss)
    assert_moved(first.loss, other.loss, a, b, scores)
    assert np.isfinite(first.loss(scores, scores[::-1]))


def described(scores: np.ndarray, noise: float, random: np.random.Generator) -> np.ndarray:
    """Features of items that tell the order of scores, but for noise."""
    ties = random.random(len(scores))
    rank = np.argsort(np.lexsort((ties, scores))) / len(scores)
    x = np.log((rank + 0.001) / (1.001 - rank)) / 1.8 + noise * random.normal(size=len(scores))
    return np.stack([np.ones_like(x), x, np.tanh(2.0 * x)], axis=1)


def fitted(loss: Any, features: np.ndarray, scores: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The weights of a linear model with the smallest loss, which begins at the mean of a unit."""
    mean, deviation = unit.mean(), unit.std()

    @tf.function
    def step(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            predicted = mean + deviation * tf.linalg.matvec(features, weights)
            value = loss(scores[np.newaxis], predicted[tf.newaxis])
        return value, tape.gradient(value, weights)

    start = tf.zeros(features.shape[1], tf.float64)
    factor = 1.0 / (float(step(start)[0]) or 1.0)
    done = optimize.minimize(
        lambda x: [factor * y.numpy() for y in step(tf.constant(x))],
        start,
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-10, "maxiter": 60},
    )
    return np.append(deviation * done.x, mean)


@pytest.mark.long
@given(
    kind=st.sampled_from(sorted(_distributions())),
    wanted=st.sampled_from(choice_of_loss.ENDS),
    share=st.sampled_from([0.05, 0.1, 0.2, 0.4]),
    noise=st.floats(0.2, 3.0),
    power=st.integers(-6, 6),
    move=st.floats(-10.0, 10.0),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=25, deadline=None)
@pytest.mark.compiled
def test_a_model_of_the_design_is_never_far_below_clipped_squares(
    kind: str, wanted: Wanted, share: float, noise: float, power: int, move: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    scores = random.permutation(_distributions()[kind].ravel())
    scores = 10.0**power * (scores + move * scores.std())
    train, test = scores[:1000], scores[1000:]
    assume(len(np.unique(train)) > 1)
    loss = losses.design(wanted, scores=train, share=share, dtype="float64").loss
    side = 1.0 if wanted == "high_score" else -1.0
    levels = np.unique(side * train)
    start = levels[levels < np.quantile(side * train, 1.0 - share)].max(initial=levels[0])
    clipped = side * np.maximum(side * train, start)
    features, held_out = (described(x, noise, random) for x in (train, test))
    *weights, mean = fitted(loss, features, train, clipped)
    squares = held_out @ np.linalg.lstsq(features, clipped, rcond=None)[0]
    ours, theirs = (
        np.maximum(side * x, start) - np.maximum(side * test, start)
        for x in (mean + held_out @ np.array(weights), squares)
    )
    assert np.sqrt(np.mean(ours**2)) <= 1.1 * np.sqrt(np.mean(theirs**2))
