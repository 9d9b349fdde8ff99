"""Recommendation with sampled negatives: softmax, and its variants of 2024 and 2025.

    python -m benchmarks.quality.sampled_softmax --data ml-100k.npz

Embeddings of users and items, compared by cosines; a row is a user, eight of its items and 512 of
all items. One interaction in five, drawn with a fixed seed, is held out, and of the others one in
ten for validation: of six settings of each loss the one is taken, and the epoch, that is best
there by NDCG@20. Recall@20 and NDCG@20 are means over users and three seeds, of all items that the
user has not in training; a difference is to the softmax loss, with its 95 % interval by paired
bootstrap over users. `--data` names a file of the arrays `user` and `item`, from 0 on.

* SL@K: Yang et al., Breaking the Top-K Barrier, 2025. Positives are weighted by
  `sigmoid((s - b) / 0.3)` or `sigmoid(s - b)`, where `b` is the user's 20th best score.
* PSL: Yang et al., PSL: Rethinking and Improving Softmax Loss, 2024. A link in place of `exp` of
  the differences of scores: `1 + tanh(d / 2)`, which is two sigmoids, or `1 + atan(d)`.
* BSL: Wu et al., BSL: Understanding and Improving Softmax Loss, 2024. A temperature for positives,
  of 0.5 or 2 times that for negatives.
* RG^2: Pu et al., NDCG-Consistent Softmax Approximation, 2025, as the mean expansion of a softmax
  of one positive and the 512 negatives.
"""

import argparse
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.quality.judging import interval
from tfrank_sel import links, losses, metrics

Array = NDArray[Any]
# of cosines of positives `[users, 8]` and negatives `[users, 512]`, and the 20th best: of each user
Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

FACTORS = 64
POSITIVES, NEGATIVES, USERS = 8, 512, 256
EPOCHS, EVERY = 40, 4
LEARNING_RATE = 0.03
K = 20
SEEDS = range(3)
ALONE = [(x,) for x in (0.07, 0.1, 0.14, 0.2, 0.28, 0.4)]
TEMPERATURES = (0.1, 0.2, 0.4)
PSL_LINKS = (links.Sigmoid(), links.Sum([links.Constant(), links.Arctan()]))
RG = "`RG2Loss(alpha=1/n, target=0)`"
SETTINGS: dict[str, list[tuple[Any, ...]]] = {
    "`SoftmaxLoss`": ALONE,
    "`InfoNCELoss`": ALONE,
    "SL@K": list(itertools.product(TEMPERATURES, (0.3, 1.0))),
    "PSL": list(itertools.product(TEMPERATURES, PSL_LINKS)),
    "BSL": list(itertools.product(TEMPERATURES, (0.5, 2.0))),
    RG: [(x,) for x in (0.03, 0.07, 0.1, 0.14, 0.2, 0.3)],
}


def loss_of(name: str, temperature: float, other: Any = None) -> Loss:
    """The loss of a row of the table, with one setting."""
    softmax = losses.SoftmaxLoss(temperature=temperature)
    info_nce = losses.InfoNCELoss(temperature=temperature)
    rg = losses.RG2Loss(alpha=1.0 / NEGATIVES, target=0.0)

    def listwise(positive: tf.Tensor, negative: tf.Tensor, loss: Any, weights: Any) -> tf.Tensor:
        labels = tf.concat([tf.ones_like(positive), tf.zeros_like(negative)], axis=1)
        weights = tf.concat([weights, tf.ones_like(negative)], axis=1)
        return loss(labels, tf.concat([positive, negative], axis=1), weights)

    def call(positive: tf.Tensor, negative: tf.Tensor, best: tf.Tensor) -> tf.Tensor:
        if name == "SL@K":
            weights = tf.stop_gradient(tf.sigmoid((positive - best[:, tf.newaxis]) / other))
            return listwise(positive, negative, info_nce, weights)
        if name == "PSL":
            gaps = negative[:, tf.newaxis] - positive[..., tf.newaxis]
            powers = tf.math.log(tf.maximum(other(gaps), 1e-6)) / temperature
            return tf.reduce_mean(tf.reduce_logsumexp(powers, axis=-1))
        if name == "BSL":
            of_positive = other * temperature
            gain = of_positive * tf.reduce_logsumexp(positive / of_positive, axis=1)
            cost = temperature * tf.reduce_logsumexp(negative / temperature, axis=1)
            return tf.reduce_mean(cost - gain) / temperature
        if name == RG:  # negatives alone stand for all items
            parts = positive / temperature, negative / temperature
            return listwise(*parts, rg, tf.zeros_like(positive))
        loss = softmax if name == "`SoftmaxLoss`" else info_nce
        return listwise(positive, negative, loss, tf.ones_like(positive))

    return call


class Data:
    """The interactions of a file, split; the items of each user are stored in one row."""

    def __init__(self, path: pathlib.Path) -> None:
        with np.load(path) as stored:
            user, item = (stored[name].astype(np.int64) for name in ("user", "item"))
        random = np.random.default_rng(0)
        drawn = random.random(len(user))
        self.num_users, self.num_items = int(user.max()) + 1, int(item.max()) + 1
        self.parts = [
            (user[part], item[part])
            for part in (drawn >= 0.28, (drawn >= 0.2) & (drawn < 0.28), drawn < 0.2)
        ]
        (user, item), *_ = self.parts
        order = np.argsort(user, kind="stable")
        self.items, self.counts = item[order], np.bincount(user, minlength=self.num_users)
        self.starts = np.cumsum(self.counts) - self.counts

    def epoch(self, random: np.random.Generator) -> Iterator[tuple[Array, Array, Array]]:
        """Draws users in proportion to their interactions, their items, and any items."""
        for _ in range(len(self.items) // (USERS * POSITIVES)):
            users = random.choice(self.num_users, USERS, p=self.counts / self.counts.sum())
            places = random.random([USERS, POSITIVES]) * self.counts[users, np.newaxis]
            items = self.items[self.starts[users, np.newaxis] + places.astype(np.int64)]
            yield users, items, random.integers(0, self.num_items, NEGATIVES)

    def quality(self, scores: Array, part: int) -> Array:
        """Recall@20 and NDCG@20 of each user with an item in a part, `[2, users]`."""
        labels = np.zeros(scores.shape, np.float32)
        for earlier in self.parts[:part]:
            labels[earlier] = np.nan
        labels[self.parts[part]] = 1.0
        users = np.unique(self.parts[part][0])
        both = metrics.Evaluator([metrics.Recall(K), metrics.NDCG(K)])(labels[users], scores[users])
        return np.stack([x.values for x in both.values()])


def trained(data: Data, loss: Loss, seed: int) -> Iterator[Array]:
    """Cosines of all users and items after every fourth epoch."""
    random = np.random.default_rng(seed)
    tables = [
        tf.Variable(random.normal(size=[count, FACTORS]).astype(np.float32))
        for count in (data.num_users, data.num_items)
    ]
    means, squares = ([tf.Variable(tf.zeros_like(x)) for x in tables] for _ in range(2))
    steps = tf.Variable(0.0)

    def cosines_of(users: tf.Tensor) -> tf.Tensor:
        of_users, items = (tf.math.l2_normalize(x, axis=1) for x in tables)
        return tf.matmul(tf.gather(of_users, users), items, transpose_b=True)

    @tf.function(autograph=False)
    def best_of(users: tf.Tensor) -> tf.Tensor:  # XLA takes ten times as long
        return tf.math.top_k(cosines_of(users), K).values[:, -1]

    @tf.function(jit_compile=True, autograph=False)
    def step(users: tf.Tensor, positives: tf.Tensor, negatives: tf.Tensor, best: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            cosines = cosines_of(users)
            parts = (
                tf.gather(cosines, positives, batch_dims=1),
                tf.gather(cosines, negatives, axis=1),
            )
            value = loss(*parts, best)
        rate = LEARNING_RATE * tf.sqrt(1.0 - 0.999 ** steps.assign_add(1.0)) / (1.0 - 0.9**steps)
        for x, m, v, g in zip(tables, means, squares, tape.gradient(value, tables), strict=True):
            m.assign(0.9 * m + 0.1 * g)
            v.assign(0.999 * v + 0.001 * tf.square(g))
            x.assign_sub(rate * m / (tf.sqrt(v) + 1e-7))

    for epoch in range(1, EPOCHS + 1):
        for drawn in data.epoch(random):
            users, *others = map(tf.constant, drawn)
            step(users, *others, best_of(users))
        if epoch % EVERY == 0:
            yield cosines_of(tf.range(data.num_users)).numpy()


def row(data: Data, name: str) -> tuple[tuple[Any, ...], Array]:
    """The best setting, and the quality for each test user with it: the mean over seeds."""

    def validated(setting: tuple[Any, ...]) -> tuple[float, int]:
        found = trained(data, loss_of(name, *setting), seed=len(SEEDS))
        values = [float(data.quality(x, 1)[1].mean()) for x in found]
        return max(values), int(np.argmax(values))

    best = {setting: validated(setting) for setting in SETTINGS[name]}
    setting = max(best, key=lambda x: best[x][0])
    stage = best[setting][1]
    stages = (trained(data, loss_of(name, *setting), seed) for seed in SEEDS)
    values = [data.quality(next(itertools.islice(x, stage, None)), 2) for x in stages]
    return setting, np.mean(values, axis=0)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="File of interactions.")
    parser.add_argument("--losses", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    options = parser.parse_args()
    data, base = Data(options.data), None
    print(f"| loss | setting | Recall@20 | NDCG@20 | - the first row (95 %) |\n{'|---' * 5}|")
    for name in options.losses:
        setting, (recall, ndcg) = row(data, name)
        base = ndcg if base is None else base
        low, high = interval(ndcg - base)
        gap = "" if ndcg is base else f"{(ndcg - base).mean():+.4f} ({low:+.4f} to {high:+.4f})"
        told = ", ".join(map(str, setting))
        print(f"| {name} | {told} | {recall.mean():.4f} | {ndcg.mean():.4f} | {gap} |", flush=True)


if __name__ == "__main__":
    main()
