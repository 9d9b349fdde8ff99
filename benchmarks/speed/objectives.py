"""Training of LightGBM with our losses, beside its own lambdarank.

    python -m benchmarks.speed.objectives

Each trains the same number of trees, of 31 leaves, on the same data on one core. The sizes of the
lists are those of MQ2008 and of MSLR-WEB30K. The first call compiles the loss.
"""

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


def call(objective: object, shape: tuple[int, int, tuple[int, int]]) -> Callable[[], object]:
    """Trains trees on random data of a shape."""
    import lightgbm

    count, num_features, (smallest, largest) = shape
    random = np.random.default_rng(0)
    # most lists are short
    sizes = np.round(smallest * (largest / smallest) ** (random.random(count) ** 2)).astype(int)
    features = random.normal(size=(sizes.sum(), num_features)).astype(np.float32)
    noisy = features[:, :8].sum(axis=1) + 3.0 * random.normal(size=len(features))
    labels = np.digitize(noisy, [1.0, 3.0, 5.0, 7.0])
    data = lightgbm.Dataset(features, labels, group=sizes).construct()
    params = {"objective": objective, "metric": "None", "num_threads": 1, "verbose": -1}
    return lambda: lightgbm.train(params, data, TREES)


def compare(rounds: int) -> Iterator[rows.Found]:
    """Yields a row for each loss and shape."""
    peers, left_out = rows.installed({"lightgbm": lambda: __import__("lightgbm")})
    yield from left_out
    for peer in peers:
        for name, shape in SHAPES.items():
            ours = {
                f"{TREES} trees by {loss}, {name}": call(objectives.lightgbm(make()), shape)
                for loss, make in LOSSES.items()
            }
            yield from rows.compare(ours, {peer: call("lambdarank", shape)}, rounds)


def main() -> None:
    parser = rows.parser(__doc__ or "", rounds=5)
    options = parser.parse_args()
    use_one_core()
    rows.show(compare(options.rounds), options.json)


if __name__ == "__main__":
    main()
