"""A file of ONNX gives the scores of the model in ONNX Runtime, for lists of any size."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.rankers import FEATURES, KINDS, TYPES, expected, lists, scorer, shaken, typed_lists
from tfrank_sel import export, features as types, models
from tfrank_sel.data import typed

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SHAPES = [(1, 1), (3, 2), (2, 7), (1, 200), (8, 30), (200, 9)]  # batch size, list size


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


@pytest.mark.sample(14)
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
