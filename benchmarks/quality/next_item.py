"""The next item of a user, among all items: recall at 1, 5 and 20 of softmax and top-k losses.

    python -m benchmarks.quality.next_item --data ml-100k.npz --results results

A user is the mean vector of its items; a linear layer scores all items. One item of each user is
kept for the test and one for validation; a step takes one of the others as the next item of each
user of the batch, and the rest as the items of the user, which are no candidates. Four settings of
each loss are judged by the recall at 5 on validation items, and the number of steps with them; the
table shows means over three seeds and users, and the difference of the recall at 20 to the softmax
loss with its 95 % interval by paired bootstrap over users. `--data` names a file of the arrays
`user` and `item`, from 0 on. What `--results` holds is not computed again.
"""

import argparse
import itertools
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.quality.judging import interval
from tfrank_sel import losses

Array = NDArray[Any]

FACTORS = 64
BATCH_SIZE = 256
STEPS, EVERY = 1200, 200
SEEDS = range(3)
RECALLS = (1, 5, 20)
CHOSEN_BY = 5
DROPPED = 0.5  # share of the numbers of a user's vector
RATES = (3e-3, 1e-2)
LOSSES: dict[str, list[losses.ListwiseLoss]] = {
    "`SoftmaxLoss`": [losses.SoftmaxLoss(temperature=t) for t in (1.0, 2.0)],
    "`SmoothTopKLoss(5)`": [losses.SmoothTopKLoss(5, tau=t) for t in (0.5, 1.0)],
    "`SmoothTopKLoss(20)`": [losses.SmoothTopKLoss(20, tau=t) for t in (0.5, 1.0)],
    "`TopKCrossEntropyLoss([1, 5])`": [
        losses.TopKCrossEntropyLoss([1, 5], temperature=t) for t in (1.0, 2.0)
    ],
    "`TopKCrossEntropyLoss([1, 5, 20])`": [
        losses.TopKCrossEntropyLoss([1, 5, 20], temperature=t) for t in (1.0, 2.0)
    ],
}


class Data:
    """Which items each user took, and the two that are kept apart."""

    def __init__(self, path: pathlib.Path) -> None:
        with np.load(path) as stored:
            user, item = stored["user"].astype(int), stored["item"].astype(int)
        self.taken = np.zeros([user.max() + 1, item.max() + 1], np.float32)
        self.taken[user, item] = 1.0
        self.taken = self.taken[self.taken.sum(axis=1) > 3.0]
        random = np.random.default_rng(0)
        self.validation = self._kept(random)
        self.test = self._kept(random)

    def _kept(self, random: np.random.Generator) -> Array:
        """Takes one item from each user."""
        kept = np.argmax(self.taken * random.random(self.taken.shape), axis=1)
        self.taken[np.arange(len(kept)), kept] = 0.0
        return kept

    def recalls(self, scores: Array, kept: Array) -> Array:
        """Whether the kept item is among the first 1, 5 and 20 that are new, `[3, users]`."""
        scores = np.where(self.taken > 0.0, -np.inf, scores)
        above = np.sum(scores > np.take_along_axis(scores, kept[:, np.newaxis], axis=1), axis=1)
        return np.stack([above < k for k in RECALLS]).astype(float)


def trained(data: Data, loss: losses.ListwiseLoss, rate: float, seed: int) -> Iterator[Array]:
    """The scores of all items for all users, after every 200 steps."""
    random = np.random.default_rng(seed)
    num_items = data.taken.shape[1]
    draw = tf.random.Generator.from_seed(seed)
    vectors = [random.normal(size=[num_items, FACTORS]) / np.sqrt(FACTORS) for _ in range(2)]
    weights = [tf.Variable(x.astype(np.float32)) for x in (*vectors, np.zeros(num_items))]
    optimizer = tf.keras.optimizers.Adam(rate)
    optimizer.build(weights)
    taken = tf.constant(data.taken)

    def scores_of(items: tf.Tensor, keep: float) -> tf.Tensor:
        mean = items @ weights[0] / tf.sqrt(tf.reduce_sum(items, axis=1, keepdims=True) + 1.0)
        if keep < 1.0:
            mean *= tf.cast(draw.uniform(tf.shape(mean)) < keep, tf.float32) / keep
        return mean @ tf.transpose(weights[1]) + weights[2]

    @tf.function(jit_compile=True, autograph=False)
    def step(users: tf.Tensor, following: tf.Tensor) -> None:
        labels = tf.one_hot(following, num_items)
        items = tf.gather(taken, users) - labels
        with tf.GradientTape() as tape:
            scores = scores_of(items, 1.0 - DROPPED)
            value = loss(tf.where(items > 0.0, -1.0, labels), scores)
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))

    for number in range(1, STEPS + 1):
        users = random.integers(len(data.taken), size=BATCH_SIZE)
        following = np.argmax(data.taken[users] * random.random([BATCH_SIZE, num_items]), axis=1)
        step(tf.constant(users), tf.constant(following))
        if number % EVERY == 0:
            yield scores_of(taken, 1.0).numpy()


def row(data: Data, name: str) -> dict[str, Any]:
    """The best setting of a loss, and the recalls of the users with it, the mean over seeds."""

    def validated(loss: losses.ListwiseLoss, rate: float) -> tuple[float, int]:
        found = trained(data, loss, rate, seed=len(SEEDS))
        at = RECALLS.index(CHOSEN_BY)
        values = [data.recalls(scores, data.validation)[at].mean() for scores in found]
        return max(values), int(np.argmax(values))

    settings = list(itertools.product(LOSSES[name], RATES))
    best = [validated(*setting) for setting in settings]
    number = best.index(max(best))
    loss, rate = settings[number]
    stages = (trained(data, loss, rate, seed) for seed in SEEDS)
    last = [next(itertools.islice(x, best[number][1], None)) for x in stages]
    found = np.mean([data.recalls(scores, data.test) for scores in last], axis=0)
    config = loss.get_config()
    told = {key: config[key] for key in ("tau", "temperature") if key in config}
    told |= {"learning rate": rate, "steps": EVERY * (best[number][1] + 1)}
    return {"setting": told, "recalls": found.tolist()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="file of interactions")
    parser.add_argument(
        "--results", type=pathlib.Path, required=True, help="folder to keep results in"
    )
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    data = Data(options.data)
    columns = [f"Recall@{k}" for k in RECALLS]
    print(f"| loss | setting | {' | '.join(columns)} | - the first row (95 %) |\n{'|---' * 6}|")
    base = None
    for name in LOSSES:
        path = options.results / f"{name.strip('`')}.json"
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(row(data, name)))
            partial.rename(path)
        stored = json.loads(path.read_text())
        recalls = np.array(stored["recalls"])
        base = recalls[-1] if base is None else base
        gap = recalls[-1] - base
        low, high = interval(gap)
        difference = f"{gap.mean():+.4f} ({low:+.4f} to {high:+.4f})" if gap.any() else ""
        told = ", ".join(f"{key} {value:g}" for key, value in stored["setting"].items())
        cells = " | ".join(f"{x:.4f}" for x in recalls.mean(axis=1))
        print(f"| {name} | {told} | {cells} | {difference} |", flush=True)


if __name__ == "__main__":
    main()
