import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import models


def scorer(**changed):
    arguments = {"mean": [0.5, 0.0, 1.0], "variance": [1.0, 4.0, 0.0], "hidden_units": [8, 4]}
    return models.Scorer(**{**arguments, **changed})


def features(*shape, seed=0):
    return np.random.default_rng(seed).normal(0.0, 9.0, shape).astype(np.float32)


def test_scores_are_those_of_the_formula():
    model, x = scorer(hidden_units=[]), features(2, 5, 3)
    scores = model(x)
    [kernel, bias] = (w.numpy() for w in model.weights)
    u = (np.sign(x) * np.log1p(np.abs(x)) - [0.5, 0.0, 1.0]) / [1.0, 2.0, np.inf]
    np.testing.assert_allclose(scores, (u @ kernel + bias)[..., 0], rtol=1e-5, atol=1e-6)


def test_an_item_is_scored_alone():
    model, x = scorer(), features(2, 5, 3)
    apart = [model(x[:, i : i + 1]) for i in range(5)]
    np.testing.assert_allclose(model(x), tf.concat(apart, axis=1), rtol=1e-5, atol=1e-6)


def test_a_saved_model_scores_the_same(tmp_path):
    model, x = scorer(dropout=0.5), features(2, 5, 3)
    scores = model(x)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), scores)
    assert loaded.get_config()["dropout"] == 0.5


@pytest.mark.sample(4)
@pytest.mark.parametrize("jit_compile", [True, False])
def test_it_trains(jit_compile):
    keras.utils.set_random_seed(1)
    model, x = scorer(mean=[0.0] * 3, variance=[1.0] * 3), features(32, 5, 3)
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=jit_compile)
    losses = model.fit(x, np.sign(x[..., 0]), epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]


def test_scores_are_float32_under_mixed_precision():
    model = scorer(dtype="mixed_bfloat16")
    assert model(features(1, 2, 3)).dtype == tf.float32


def test_another_number_of_features_is_refused():
    with pytest.raises(ValueError, match=r"list_size, 3\]. Received"):
        scorer()(features(1, 2, 4))


def test_moments_standardise_the_items_and_leave_out_constants():
    x = features(40, 6, 3)
    x[..., 1], x[..., 2] = 0.1, 1e6
    x[::2, :, 2] = np.nextafter(np.float32(1e6), np.float32(2e6))
    mask = np.random.default_rng(1).random([40, 6]) < 0.7
    x[~mask] = np.nan
    mean, variance = models.moments(x, mask)
    items = np.sign(x[mask]) * np.log1p(np.abs(x[mask].astype(np.float64)))
    np.testing.assert_allclose(mean, items.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(variance, [items[:, 0].var(), 0.0, 0.0], rtol=1e-12)
    assert models.moments(x[mask]) == models.moments(x, mask)


@pytest.mark.parametrize(
    ("x", "mask"), [([[1.0], [np.inf]], None), (np.zeros([0, 3]), None), ([[1.0]], [False])]
)
def test_moments_need_finite_items(x, mask):
    with pytest.raises(ValueError, match="must have at least one item and finite values"):
        models.moments(x, mask)


def test_moments_of_a_dataset_are_refused():
    with pytest.raises(ValueError, match=r"`features` must be an array. Received: \w+Dataset"):
        models.moments(tf.data.Dataset.from_tensor_slices(features(4, 2, 3)))


@pytest.mark.long
def test_moments_of_many_items_take_less_memory_than_the_items():
    x = np.random.default_rng(0).normal(size=[2**20, 16]).astype(np.float32)
    peaks = []
    for _ in range(3):  # a thread of another test may take memory in one of them
        tracemalloc.start()
        mean, variance = models.moments(x)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert min(peaks) < x.nbytes
    compressed = np.sign(x) * np.log1p(np.abs(x.astype(np.float64)))
    np.testing.assert_allclose(mean, compressed.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(variance, compressed.var(axis=0), rtol=1e-9)
