"""Ranking quality on LETOR sets, compared with boosted trees, tensorflow-ranking and keras-rs.

    python -m benchmarks.quality train --data DIR --scores FOLDER [--rows NAME ...]
    python -m benchmarks.quality judge --data DIR --scores FOLDER --table quality.md --plot q.png

`train` writes the test scores of each row (all that are not in FOLDER yet and whose library is
installed; tensorflow-ranking's under the second stack). Five folds, three seeds, four settings for
each; the setting and the stage of training (epochs, trees) are chosen on the validation lists of
the fold, by the same rule for all. All losses train the same network (64 and 32 hidden units,
dropout, Adam, averaged weights); the last rows the one of `models.ListScorer`, whose features are
relative to the list, too, and ensembles of its seeds; ten other seeds of some rows show the
variance between training seeds. `tfrank-sel-pipelines run` is what that command trains without any
option, one setting.

`judge` measures with pytrec_eval: gain 2^relevance - 1, the mean over all queries, where one
without a relevant document counts 0. Intervals are of the difference to LightGBM, by paired
bootstrap over queries, 95 %.
"""

import argparse
import functools
import importlib.util
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks.quality import judging, networks, trees
from benchmarks.quality.data import Lists, folds
from benchmarks.quality.selection import SEEDS, Scores
from tfrank_sel import links, losses, models, objectives

Row = Callable[..., Scores]  # of folds and `seeds`

BASE = "LightGBM lambdarank"


def keras_rs_network(name: str, within: bool = False) -> Row:
    """Trains the network with a loss of keras-rs."""

    def train(data: Sequence[dict[str, Lists]], seeds: Sequence[int] = SEEDS) -> Scores:
        import keras_rs

        loss = getattr(keras_rs.losses, name)(reduction="sum")

        def masked(labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            mask = labels >= 0.0
            given = {"labels": tf.where(mask, labels, 0.0), "mask": mask}
            if name == "ListMLELoss":  # one value a list
                return loss(given, scores, sample_weight=weights)
            return loss(given, scores, sample_weight=tf.broadcast_to(weights, tf.shape(scores)))

        return networks.train(masked, data, within=within, seeds=seeds)

    return train


def ranking_network(name: str, within: bool = False) -> Row:
    """Trains the network with a loss of tensorflow-ranking."""

    def train(data: Sequence[dict[str, Lists]], seeds: Sequence[int] = SEEDS) -> Scores:
        import tensorflow_ranking as tfr

        loss = getattr(tfr.keras.losses, name)(reduction="sum")
        return networks.train(loss, data, within=within, seeds=seeds, jit_compile=False)

    return train


def default_of_pipelines(
    data: Sequence[dict[str, Lists]],
    has_trees: bool = True,
    seeds: Sequence[int] = SEEDS,
) -> Scores:
    """Trains what the pipelines do without any option, or without trees."""
    from benchmarks.quality import default
    from tfrank_sel.pipelines.candidates import Trees

    trees = Trees(parameters={"num_threads": 1}) if has_trees else None
    return default.train(data, trees, seeds)


def estimator(
    data: Sequence[dict[str, Lists]], members: int | None = None, seeds: Sequence[int] = SEEDS
) -> Scores:
    """Trains the estimator without any option, or with another number of models."""
    from tfrank_sel import Ranker

    found: Scores = {}
    for number, fold in enumerate(data):
        features, labels, sizes = {}, {}, {}
        for part, lists in fold.items():
            features[part] = np.concatenate([x.features for x in lists])
            labels[part] = np.concatenate([x.labels for x in lists])
            sizes[part] = [len(x.labels) for x in lists]
        for seed in seeds:
            ranker = Ranker(members=members, random_state=seed).fit(
                features["train"],
                labels["train"],
                group=sizes["train"],
                eval_set=[(features["vali"], labels["vali"])],
                eval_group=[sizes["vali"]],
            )
            scores = ranker.predict(features["test"], group=sizes["test"])
            found[number, seed] = np.split(scores, np.cumsum(sizes["test"])[:-1])
    return found


def ours(
    loss: type[losses.ListwiseLoss],
    *arguments: Any,
    within: bool = False,
    seeds: Sequence[int] = SEEDS,
) -> Row:
    """Trains the network with one of our losses, which is summed over lists."""
    summed = loss(*arguments, reduction="sum")
    return functools.partial(networks.train, summed, within=within, seeds=seeds)


def trees_of(
    objective: losses.ListwiseLoss | str, steepness: float = 0.0, within: bool = False
) -> Row:
    """Trains LightGBM with one of our losses, or one of its own, and weights by the label."""
    if not isinstance(objective, str):
        objective = objectives.lightgbm(objective)
    fit = functools.partial(trees.lightgbm, objective=objective, steepness=steepness)
    return functools.partial(trees.train, fit, within=within)


def softmax_by_labels(data: Sequence[dict[str, Lists]]) -> Scores:
    """Trains with our softmax loss and the weights of lists of tensorflow-ranking's."""
    loss = losses.SoftmaxLoss(reduction="sum")

    def weighted(labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        total = tf.reduce_sum(tf.maximum(labels, 0.0), axis=1, keepdims=True)
        return loss(labels, scores, sample_weight=weights * total)

    return networks.train(weighted, data, within=False)


def soft_top_gain(labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Minus the share of the gain of each list that is in its differentiable top 5."""
    mask = labels >= 0.0
    gains = tf.where(mask, 2.0**labels - 1.0, 0.0)
    shares = tf.math.divide_no_nan(gains, tf.reduce_sum(gains, axis=1, keepdims=True))
    return -tf.reduce_sum(weights * shares * models.SoftTopK(5.0)(scores, mask=mask))


TOGETHER = (losses.ListMLELoss, losses.LambdaLoss, losses.RGCrossLoss)
GRADES = links.Sigmoid(scale=1.0, shift=1.0)  # centred on the middle grade
ROWS: dict[str, Row] = {
    BASE: functools.partial(trees.train, trees.lightgbm),
    "XGBoost rank:ndcg": functools.partial(trees.train, trees.xgboost),
    "LightGBM, our RGCrossLoss": trees_of(losses.RGCrossLoss()),
    "LightGBM, our SoftmaxLoss": trees_of(losses.SoftmaxLoss()),
    "LightGBM, our SelectiveSoftmaxLoss(Sigmoid)": trees_of(losses.SelectiveSoftmaxLoss(GRADES)),
    "LightGBM, our MatchingLoss(Exp)": trees_of(losses.MatchingLoss(links.Exp(scale=1.0))),
    "LightGBM regression": trees_of("regression"),
    "LightGBM regression, weights exp(label)": trees_of("regression", steepness=1.0),
    "keras-rs ListMLELoss": keras_rs_network("ListMLELoss"),
    "keras-rs PairwiseLogisticLoss": keras_rs_network("PairwiseLogisticLoss"),
    "tensorflow-ranking SoftmaxLoss": ranking_network("SoftmaxLoss"),
    "tensorflow-ranking ApproxNDCGLoss": ranking_network("ApproxNDCGLoss"),
    "tensorflow-ranking ListMLELoss": ranking_network("ListMLELoss"),
    "SoftmaxLoss": ours(losses.SoftmaxLoss),
    "SoftmaxLoss, lists weighted by their labels": softmax_by_labels,
    "SelectiveSoftmaxLoss(Sigmoid)": ours(losses.SelectiveSoftmaxLoss, GRADES),
    "SelectiveSoftmaxLoss(Exp)": ours(losses.SelectiveSoftmaxLoss, links.Exp(scale=0.5)),
    "MatchingLoss(Exp)": ours(losses.MatchingLoss, links.Exp(scale=1.0)),
    "SmoothTopKLoss(3)": ours(losses.SmoothTopKLoss, 3),
    "TopKCrossEntropyLoss([1, 5])": ours(losses.TopKCrossEntropyLoss, [1, 5]),
    "LambdaLoss": ours(losses.LambdaLoss),
    "ApproxNDCGLoss": ours(losses.ApproxNDCGLoss),
    "ApproxNDCGLoss(Laplace)": ours(losses.ApproxNDCGLoss, 0.1, links.Laplace()),
    "SpearmanLoss": ours(losses.SpearmanLoss),
    "gain of a soft top 5": functools.partial(networks.train, soft_top_gain, within=False),
    "ListMLELoss": ours(losses.ListMLELoss),
    "RG2Loss": ours(losses.RG2Loss),
    "RGCrossLoss": ours(losses.RGCrossLoss),
    "tfrank-sel-pipelines run": default_of_pipelines,
    "tfrank-sel-pipelines run, model.trees=false": functools.partial(
        default_of_pipelines, has_trees=False
    ),
    "ListScorer, SelectiveSoftmaxLoss(Sigmoid)": ours(
        losses.SelectiveSoftmaxLoss, GRADES, within=True
    ),
    "ListScorer, ListMLELoss": ours(losses.ListMLELoss, within=True),
    "ListScorer, LambdaLoss": ours(losses.LambdaLoss, within=True),
    "ListScorer, RGCrossLoss": ours(losses.RGCrossLoss, within=True),
    **{
        f"ListScorer, {loss.__name__}, ten seeds": ours(loss, within=True, seeds=range(3, 13))
        for loss in TOGETHER
    },
}
LIBRARIES = {
    "LightGBM": "lightgbm",
    "XGBoost": "xgboost",
    "CatBoost": "catboost",
    "scikit-learn": "sklearn",
    "keras-rs": "keras_rs",
    "tensorflow-ranking": "tensorflow_ranking",
    "tfrank-sel-pipelines": "tensorflow_metadata",
}
ENSEMBLES = {
    "Ensemble of seeds, LightGBM": [BASE],
    "Ensemble of seeds, LightGBM and ListScorer": [BASE, "ListScorer, RGCrossLoss"],
    "Ensemble of seeds, RGCrossLoss": ["ListScorer, RGCrossLoss"],
    "Ensemble of ten seeds, RGCrossLoss": ["ListScorer, RGCrossLoss, ten seeds"],
    "Ensemble of seeds, three losses": [f"ListScorer, {x.__name__}" for x in TOGETHER],
    "Ensemble of ten seeds, three losses": [
        f"ListScorer, {x.__name__}, ten seeds" for x in TOGETHER
    ],
}


def is_installed(row: str) -> bool:
    """Whether the library of a row is there."""
    library = LIBRARIES.get(row.partition(" ")[0].rstrip(","))
    return library is None or importlib.util.find_spec(library) is not None


def train(data: Sequence[dict[str, Lists]], folder: pathlib.Path, rows: Sequence[str]) -> None:
    """Writes the scores of rows that have none yet, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in rows:
        path = folder / f"{name}.npz"
        if path.exists() or not is_installed(name):
            continue
        began = time.perf_counter()
        scores = ROWS[name](data)
        judging.save(path, scores)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        tf.keras.backend.clear_session()


def judge(data: Sequence[dict[str, Lists]], folder: pathlib.Path) -> dict[str, Any]:
    """Measures every row that has scores, and the ensembles of those."""
    scores: Mapping[str, Scores] = {path.stem: judging.load(path) for path in folder.glob("*.npz")}
    found = {name: judging.means(data, scores[name]) for name in ROWS if name in scores}
    for name, members in ENSEMBLES.items():
        if all(member in scores for member in members):
            found[name] = judging.means(data, judging.ensemble([scores[x] for x in members]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stage", choices=["train", "judge"])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of a LETOR set")
    parser.add_argument("--scores", type=pathlib.Path, required=True, help="folder of the scores")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--table", type=pathlib.Path, help="Markdown file to write")
    parser.add_argument("--plot", type=pathlib.Path, help="picture to write")
    options = parser.parse_args()
    data = folds(options.data)
    if options.stage == "train":
        train(data, options.scores, options.rows)
        return
    found = judge(data, options.scores)
    lines = [
        "| | " + " | ".join(judging.MEASURES) + " | NDCG@10 - LightGBM's (95 %) |",
        "|---|" + "---|" * (len(judging.MEASURES) + 1),
    ]
    gaps = {}
    for name, values in found.items():
        gap = values["NDCG@10"] - found[BASE]["NDCG@10"]
        gaps[name] = (gap.mean(), *judging.interval(gap))
        cells = " | ".join(f"{values[measure].mean():.4f}" for measure in judging.MEASURES)
        low_to_high = "" if name == BASE else "{:+.4f} ({:+.4f} to {:+.4f})".format(*gaps[name])
        lines.append(f"| {name} | {cells} | {low_to_high} |")
    print("\n".join(lines))
    if options.table:
        options.table.write_text("\n".join(lines) + "\n")
    if options.plot:
        from benchmarks.quality import plot  # the second stack has no Matplotlib

        plot.draw(gaps).savefig(options.plot)


if __name__ == "__main__":
    main()
