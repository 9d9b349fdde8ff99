"""A file of ONNX gives the scores of the model in ONNX Runtime, for lists of any size."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models import test_types as trial
from tfrank_sel import export, features as types, models
from tfrank_sel.data import typed
from tfrank_sel.models.boosted_trees import Forest, Split
from tfrank_sel.models.preparation import column_names

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

FEATURES = 5
SHAPES = [(1, 1), (3, 2), (2, 7), (1, 200), (8, 30), (200, 9)]  # batch size, list size
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


@pytest.fixture
def run(tmp_path):
    """Exports a model, and returns its scores by ONNX Runtime."""

    def runner(model):
        path = tmp_path / "model.onnx"
        export.onnx(model, path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options)
        return lambda inputs, *names: session.run([*names] or ["scores"], inputs)

    return runner


def shaken(model, random):
    """Gives each weight, and the moving moments, a value of its own."""
    for weight in model.weights:
        if weight.dtype == "float32" and "trees" not in weight.path:
            noise = np.abs(random.normal(size=weight.shape)) * 0.3
            weight.assign(weight + (noise if "variance" in weight.name else noise - 0.2))


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_those_of_the_model(kind, run) -> None:
    random = np.random.default_rng(1)
    keras.utils.set_random_seed(1)
    model = KINDS[kind](random)
    batches = [(typed_lists if kind == "types" else lists)(random, *shape) for shape in SHAPES]
    for values, mask in batches[:1]:
        expected(model, values, mask)  # builds it
    shaken(model, random)
    ranker = run(model)
    for values, mask in batches:
        if isinstance(model, models.BoostedTrees):
            values[random.random(values.shape) < 0.1] = np.nan
        names = {name: spec.name for name, spec in typed.structure(TYPES).items()}
        inputs = (
            {names[name]: value for name, value in values.items()}
            if isinstance(values, dict)
            else {"features": values}
        )
        if getattr(model, "takes_mask", False):
            inputs["mask"] = mask
        [found] = ranker(inputs)
        wanted = expected(model, values, mask)
        assert found.dtype == np.float32
        scale = np.abs(wanted[wanted > export.PADDING_SCORE]).max(initial=1e-3)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * scale)
        assert (found == export.PADDING_SCORE).sum() == (wanted == export.PADDING_SCORE).sum()


def test_a_mask_is_optional(run) -> None:
    random = np.random.default_rng(2)
    model = scorer()
    values, _ = lists(random, 3, 5)
    wanted = expected(model, values, np.ones([3, 5], bool))
    [found] = run(model)({"features": values})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_towers_give_scores_and_vectors(run) -> None:
    model = models.TwoTower(num_users=5, num_items=9, num_factors=4)
    random = np.random.default_rng(3)
    inputs = {"user": random.integers(0, 5, 3), "item": random.integers(0, 9, [3, 7])}
    wanted = model(inputs).numpy()
    scores, users, items = run(model)(inputs, "scores", "users", "items")
    np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(users, model.users(inputs["user"]))
    np.testing.assert_array_equal(items, model.items(inputs["item"]))


def test_texts_match_in_their_usual_spellings(run) -> None:
    features = {"x": types.Number(), "word": types.Category(encoding="one_hot")}
    vocabulary = ["true", "7", "2024-01-02 03:04:05", "2024-01-02", "7.50", "acme"]
    layer = models.Preparation([0.0], [1.0], False, features, {"word": vocabulary})
    model = models.Prepared(layer, models.Perceptron([8]))
    spellings = [*vocabulary, "True", "TRUE", "7.0", "2024-01-02T03:04:05Z", "2024-01-02 00:00:00"]
    spellings += ["7.5", "Acme", "who", "", "false"]
    texts = np.array([spellings], object)
    inputs = {"x": np.zeros(texts.shape, np.float32), "word": texts}
    prepared = {"features": inputs["x"][..., None], "texts": texts[..., None].astype("S")}
    wanted = model({**prepared, "mask": np.ones(texts.shape, bool)}).numpy()
    [found] = run(model)(inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


class Custom(keras.layers.Dense):
    """A layer of a user's own, of which the export knows nothing."""


def sequence(*layers):
    return keras.Sequential([keras.Input([None, FEATURES]), *layers])


def hashing():
    features = {"x": types.Number(), "shop": types.Hash(buckets=9)}
    layer = models.Preparation([0.0], [1.0], False, features)
    model = models.Prepared(layer, models.Perceptron([4]))
    values = {"features": tf.zeros([1, 1, 1]), "texts": tf.constant([[["a"]]])}
    model({**values, "mask": tf.constant([[True]])})  # builds it
    return model


REFUSED = {
    "Custom": lambda: sequence(Custom(1, name="mine")),
    "Lambda": lambda: sequence(keras.layers.Lambda(lambda x: x), keras.layers.Dense(1)),
    "activation mish": lambda: sequence(keras.layers.Dense(1, activation="mish")),
    "the last": lambda: keras.Sequential([keras.Input([4, 1]), keras.layers.BatchNormalization(1)]),
    "mask_zero": lambda: sequence(keras.layers.Embedding(9, 1, mask_zero=True)),
    "hashes of texts, of feature 'shop'; expected a Category": hashing,
    "SoftTopK": lambda: keras.Sequential([keras.Input([4]), models.SoftTopK(1.0)]),
    "`users`.* not built; call the model once": lambda: models.TwoTower(2, 3, 4),
    "`preparation`.* not built": lambda: models.Scorer([0.0], [1.0], [4]),
    "must give scores": lambda: sequence(keras.layers.Dense(2)),
}


@pytest.mark.parametrize("named", REFUSED)
def test_a_model_without_a_form_in_onnx_is_an_error_and_leaves_no_file(named, tmp_path) -> None:
    with pytest.raises(ValueError, match=named):
        export.onnx(REFUSED[named](), tmp_path / "model.onnx")
    assert not [*tmp_path.iterdir()]


def test_a_file_is_never_overwritten(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        export.onnx(sequence(keras.layers.Dense(1)), path)
    assert path.read_text() == "mine"
