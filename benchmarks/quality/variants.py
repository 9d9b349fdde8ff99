"""Variants of the network of the pipelines, by validation NDCG@10 on several LETOR sets.

    python -m benchmarks.quality.variants --data MQ2008 MSLR --results results

Each variant is trained with `RGCrossLoss` on each fold of a set, as `tfrank-sel-pipelines run`
does, until the validation NDCG@10 gets no better, without the decay of the weights unless it is
what varies. The first row has the mean of the best values; the others have the difference from it
with its standard error over folds and seeds. Test lists have no part in it. `--data` is as in
`benchmarks.quality.equal`. What `--results` holds is not computed again.
"""

import argparse
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.quality import default
from benchmarks.quality.data import Lists, folds
from tfrank_sel import losses, models
from tfrank_sel.pipelines.candidates import Candidate, Settings, list_scorer


class Noisy(keras.Model):
    """A perceptron whose features have noise in training: a layer of Keras, and its argument."""

    takes_mask = True

    def __init__(self, settings: Settings, layer: str, strength: float) -> None:
        super().__init__()
        self.noise = getattr(keras.layers, layer)(strength)
        self.network = models.Perceptron(settings.hidden_units, settings.dropout)

    def build(self, shape: Any) -> None:
        self.network.build(shape)
        self.built = True

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        features = self.noise(inputs["features"], training=training)
        return self.network({**inputs, "features": features}, training=training)


class Blocks(keras.Model):
    """Blocks of attention over the list, and of a hidden layer (allRank).

    With `cross`, the attention multiplies the vector of an item instead of being added, as the
    latent cross of DASALC.
    """

    takes_mask = True

    def __init__(self, blocks: int, cross: bool, dropout: float, width: int = 64) -> None:
        super().__init__()
        self.cross = cross
        self.first = keras.layers.Dense(width)
        self.attentions = [keras.layers.MultiHeadAttention(2, width // 2) for _ in range(blocks)]
        self.hidden = [keras.layers.Dense(width, "relu") for _ in range(blocks)]
        self.norms = [keras.layers.LayerNormalization() for _ in range(2 * blocks)]
        self.drop = keras.layers.Dropout(dropout)
        self.score = keras.layers.Dense(1)

    def build(self, shape: Mapping[str, Any]) -> None:
        self.built = True
        self({"features": tf.zeros([1, 1, shape["features"][-1]]), "mask": tf.ones([1, 1], bool)})

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        mask = inputs["mask"]
        seen = (mask | ~tf.reduce_any(mask, axis=1, keepdims=True))[:, tf.newaxis]
        u = self.first(inputs["features"])
        for i, (attention, hidden) in enumerate(zip(self.attentions, self.hidden, strict=True)):
            found = self.drop(attention(u, u, attention_mask=seen), training=training)
            u = self.norms[2 * i](u * (1.0 + found) if self.cross else u + found)
            u = self.norms[2 * i + 1](u + self.drop(hidden(u), training=training))
        return self.score(u)[..., 0]


class Smoothed(keras.losses.Loss):
    """`RGCrossLoss` of labels that are moved towards the mean of their list."""

    def __init__(self, share: float) -> None:
        super().__init__(name="smoothed")
        self.share = share
        self.loss = losses.RGCrossLoss(reduction="none")

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        is_item = y_true >= 0.0
        labels = tf.where(is_item, y_true, 0.0)
        count = tf.reduce_sum(tf.cast(is_item, labels.dtype), axis=1, keepdims=True)
        mean = tf.math.divide_no_nan(tf.reduce_sum(labels, axis=1, keepdims=True), count)
        smoothed = (1.0 - self.share) * labels + self.share * mean
        return self.loss(tf.where(is_item, smoothed, -1.0), y_pred)


def noisy(
    preparation: models.Preparation, settings: Settings, layer: str, strength: float
) -> keras.Model:
    return models.Prepared(preparation, Noisy(settings, layer, strength))


def attending(
    preparation: models.Preparation, settings: Settings, blocks: int, cross: bool = False
) -> keras.Model:
    return models.Prepared(preparation, Blocks(blocks, cross, settings.dropout))


@dataclasses.dataclass(frozen=True)
class Variant:
    """What differs from the network of the pipelines.

    Args:
        settings: Of training and network.
        make_model: Of the model, with its arguments.
        arguments: The latter.
        loss: The loss.
        then: A second loss, which goes on from the model of the first.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    make_model: Callable[..., keras.Model] = list_scorer
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    loss: keras.losses.Loss = dataclasses.field(default_factory=losses.RGCrossLoss)
    then: keras.losses.Loss | None = None


BASE = "64 and 32 hidden units, dropout 0.3, averaged weights"
VARIANTS = {
    BASE: Variant(),
    "weights decay by 1 % in each pass": Variant({"weight_decay": 0.01}),
    "weights decay by 3 % in each pass (default)": Variant({"weight_decay": 0.03}),
    "weights decay by 10 % in each pass": Variant({"weight_decay": 0.1}),
    "128 and 64 hidden units": Variant({"hidden_units": (128, 64)}),
    "256, 128 and 64 hidden units": Variant({"hidden_units": (256, 128, 64)}),
    "attention before the output": Variant({"num_heads": 2}),
    "two blocks of attention": Variant(make_model=attending, arguments={"blocks": 2}),
    "latent cross": Variant(make_model=attending, arguments={"blocks": 1, "cross": True}),
    **{
        f"noise of {x:g} on features": Variant({}, noisy, {"layer": "GaussianNoise", "strength": x})
        for x in (0.1, 0.5)
    },
    "features dropped at a rate of 0.3": Variant({}, noisy, {"layer": "Dropout", "strength": 0.3}),
    "last weights, not averaged": Variant({"averaging": 0.0}),
    "weights averaged over five times as many steps": Variant({"averaging": 0.996}),
    "labels smoothed by a tenth": Variant(loss=Smoothed(0.1)),
    "LambdaLoss": Variant(loss=losses.LambdaLoss()),
    "LambdaLoss after RGCrossLoss": Variant(then=losses.LambdaLoss()),
}


def best(train: default.Train, variant: Variant, seed: int) -> float:
    """The best validation NDCG@10 of a training."""
    settings = Settings(seed=seed, **{"weight_decay": 0.0, **variant.settings})
    trained = train(Candidate(variant.loss, variant.make_model, variant.arguments), settings)
    if variant.then is not None:
        after = Candidate(variant.then, variant.make_model, variant.arguments)
        trained = train(after, settings, start=trained.model)
    return trained.fits[0].validation_ndcg


def measured(fold: dict[str, Lists], path: pathlib.Path, seeds: Sequence[int]) -> dict[str, Any]:
    """The best validation NDCG@10 of each variant and seed, computed unless they are stored."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    missing = [(x, str(seed)) for x in VARIANTS for seed in seeds if f"{seed} {x}" not in found]
    if not missing:
        return found
    with default.trainer(fold) as train:
        for name, seed in missing:
            found[f"{seed} {name}"] = best(train, VARIANTS[name], int(seed))
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(found))
            partial.rename(path)
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, nargs="+", required=True, help="folders")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="what is kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of training")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    columns = {}
    for path in options.data:
        columns[path.name] = [
            measured(fold, options.results / f"{path.name} {i}.json", options.seeds)
            for i, fold in enumerate(folds(path))
        ]
    print(f"| variant | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
    for name in VARIANTS:
        cells = []
        for of_folds in columns.values():
            values, base = (
                np.array([[fold[f"{seed} {x}"] for seed in options.seeds] for fold in of_folds])
                for x in (name, BASE)
            )
            gaps = (values - base).ravel()
            error = gaps.std(ddof=1) / np.sqrt(len(gaps))
            cells.append(
                f"{values.mean():.4f}" if name == BASE else f"{gaps.mean():+.4f} ± {error:.4f}"
            )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
