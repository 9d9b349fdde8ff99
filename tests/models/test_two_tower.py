import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses, models


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    return {"user": rng.integers(0, 5, [64]), "item": rng.integers(0, 9, [64, 4])}


def test_scores_are_inner_products():
    model, x = models.TwoTower(5, 9, 3), inputs()
    scores = model(x)
    users, items = (layer.embeddings.numpy() for layer in (model.users, model.items))
    expected = np.sum(users[x["user"]][:, None] * items[x["item"]], axis=-1)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("jit_compile", [True, False])
def test_it_trains_and_loads(jit_compile, tmp_path):
    keras.utils.set_random_seed(0)
    model, x = models.TwoTower(5, 9, 3), inputs()
    liked = (x["user"][:, None] % 3 == x["item"] % 3).astype("float32")
    model.compile(keras.optimizers.Adam(0.05), losses.RGCrossLoss(), jit_compile=jit_compile)
    history = model.fit(x, liked, epochs=10, verbose=0).history["loss"]
    assert history[-1] < history[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(x), model(x), rtol=1e-6)
    assert loaded.get_config()["num_items"] == 9


def test_scores_are_float32_under_mixed_precision():
    model = models.TwoTower(5, 9, 3, dtype="mixed_bfloat16")
    assert model({k: tf.constant(v) for k, v in inputs().items()}).dtype == tf.float32
