"""Pictures of formulas for the guides.

python -m benchmarks.pictures --output docs [--only metrics]
"""

import argparse
import collections
import pathlib

import numpy as np
import tensorflow as tf
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from examples.figures.panels import legend_below
from tfrank_sel import bounds, links, losses, metrics, models, objectives, plots
from tfrank_sel.data import batching, synthetic

LINKS = {
    "Exp(scale=0.5)": links.Exp(scale=0.5),
    "AntiExp(scale=0.5)": links.AntiExp(scale=0.5),
    "Sinh(scale=0.5)": links.Sinh(scale=0.5),
    "Tanh()": links.Tanh(),
    "Sigmoid(shift=3.0)": links.Sigmoid(shift=3.0),
    "SmeLU(shift=2.0)": links.SmeLU(shift=2.0),
}
PULLS = {
    "SoftmaxLoss": losses.SoftmaxLoss(),
    "PairwiseLogisticLoss": losses.PairwiseLogisticLoss(),
    "LambdaLoss": losses.LambdaLoss(),
    "ApproxNDCGLoss": losses.ApproxNDCGLoss(),
    "SmoothTopKLoss(5)": losses.SmoothTopKLoss(5),
}
WORTHS = {
    "NDCG(10)": metrics.NDCG(10),
    "MRR": metrics.MRR(),
    "ERR": metrics.ERR(max_label=1.0),
    "RBP(0.8)": metrics.RBP(0.8),
    "Hits(10)": metrics.Hits(10),
    "AUC": metrics.AUC(),
}
OBJECTIVES = {
    "SoftmaxLoss": losses.SoftmaxLoss(),
    "RGCrossLoss": losses.RGCrossLoss(),
    "LambdaLoss": losses.LambdaLoss(),
    "ListMLELoss": losses.ListMLELoss(),
}
TOP_5 = {
    "SoftmaxLoss": losses.SoftmaxLoss(),
    "SmoothTopKLoss(5)": losses.SmoothTopKLoss(5),
    "TopKCrossEntropyLoss([1, 5])": losses.TopKCrossEntropyLoss([1, 5]),
}
EXPANSIONS = {
    "SoftmaxLoss": losses.SoftmaxLoss(),
    "RGCrossLoss": losses.RGCrossLoss(),
    "RG2Loss": losses.RG2Loss(),
}


def sensitivity() -> Figure:
    """The loss of a list under four choices of `losses.design`."""
    choices = ("high_score", "low_score", "high_norm", "low_norm")
    figure = Figure(figsize=(7.2, 1.9), layout="constrained")
    axes = figure.subplots(1, len(choices))
    for place, choice in zip(axes, choices, strict=True):
        plots.draw_loss(place, losses.design(choice, ranking=choice != "low_norm").loss)
        place.set(title=choice, xlabel="predicted score", ylabel="")
        place.set_ylim(0.0, 2.0 if choice == "low_norm" else 5.0)
    axes[0].set_ylabel("loss")
    legend_below(figure, axes)
    return figure


def some_links() -> Figure:
    """Links and their slopes."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for place, (name, link) in zip(axes, LINKS.items(), strict=True):
        plots.draw_link(place, link, (-5.0, 5.0))
        place.set_title(name, fontsize=10)
    legend_below(figure, axes)
    return figure


def softmax() -> Figure:
    """What the softmax bounds, as the score of the one relevant item rises past nine others."""
    others = np.linspace(-2.0, 2.0, 9)
    s = np.linspace(-4.0, 8.0, 601)
    scores = np.column_stack([s, np.tile(others, [len(s), 1])])
    labels = np.eye(10)[np.zeros(len(s), int)]
    values = bounds.softmax_bounds(labels, scores)
    figure, axes = one_plot("score of the relevant item", "value of the list")
    for name in ("ndcg", "rr"):
        axes.plot(s, getattr(values, name), label=name.upper())
    axes.plot(s, values.bound, color="black", label="exp(-loss)")
    axes.plot(others, np.zeros(9), "k|", label="scores of the others")
    axes.legend(frameon=False)
    return figure


def ranking_losses() -> Figure:
    """How hard each loss pulls at the one relevant item, by its rank among twenty."""
    figure, axes = one_plot("rank of the relevant item", "pull, of its largest")
    ranks = np.arange(1, 21)
    labels = tf.constant(np.eye(20), tf.float32)
    scores = tf.tile(tf.linspace(5.0, -5.0, 20)[tf.newaxis], [20, 1])
    for name, loss in PULLS.items():
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(labels, scores)
        pulls = -tf.linalg.diag_part(tape.gradient(value, scores)).numpy()
        axes.plot(ranks, pulls / pulls.max(), marker=".", label=name)
    axes.set_xticks([1, 5, 10, 15, 20])
    axes.legend(frameon=False, fontsize=9)
    return figure


def top_5() -> Figure:
    """The losses of the top 5 of twenty, as the right class rises, and the soft membership."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    axes = figure.subplots(1, 2)
    others, s = np.linspace(-3.0, 3.0, 19), np.linspace(-6.0, 6.0, 241)
    scores = np.column_stack([s, np.tile(others, [len(s), 1])])
    labels = np.eye(20)[np.zeros(len(s), int)]
    for name, loss in TOP_5.items():
        values = plots.axes.of_lists(
            lambda z, *rest, f=loss: f.per_list(tf.constant(labels), z, *rest), scores
        )
        axes[0].plot(s, values, label=name)
    for temperature in (1.0, 0.3, 0.05):
        found = models.SoftTopK(5, temperature)(scores)[:, 0]
        axes[1].plot(s, found, label=f"SoftTopK(5, {temperature:g})")
    for place, text in zip(axes, ("loss", "membership in the top 5"), strict=True):
        place.plot(others, np.zeros(19), "k|")
        place.axvline((others[-5] + others[-6]) / 2.0, color="black", lw=0.5, ls=":")
        place.set(xlabel="score of the right class", ylabel=text)
        place.legend(frameon=False, fontsize=8)
    return figure


def derivatives() -> Figure:
    """What boosted trees get of each item: the gradient and the curvature of a list."""
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    axes = figure.subplots(1, 2)
    ranks = np.arange(1, 13)
    labels, scores = np.isin(ranks, [4, 9]), np.linspace(1.5, -1.5, len(ranks))
    for name, loss in OBJECTIVES.items():
        found = objectives.Derivatives(loss, probes=16)(labels, scores, group=[len(ranks)])
        for place, values in zip(axes, found, strict=True):
            place.plot(ranks, values / np.abs(values).max(), marker=".", label=name)
    for place, text in zip(axes, ("gradient", "curvature"), strict=True):
        place.set(xlabel="rank (4 and 9 are relevant)", ylabel=f"{text}, of its largest")
        place.axhline(0.0, color="black", lw=0.5)
        place.set_xticks(ranks[::3])
    legend_below(figure, axes)
    return figure


def factorisation() -> Figure:
    """The losses of RG compared with the softmax that they expand."""
    figure, axes = one_plot("logit of the relevant item, the other nine at 0", "loss")
    s = np.linspace(-4.0, 8.0, 241)
    scores = np.column_stack([s, np.zeros([len(s), 9])])
    labels = np.eye(10)[np.zeros(len(s), int)]
    for name, loss in EXPANSIONS.items():
        values = plots.axes.of_lists(
            lambda z, *rest, f=loss: f.per_list(tf.constant(labels), z, *rest), scores
        )
        axes.plot(s, values, label=name, color="black" if name == "SoftmaxLoss" else None)
    axes.legend(frameon=False)
    return figure


def families() -> Figure:
    """A loss of each of the three families beside a common one."""
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    axes = figure.subplots(1, 3)
    s = np.linspace(-4.0, 6.0, 201)
    for name, link in {"square": links.Identity(), "MatchingLoss(ReLU)": links.ReLU()}.items():
        axes[0].plot(s, link.divergence(s, np.full_like(s, -2.0)), label=name)
    axes[0].set(title="Selective", xlabel="score, label -2", ylabel="loss")
    lists = np.column_stack([s, np.tile(np.linspace(-3.0, 3.0, 19), [len(s), 1])])
    level = np.column_stack([s, np.zeros([len(s), 9])])
    smooth = losses.SmoothTopKLoss(5, tau=0.1, margin=0.2)
    top_k = {"SoftmaxLoss": losses.SoftmaxLoss(), "SmoothTopKLoss(5)": smooth}
    for place, scores, some in ((axes[1], lists, top_k), (axes[2], level, EXPANSIONS)):
        labels = np.eye(scores.shape[1])[np.zeros(len(s), int)]
        for name, loss in some.items():
            values = plots.axes.of_lists(
                lambda z, *rest, f=loss, y=labels: f.per_list(tf.constant(y), z, *rest), scores
            )
            place.plot(s, values, label=name)
    axes[1].set(title="Top-k", xlabel="score of the right item")
    axes[2].set(title="RG", xlabel="score of the right item")
    for place in axes:
        place.legend(frameon=False, fontsize=7)
    return figure


def worths() -> Figure:
    """The value of each metric, by the rank of the one relevant item among twenty."""
    figure, axes = one_plot("rank of the relevant item", "value of the list")
    scores = np.tile(np.arange(20.0, 0.0, -1.0), [20, 1])
    for name, metric in WORTHS.items():
        values = metric.evaluate(np.eye(20), scores).values
        axes.plot(np.arange(1, 21), values, marker=".", label=name)
    axes.set_xticks([1, 5, 10, 15, 20])
    axes.legend(frameon=False, fontsize=9)
    return figure


def padding() -> Figure:
    """How much of the batches is padding, by the number of buckets."""
    figure, axes = one_plot("buckets", "padding, of all slots")
    made = (len(x.labels) for x in synthetic.lists(5000, num_features=4, max_list_size=200))
    sizes = collections.Counter(made)
    counts = np.array(list(sizes.values()))
    shares = []
    for buckets in range(1, 11):
        edges = np.array(batching.bucket_edges(sizes, buckets))
        padded = edges[np.searchsorted(edges, list(sizes))]
        shares.append(1.0 - counts @ np.array(list(sizes)) / (counts @ padded))
    axes.bar(range(1, 11), shares)
    axes.set_xticks(range(1, 11))
    return figure


def one_plot(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.6, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    return figure, axes


PICTURES = {
    "sensitivity": sensitivity,
    "links": some_links,
    "softmax": softmax,
    "ranking_losses": ranking_losses,
    "objectives": derivatives,
    "top_5": top_5,
    "factorisation": factorisation,
    "families": families,
    "metrics": worths,
    "padding": padding,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the folder")
    parser.add_argument("--only", choices=PICTURES, nargs="+", default=list(PICTURES))
    options = parser.parse_args()
    for name in options.only:
        path = options.output / f"{name}.png"
        PICTURES[name]().savefig(path, dpi=200)
        print(path, flush=True)


if __name__ == "__main__":
    main()
