import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses, models
from tfrank_sel.losses import margin


def features(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_outputs_are_cosines_of_vectors_of_any_length():
    layer, x = models.CosineClassifier(3), features(5, 4)
    cosines = layer(x)
    [w] = layer.get_weights()
    expected = x @ w / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(w, axis=0)
    np.testing.assert_allclose(cosines, expected, rtol=1e-5, atol=1e-6)
    for scale in (1e-30, 1e30):
        np.testing.assert_allclose(layer(scale * x), expected, rtol=1e-5, atol=1e-6)


def test_a_zero_vector_has_cosine_and_gradient_zero():
    layer, x = models.CosineClassifier(3), tf.zeros([1, 4])
    with tf.GradientTape() as tape:
        tape.watch(x)
        cosines = layer(x)
    np.testing.assert_array_equal(cosines, np.zeros([1, 3]))
    assert np.all(np.isfinite(tape.gradient(cosines, x)))


def test_cosines_are_float32_under_mixed_precision():
    layer = models.CosineClassifier(3, dtype="mixed_bfloat16")
    x = features(5, 4)
    cosines = layer(x)
    assert cosines.dtype == tf.float32
    [w] = layer.get_weights()
    expected = x @ w / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(w, axis=0)
    np.testing.assert_allclose(cosines, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("used", [margin.CosFace(0.35), margin.ArcFace(0.5)], ids=repr)
def test_a_margin_retrieves_every_item_of_a_separable_set(used, tmp_path):
    keras.utils.set_random_seed(2)
    centres = features(8, 6, seed=1)
    classes = np.arange(160) % 8
    x = centres[classes] + 0.1 * features(160, 6, seed=2)
    embed = keras.Sequential([keras.Input([6]), keras.layers.Dense(6)])
    model = keras.Sequential([embed, models.CosineClassifier(8)])
    model.compile(
        keras.optimizers.Adam(0.02), losses.MarginSoftmaxLoss(used, scale=16.0), jit_compile=True
    )
    model.fit(x, classes, batch_size=80, epochs=60, verbose=0)
    np.testing.assert_array_equal(model.predict(x, verbose=0).argmax(axis=1), classes)
    unit = embed.predict(x, verbose=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    similarity = unit @ unit.T - 2.0 * np.eye(len(x))
    np.testing.assert_array_equal(classes[similarity.argmax(axis=1)], classes)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6)
