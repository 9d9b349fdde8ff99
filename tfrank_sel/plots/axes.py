"""Curves of any link and loss, drawn on the axes of a picture."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.links.base import Link
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.metrics import Reliability

Array = NDArray[np.float64]
Interval = tuple[float, float]

AROUND: Interval = (-6.0, 6.0)
LOW_MIDDLE_HIGH = (-3.0, 0.0, 3.0)
COLORS = ("tab:red", "tab:green", "tab:blue", "tab:purple", "tab:brown", "tab:pink")


def draw_link(axes: Axes, link: Link, interval: Interval = AROUND) -> None:
    """Draws a link, solid, and its slope, dashed.

    Args:
        axes: Where to draw.
        link: The link `h`.
        interval: The scores to draw it for; cut to the domain of the link.

    Example:
        >>> import matplotlib.figure
        >>> from tfrank_sel import plots
        >>> axes = matplotlib.figure.Figure().subplots()
        >>> plots.draw_link(axes, links.Sigmoid(shift=4.0))
        >>> [line.get_label() for line in axes.lines]
        ['h', "h'"]
    """
    s = grid(interval, link.domain)
    axes.plot(s, evaluate(link, s), color="black", label="h")
    axes.plot(s, evaluate(link.slope, s), color="tab:orange", linestyle="--", label="h'")


def draw_loss(
    axes: Axes,
    loss: ListwiseLoss,
    labels: Sequence[float] = LOW_MIDDLE_HIGH,
    scores: Sequence[float] | None = None,
    interval: Interval = AROUND,
) -> None:
    """Draws the loss of a list by the predicted score of each item.

    Args:
        axes: Where to draw.
        loss: Any loss.
        labels: The labels of the list; for a matching loss, its observed scores.
        scores: The predicted scores of the items that do not vary; the labels if `None`. They have
            no effect if the loss treats items independently.
        interval: The predicted scores to draw it for.

    Example:
        >>> import matplotlib.figure
        >>> from tfrank_sel import plots
        >>> axes = matplotlib.figure.Figure().subplots()
        >>> plots.draw_loss(axes, losses.SoftmaxLoss(), labels=[0.0, 1.0])
        >>> [line.get_label() for line in axes.lines]
        ['label 0', 'label 1']
    """
    z = grid(interval)
    for k, (label, color) in enumerate(zip(labels, colors(len(labels)), strict=True)):
        if loss.compares_items:
            lists = vary_score(labels if scores is None else scores, k, z)
            observed = np.broadcast_to(np.asarray(labels, np.float64), lists.shape)
        else:
            lists, observed = z[:, np.newaxis], np.full([len(z), 1], label)
        value = of_lists(
            lambda z, *rest, s=observed: loss.per_list(tf.constant(s), z, *rest), lists
        )
        axes.plot(z, value, color=color, label=f"label {label:g}")


def draw_reliability(axes: Axes, found: Reliability, label: str | None = None) -> None:
    """Draws a reliability diagram: the mean label by mean prediction, and the diagonal.

    Args:
        axes: Where to draw.
        found: Bins of predictions, as `metrics.ECE.reliability` returns them. The areas of their
            dots are in proportion to their weights.
        label: Label of the curve.

    Example:
        >>> import matplotlib.figure
        >>> from tfrank_sel import plots
        >>> ece = metrics.ECE()
        >>> ece.update_state([[1.0, 0.0, 0.0]], [[2.0, 0.5, -1.0]])
        >>> axes = matplotlib.figure.Figure().subplots()
        >>> plots.draw_reliability(axes, ece.reliability(), "network")
        >>> axes.lines[-1].get_ydata().tolist()
        [0.0, 0.0, 1.0]
    """
    axes.axline((0.0, 0.0), slope=1.0, color="gray", linestyle=":")
    [line] = axes.plot(found.predictions, found.labels, label=label)
    areas = 200.0 * found.weights / found.weights.sum()
    axes.scatter(found.predictions, found.labels, areas, color=line.get_color())
    axes.set(xlabel="mean prediction", ylabel="mean label")


def grid(interval: Interval, domain: Interval = (-np.inf, np.inf), size: int = 481) -> Array:
    """Returns evenly spaced scores of an interval, inside the domain."""
    width = interval[1] - interval[0]
    low = max(interval[0], domain[0] + 1e-3 * width)
    return np.linspace(low, min(interval[1], domain[1] - 1e-3 * width), size)


def evaluate(f: Callable[..., tf.Tensor], *args: ArrayLike) -> Array:
    """Computes `f` in float64."""
    value: Array = f(*(tf.constant(x, tf.float64) for x in args)).numpy()
    return value


def of_lists(f: Callable[..., tf.Tensor], *lists: Array) -> Array:
    """Computes a function of lists, all of whose items are valid and of weight 1."""
    ones = tf.ones(lists[0].shape, tf.float64)
    value: Array = f(*(tf.constant(x, tf.float64) for x in lists), ones > 0.0, ones).numpy()
    return value


def vary_score(scores: Sequence[float], item: int, s: Array) -> Array:
    """Returns a list for each of `s`, which replaces the score of one item."""
    lists = np.tile(np.asarray(scores, np.float64), [len(s), 1])
    lists[:, item] = s
    return lists


def colors(count: int) -> list[str]:
    """Returns a colour for each score: red, green and blue for a low, a middle and a high one."""
    return [COLORS[i % len(COLORS)] for i in range(count)]
