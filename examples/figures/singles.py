"""Figures of one idea each: 1, 5, E.1, E.2, F.1, I.1 and BUST."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfrank_sel import links
from tfrank_sel.plots.axes import (
    AROUND,
    LOW_MIDDLE_HIGH,
    Array,
    colors,
    draw_link,
    evaluate,
    grid,
)

from .composites import LIST_LOSS, LOSS, SHARES
from .panels import Composite, Decomposed, Subject, figure_of, legend_below

SQUARE = (-1.0, 7.0)
LEVELS = 0.05 * 2.0 ** np.arange(8.0)


def figure_1() -> Figure:
    """Draws the matching loss as an area: between a link and its value at the observed score."""
    link, observed, predicted = links.Sigmoid(), -1.0, 2.0
    s, between = grid(AROUND), grid((observed, predicted))
    h, level = evaluate(link, between), float(evaluate(link, observed))
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(s, evaluate(link, s), color="black", label="h(z)")
    area = float(evaluate(link.divergence, predicted, observed))
    axes.fill_between(between, level, h, alpha=0.4, label=f"matching loss, {area:.3f}")
    axes.hlines(level, observed, predicted, linestyles=":", color="gray")
    axes.vlines([observed, predicted], 0.0, [level, h[-1]], linestyles="--", color="gray")
    axes.set_xticks([-6, -4, -2, observed, 0, predicted, 4, 6])
    axes.set(xlabel="score", ylabel="h", title=f"s = {observed:g}, predicted {predicted:g}")
    axes.legend(loc="upper left")
    return figure


def figure_5() -> Figure:
    """Draws the losses of a list of two: the decomposed one does not compare them."""
    exp = links.Exp(scale=0.5)
    subjects: list[tuple[str, Subject]]
    subjects = [
        ("decomposed", Decomposed(links.Scaled(exp, 0.5))),
        ("composite Softmax", Composite(exp)),
    ]
    columns = [(*subject, second) for subject in subjects for second in (1.0, 3.0, 5.0)]
    figure = Figure(figsize=(18.5, 9.0), layout="constrained")
    figure.suptitle("Two items, Exp, a=0.5: loss of each score, contours and surface")
    for place, (name, subject, second) in enumerate(columns, start=1):
        axes = figure.add_subplot(3, 6, place, title=f"{name}\ns = (3, {second:g})")
        _project(axes, subject, (3.0, second))
        axes.set(xlabel="predicted score", ylabel="loss", ylim=(0.0, 8.0))
        axes = figure.add_subplot(3, 6, 6 + place)
        first, other, loss = _plane(subject, (3.0, second))
        axes.contour(first, other, loss, levels=LEVELS, cmap="viridis")
        axes.plot([3.0], [second], "r+", markersize=10)
        axes.set(xlabel="first score", ylabel="second score")
        axes = figure.add_subplot(3, 6, 12 + place, projection="3d")
        axes.plot_surface(first, other, np.minimum(loss, 20.0), cmap="viridis")
        axes.set(xlabel="first", ylabel="second", zlim=(0.0, 20.0))
        axes.view_init(30, -120)
    figure.axes[0].legend(loc="upper left", fontsize=8)
    return figure


def figure_e1() -> Figure:
    """Draws squared errors weighted by scores, which are not selective losses."""

    def weight(t: Array) -> Array:
        return 0.5 * (t - min(LOW_MIDDLE_HIGH) + 0.5)

    z = np.linspace(-3.5, 6.0, 481)
    weights: dict[str, Callable[[float], Array]] = {
        "weight by the observed score": lambda s: weight(np.full_like(z, s)),
        "weight by the predicted score": lambda s: weight(z),
        "weight by both": lambda s: weight(np.full_like(z, s)) * weight(z),
    }
    figure = Figure(figsize=(12.0, 3.6), layout="constrained")
    figure.suptitle("Weighted squared errors")
    row = figure.subplots(1, 3)
    for axes, (title, w) in zip(row, weights.items(), strict=True):
        for s, color in zip(LOW_MIDDLE_HIGH, colors(3), strict=True):
            square = evaluate(links.Identity().divergence, z, np.full_like(z, s))
            axes.plot(z, w(s) * square, color=color, label=f"s = {s:g}")
        axes.set(title=title, xlabel="predicted score", ylim=(0.0, 20.0))
        axes.grid(alpha=0.3)
    legend_below(figure, row[:1])
    return figure


def figure_e2() -> Figure:
    """Draws the standard softmax, which no shift changes, though it changes the scalar loss."""
    subjects = [Composite(links.Constant(shift=shift)) for shift in (0.0, 3.0, -3.0)]
    return figure_of([(x, subjects) for x in (SHARES, LOSS, LIST_LOSS)], "The standard softmax")


def _project(axes: Axes, subject: Subject, scores: tuple[float, float]) -> None:
    z = grid(SQUARE)
    for k, color in enumerate(("tab:red", "tab:blue")):
        lists = np.tile(scores, [len(z), 1])
        lists[:, k] = z
        loss = subject.list_loss(lists, np.tile(scores, [len(z), 1]))
        axes.plot(z, loss, color=color, label="first" if k == 0 else "second")
    axes.grid(alpha=0.3)


def _plane(subject: Subject, scores: tuple[float, float]) -> tuple[Array, Array, Array]:
    first, second = np.meshgrid(grid(SQUARE, size=81), grid(SQUARE, size=81))
    lists = np.stack([first.ravel(), second.ravel()], axis=-1)
    loss = subject.list_loss(lists, np.tile(scores, [len(lists), 1]))
    return first, second, loss.reshape(first.shape)


FIRST, LAST = 0.05, 0.1  # of I.1: the label of many examples, and that of the last, for n = 0


def two_regimes() -> tuple[Array, Array]:
    """Returns the features, `[30, 2]`, and the scores of experiment F.1.

    The low scores are in the second feature, the fewer high scores in the first. The other feature
    is a nuisance, 1 or 3, which a linear model without a bias cannot distinguish from a score.
    """
    rows = [((nuisance, s), s) for s in np.arange(-10.0, 0.0) for nuisance in (1.0, 3.0)]
    rows += [((s, nuisance), s) for s in np.arange(6.0, 11.0) for nuisance in (1.0, 3.0)]
    features, scores = zip(*rows, strict=True)
    return np.array(features), np.array(scores)


def linear_fit(link: links.Link, features: Array, scores: Array) -> Array:
    """Minimises the mean matching loss of a linear model without a bias, by Newton's steps."""

    def loss(w: Array) -> float:
        return float(np.mean(evaluate(link.divergence, features @ w, scores)))

    w = np.linalg.lstsq(features, scores, rcond=None)[0].astype(np.float64)
    for _ in range(200):
        gradient = features.T @ (evaluate(link, features @ w) - evaluate(link, scores))
        hessian = (features.T * evaluate(link.slope, features @ w)) @ features
        move = np.linalg.lstsq(hessian, -gradient, rcond=None)[0]
        size = 1.0
        while size > 1e-12 and loss(w + size * move) > loss(w):
            size *= 0.5
        w = w + size * move
        if np.max(np.abs(size * move)) <= 1e-14 * np.max(np.abs(w)):
            break
    return w


def last_label(n: int) -> float:
    """Returns the label of the last example of experiment I.1, after `n` of label 0.05."""
    return LAST + FIRST * n


def figure_f1() -> Figure:
    """Draws linear fits to two regimes, of which a loss selects one, and to the mirror image."""
    x, s = two_regimes()
    rows: list[tuple[str, links.Link]] = [
        (f"Sigmoid, b={shift:g}", links.Sigmoid(shift=shift)) for shift in (10.0, 0.0, -10.0)
    ]
    rows.append(("squared error", links.Identity()))
    figure = Figure(figsize=(14.0, 11.0), layout="constrained")
    figure.suptitle("A linear fit to few high and many low scores; right: to its mirror image")
    axes = figure.subplots(len(rows), 5)
    for row, (name, link) in zip(axes, rows, strict=True):
        draw_link(row[0], link, (-12.0, 12.0))
        row[0].set_title(name, fontsize=10)
        for pair, features, scores in ((row[1:3], x, s), (row[3:], -x[:, ::-1], -s)):
            w = linear_fit(link, features, scores)
            _draw_weights(pair[0], link, w, features, scores)
            _draw_fit(pair[1], w, features, scores)
        for place in row:
            place.grid(alpha=0.3)
    heads = ("score", "first weight", "observed score", "first weight", "observed score")
    for place, head in zip(axes[-1], heads, strict=True):
        place.set_xlabel(head)
    legend_below(figure, [axes[0, 0], axes[0, 2]])
    return figure


def figure_i1() -> Figure:
    """Draws the best bias: of many low labels and a higher one, and of two labels."""
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    counts, distances = np.arange(1, 19), np.linspace(0.0, 5.0, 51)
    for scale, color in zip((1.0, 5.0, 20.0), colors(3), strict=True):
        best = [best_bias(scale, int(n)) for n in counts]
        left.plot(counts, best, color=color, marker=".", label=f"Exp, a={scale:g}")
    left.plot(counts, [last_label(int(n)) for n in counts], "k--", label="last label")
    left.set(xlabel="examples of label 0.05", ylabel="best bias", title="One higher label")
    left.set_xticks(range(2, 19, 4))
    for scale, color in zip((0.5, 1.0, 2.0), colors(3), strict=True):
        lift = [lift_of_bias(scale, float(d)) for d in distances]
        right.plot(distances, lift, color=color, label=f"Exp, a={scale:g}")
    right.plot(distances, distances, "k--", label="higher label")
    right.set(xlabel="distance of both labels from their mean", title="Two labels")
    right.set_ylabel("best bias, above the mean")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def best_bias(scale: float, n: int) -> float:
    """Returns the best constant for `n` labels of 0.05 and the last one, with the link `Exp`."""
    labels = [FIRST] * n + [last_label(n)]
    return float(links.constant_predictor(links.Exp(scale=scale), labels))


def lift_of_bias(scale: float, distance: float) -> float:
    """Returns the difference between the best constant for two labels and their mean."""
    return float(links.constant_predictor(links.Exp(scale=scale), [-distance, distance]))


def _draw_weights(axes: Axes, link: links.Link, w: Array, features: Array, scores: Array) -> None:
    """Draws contours of the loss over both weights, and its minimum."""
    first, second = np.meshgrid(grid((-1.0, 3.0), size=61), grid((-1.0, 3.0), size=61))
    predicted = np.stack([first.ravel(), second.ravel()], axis=-1) @ features.T
    loss = evaluate(link.divergence, predicted, np.broadcast_to(scores, predicted.shape))
    mean = loss.mean(axis=-1).reshape(first.shape)
    axes.contour(first, second, mean, levels=np.geomspace(mean.min(), mean.max(), 13)[1:-1])
    axes.plot(*w, "r+", markersize=10)
    axes.set_title(f"w = ({w[0]:.3f}, {w[1]:.3f})", fontsize=10)
    axes.set_ylabel("second weight")


def _draw_fit(axes: Axes, w: Array, features: Array, scores: Array) -> None:
    predicted = features @ w
    high = scores > 0.0
    for where, color, label in ((high, "tab:blue", "high"), (~high, "tab:red", "low")):
        axes.plot(scores[where], predicted[where], "o", markersize=4, color=color, label=label)
    axes.plot([-10.0, 10.0], [-10.0, 10.0], color="gray", linestyle="--")
    axes.set_ylabel("predicted score")


# distributions of scores in [-5, 5], as shares of 1,000 scores at evenly spaced quantiles
_QUANTILES = (np.arange(1000.0) + 0.5) / 1000.0
SPREADS: dict[str, Array] = {
    "scores spread evenly": 10.0 * _QUANTILES - 5.0,
    "few high scores": 10.0 * _QUANTILES**3 - 5.0,
    "many high scores": 5.0 - 10.0 * _QUANTILES**3,
}


def figure_bust() -> Figure:
    """Draws which errors a bias follows, by link and by the distribution of the scores."""
    chosen: dict[str, links.Link] = {
        "squared error": links.Identity(),
        "Sigmoid, b=3": links.Sigmoid(shift=3.0),
        "Exp, a=0.5": links.Exp(scale=0.5),
        "Sinh, a=0.5": links.Sinh(scale=0.5),
    }
    figure = Figure(figsize=(15.0, 3.8), layout="constrained")
    row, ends = figure.subplots(1, 1 + len(SPREADS)), (-5.0, 5.0)
    at, shares = grid(ends, size=41), np.linspace(0.0, 1.0, 13) ** 2
    for (name, link), color in zip(chosen.items(), colors(len(chosen)), strict=True):
        for axes, (title, observed) in zip(row, SPREADS.items(), strict=False):
            update = [links.bust(link, float(w), 0.5, ends, observed) for w in at]
            axes.plot(at, update, color=color, label=name)
            axes.set(title=title, xlabel="score of the error")
        row[-1].plot(shares, [bias_of_regions(link, float(x)) for x in shares], color=color)
    row[0].set_ylabel("BUST of a step of 0.5")
    row[-1].set(title="every score 1 too near to 0", ylabel="best bias")
    row[-1].set_xlabel("share of high scores")
    for axes in row:
        axes.grid(alpha=0.3)
    legend_below(figure, row[:1])
    return figure


def bias_of_regions(link: links.Link, share: float) -> float:
    """Returns the best bias if scores of -3 are predicted as -2, and those of 3 as 2."""
    return links.best_bias(link, [-2.0, 2.0], [-3.0, 3.0], [1.0 - share, share])
