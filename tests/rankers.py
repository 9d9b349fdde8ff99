"""Rankers of each kind with random weights, lists for them, and their scores by Keras."""

import keras
import numpy as np
import tensorflow as tf

from tests.models import test_types as trial
from tfrank_sel import export, features as types, models
from tfrank_sel.data import typed
from tfrank_sel.models.boosted_trees import Forest, Split
from tfrank_sel.models.preparation import column_names

FEATURES = 5
# hashes of texts have no operator, and more than one integer for unknown values needs them
TYPES = {
    **{name: kind for name, kind in trial.FEATURES.items() if name != "seller"},
    "brand": types.Category(dimension=3),
    "shop": types.Category(dtype="int64", dimension=2, of="query"),
    "marks": types.Set(dtype="int64", max_values=2, dimension=3),
}
VOCABULARIES = {**trial.VOCABULARIES, "shop": ["7", "-3"], "marks": ["10", "20"]}


def forest(random, count=7, depth=4):
    def tree(level):
        if level == 0 or random.random() < 0.2:
            return float(random.normal())
        threshold = float(np.float32(random.normal() * 30.0))
        feature, missing_left = int(random.integers(FEATURES)), bool(random.random() < 0.5)
        return Split(feature, threshold, missing_left, tree(level - 1), tree(level - 1))

    trees = [Split(0, 0.0, True, -1.0, 1.0), *(tree(depth) for _ in range(count)), 0.25]
    return models.BoostedTrees._of(Forest(trees, FEATURES), "trees")


def scorer(**options):
    return models.ListScorer([0.5] * FEATURES, [4.0, 0.0, 1.0, 9.0, 1.0], [8, 6], **options)


def typed_preparation():
    count = len(column_names(TYPES))
    moments = [0.3] * count, [2.0] * count
    missing = ["price", "embedding"]
    return models.Preparation(*moments, True, TYPES, VOCABULARIES, missing)


def network(preparation):
    hidden = models.Perceptron([8, 4], num_heads=2, embeddings=preparation.embeddings)
    return models.Prepared(preparation, hidden)


def sequential():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([None, FEATURES]),
            layers.Rescaling(0.02, 0.1),
            layers.Dense(16, activation="gelu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(12, use_bias=False),
            layers.LeakyReLU(0.1),
            layers.LayerNormalization(),
            layers.Dense(6, activation="silu"),
            layers.Dense(1),
        ]
    )


def functional():
    layers = keras.layers
    x = keras.Input([None, FEATURES])
    u = layers.Dense(8, activation="tanh")(layers.Rescaling(0.02)(x))
    attended = layers.MultiHeadAttention(2, 4)(u, u)
    both = layers.Concatenate()([layers.Add()([u, attended]), layers.Dense(4, "softplus")(u)])
    crossed = layers.Multiply()([layers.Dense(12, "sigmoid")(both), both])
    merged = layers.Average()(
        [layers.Maximum()([both, crossed]), layers.Subtract()([both, crossed])]
    )
    grid = layers.Reshape([-1, 3, 4])(merged)
    grid = layers.Permute([1, 3, 2])(layers.Softmax()(grid))
    scores = layers.Dense(1)(layers.ReLU(6.0)(layers.Reshape([-1, 12])(grid)))
    return keras.Model(x, layers.Reshape([-1])(scores))


KINDS = {
    "scorer": lambda random: models.Scorer([0.5] * FEATURES, [4.0] * FEATURES, [8]),
    "list scorer": lambda random: scorer(),
    "list scorer with attention": lambda random: scorer(num_heads=2),
    "perceptron": lambda random: models.Perceptron([8, 4]),
    "types": lambda random: network(typed_preparation()),
    "trees": forest,
    "ensemble": lambda random: models.Ensemble(
        [scorer(), forest(random), models.Scorer([0.0] * FEATURES, [1.0] * FEATURES, [4])],
        shares=[1, 3, 0.5],
    ),
    "Platt": lambda random: models.Recalibrated(scorer(), 1.5, -0.5, max_label=4.0),
    "isotonic": lambda random: models.Recalibrated(
        functional(), 1.5, -0.5, [-1.0, -0.25, 0.5, 2.0], [0.1, 0.4, 0.4, 0.9]
    ),
    "recalibrated ensemble": lambda random: models.Recalibrated(
        models.Ensemble([scorer(), forest(random)]), 1.0, 0.0, [0.25], [0.5]
    ),
    "recalibrated sequential": lambda random: models.Recalibrated(
        sequential(), 1.5, -0.5, [-1.0, 0.5], [0.1, 0.9]
    ),
    "ensemble of a sequential": lambda random: models.Ensemble([sequential(), forest(random)]),
    "sequential": lambda random: sequential(),
    "functional": lambda random: functional(),
}


def lists(random, batch, size):
    """Features and masks; with equal, tiny and huge values, and junk in the padding."""
    scale = random.choice([1e-12, 1.0, 30.0, 300.0], size=[batch, size, FEATURES])
    x = random.normal(size=[batch, size, FEATURES]) * scale
    x = np.where(random.random(x.shape) < 0.3, np.round(x, 1), x)
    mask = random.random([batch, size]) < 0.8
    mask[: batch // 2, : size // 2] = True
    return x.astype(np.float32), mask


def typed_lists(random, batch, size):
    """Named features, some missing, some unknown; and their mask."""
    found, words = {}, {name: [*found, "", "who"] for name, found in VOCABULARIES.items()}
    for name, spec in typed.structure(TYPES).items():
        shape = [n or m for n, m in zip(spec.shape, (batch, size), strict=False)]
        shape += spec.shape[len(shape) :]
        is_missing = random.random(shape[: 1 if TYPES[name].of == "query" else 2]) < 0.2
        is_missing = is_missing.reshape([*is_missing.shape, *[1] * (len(shape) - is_missing.ndim)])
        if isinstance(TYPES[name], types.Timestamp):
            value = random.integers(-(10**9), 2 * 10**9, shape)
            value = np.where(is_missing, types.MISSING_INTEGER, value)
        elif spec.dtype == tf.string:
            value = random.choice(np.array(words[name], object), shape)
        elif spec.dtype == tf.int64:
            value = random.choice([7, -3, 10, 20, 99, types.MISSING_INTEGER], shape)
        else:
            value = np.where(is_missing, np.nan, random.normal(size=shape) * 30.0)
        found[name] = value.astype(spec.dtype.as_numpy_dtype)
    return found, random.random([batch, size]) < 0.8


def expected(model, values, mask):
    """The scores of the Keras model, as the signature `predict` gives them."""
    takes_mask = getattr(model, "takes_mask", False)
    if isinstance(values, dict):
        inputs = {**typed.matrices({n: tf.constant(x) for n, x in values.items()}, TYPES)}
        inputs["mask"] = mask
    else:
        inputs = {"features": values, "mask": mask} if takes_mask else values
    scores = model(inputs, training=False).numpy()
    scores = scores[..., 0] if scores.ndim == 3 else scores
    return np.where(mask, scores, export.PADDING_SCORE) if takes_mask else scores


def shaken(model, random):
    """Gives each weight, and the moving moments, a value of its own."""
    for weight in model.weights:
        if weight.dtype == "float32" and "trees" not in weight.path:
            noise = np.abs(random.normal(size=weight.shape)) * 0.3
            weight.assign(weight + (noise if "variance" in weight.name else noise - 0.2))
