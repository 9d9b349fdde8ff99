"""Training of LightGBM, XGBoost and CatBoost with our losses, against their own ranking objectives.

    python -m benchmarks.speed.objectives

Each trains the same number of trees, of 31 leaves (CatBoost: of 32), on the same data on one core.
The sizes of the lists are those of MQ2008 and of MSLR-WEB30K. The first call compiles the loss.
"""

import functools
import importlib
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.speed import rows
from benchmarks.speed.interleaved import use_one_core
from tfrank_sel import losses, objectives

TREES = 100
LOSSES = {
    "RGCrossLoss": losses.RGCrossLoss,
    "SoftmaxLoss": losses.SoftmaxLoss,
}
# lists, features, and the sizes of the lists
SHAPES = {
    "MQ2008's sizes": (471, 46, (6, 121)),
    "MSLR's sizes": (300, 136, (40, 200)),
}


# features, labels and sizes of the lists
Data = tuple[np.ndarray, np.ndarray, np.ndarray]
Train = Callable[[], object]


def data(shape: tuple[int, int, tuple[int, int]]) -> Data:
    """Random data of a shape."""
    count, num_features, (smallest, largest) = shape
    random = np.random.default_rng(0)
    # most lists are short
    sizes = np.round(smallest * (largest / smallest) ** (random.random(count) ** 2)).astype(int)
    features = random.normal(size=(sizes.sum(), num_features)).astype(np.float32)
    noisy = features[:, :8].sum(axis=1) + 3.0 * random.normal(size=len(features))
    return features, np.digitize(noisy, [1.0, 3.0, 5.0, 7.0]), sizes


def lightgbm(given: Data, loss: losses.ListwiseLoss | None) -> Train:
    """Training with a loss of ours, or by lambdarank."""
    import lightgbm

    features, labels, sizes = given
    stored = lightgbm.Dataset(features, labels, group=sizes).construct()
    objective = "lambdarank" if loss is None else objectives.lightgbm(loss)
    params = {"objective": objective, "metric": "None", "num_threads": 1, "verbose": -1}
    return lambda: lightgbm.train(params, stored, TREES)


def xgboost(given: Data, loss: losses.ListwiseLoss | None) -> Train:
    """Training with a loss of ours, or by rank:ndcg."""
    import xgboost

    features, labels, sizes = given
    matrix = xgboost.QuantileDMatrix(features, labels, group=sizes)
    params = {"grow_policy": "lossguide", "max_leaves": 31, "max_depth": 0, "nthread": 1}
    params |= {"min_child_weight": 0.01, "disable_default_eval_metric": 1}
    if loss is None:
        return lambda: xgboost.train({**params, "objective": "rank:ndcg"}, matrix, TREES)
    objective = objectives.xgboost(loss)
    return lambda: xgboost.train(params, matrix, TREES, obj=objective)


def catboost(given: Data, loss: losses.ListwiseLoss | None) -> Train:
    """Training with a loss of ours, or by YetiRank."""
    import catboost

    features, labels, sizes = given
    pool = catboost.Pool(features, labels, group_id=np.repeat(np.arange(len(sizes)), sizes))
    params = {"depth": 5, "thread_count": 1, "logging_level": "Silent"}
    params |= {"allow_writing_files": False}
    if loss is not None:
        return lambda: objectives.train_catboost(params, pool, loss, TREES)
    return lambda: catboost.train(pool, {**params, "loss_function": "YetiRank"}, iterations=TREES)


LIBRARIES = {"lightgbm": lightgbm, "xgboost": xgboost, "catboost": catboost}


def compare(rounds: int) -> Iterator[rows.Found]:
    """Yields a row for each library, loss and shape."""
    peers, left_out = rows.installed(
        {name: functools.partial(importlib.import_module, name) for name in LIBRARIES}
    )
    yield from left_out
    for peer in peers:
        train = LIBRARIES[peer.name]
        for name, shape in SHAPES.items():
            given = data(shape)
            ours = {
                f"{TREES} trees by {loss}, {name}": train(given, make())
                for loss, make in LOSSES.items()
            }
            yield from rows.compare(ours, {peer: train(given, None)}, rounds)


def main() -> None:
    parser = rows.parser(__doc__ or "", rounds=5)
    options = parser.parse_args()
    use_one_core()
    rows.show(compare(options.rounds), options.json)


if __name__ == "__main__":
    main()
