"""Equality of prepared training features and those of a server, to the last bit."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import keras_versions, models
from tfrank_sel.models import preparation as module
from tfrank_sel.ops import layout

RNG = np.random.default_rng(0)
SIZES = np.array([150, 3, 90, 1, 0, 2])
FEATURES = RNG.lognormal(0.0, 4.0, (6, 150, 3)).astype(np.float32)
FEATURES[..., 2] = np.round(np.log(FEATURES[..., 2]))
MASK = np.arange(150) < SIZES[:, None]
MOMENTS = {"mean": [0.3, 1.7, -0.2], "variance": [3.1, 0.0, 2.0]}
# Keras 2 has another format of files, and random numbers of its own
of_keras_3 = pytest.mark.skipif(not keras_versions.IS_KERAS_3, reason="is of Keras 3")
SAVED = Path(__file__).parent / "saved"


def lists(rows, size):
    return {"features": tf.constant(FEATURES[rows, :size]), "mask": tf.constant(MASK[rows, :size])}


@pytest.mark.parametrize("within", [True, False])
def test_no_bit_depends_on_padding_or_on_other_lists(within):
    preparation = models.Preparation(**MOMENTS, within_list=within)
    together = preparation(lists(slice(None), 150))["features"].numpy()
    for row, size in enumerate(SIZES):
        for padded in {max(size, 1), min(size + 7, 150)}:
            alone = preparation(lists([row], padded))["features"].numpy()[0]
            np.testing.assert_array_equal(alone[:size], together[row, :size])


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [
        lambda: models.ListScorer(**MOMENTS, hidden_units=[4], num_heads=2),
        lambda: models.Scorer(**MOMENTS, hidden_units=[4]),
        lambda: models.Prepared(
            models.Preparation(**MOMENTS), models.Ensemble([models.Perceptron([4])])
        ),
    ],
    ids=["ListScorer", "Scorer", "Prepared"],
)
def test_the_trained_network_scores_prepared_lists_as_the_model_scores_raw_ones(make):
    model, raw = make(), lists(slice(0, 4), 150)
    prepared = model.preparation(raw)
    model.network.compile(keras.optimizers.SGD(0.1), "mse")
    model.network.fit(prepared, np.ones([4, 150], np.float32), verbose=0)
    np.testing.assert_array_equal(model.network(prepared), model(raw))


@pytest.mark.long
def test_places_are_the_same_counted_and_sorted(monkeypatch):
    raw, found = lists(slice(None), 150), []
    for longest, device in ((0, "CPU"), (1000, "CPU"), (1000, "GPU")):
        monkeypatch.setattr(module, "COUNTED", longest)
        monkeypatch.setattr(module, "COUNTED_BY_XLA", longest)
        for jit_compile in (True, False):
            layer = models.WithinList()
            call = tf.function(layer.__call__, jit_compile=jit_compile, autograph=False)
            with layout.traced_for(device):
                found.append(call(raw["features"], raw["mask"]).numpy()[..., 6:])
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_list_of_50_000_items_is_scored():
    features = RNG.normal(size=[1, 50_000, 2]).astype(np.float32)
    ranks = models.WithinList()(features, tf.ones([1, 50_000], tf.bool)).numpy()[0, :, 4:]
    assert set(np.abs(ranks[features[0].argmax(axis=0), [0, 1]])) == {1.0}
    assert models.ListScorer([0.0] * 2, [1.0] * 2, [4])(features).shape == (1, 50_000)


@of_keras_3
def test_a_model_that_version_0_1_saved_scores_as_it_did():
    model = keras.models.load_model(SAVED / "version_0_1.keras")
    features = np.arange(12, dtype=np.float32).reshape(2, 3, 2) % 5
    scores = model({"features": features, "mask": np.array([[1, 1, 1], [1, 1, 0]], bool)})
    expected = [[0.04573484, 0.69674128, -0.74247617], [0.33333340, -0.33333328, 0.0]]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@of_keras_3
@pytest.mark.parametrize("jit_compile", [True, False])
def test_dropout_drops_its_share_and_another_in_each_step(jit_compile):
    ones = tf.ones([1000])

    def made():
        keras.utils.set_random_seed(1)
        layer = models.Dropout(0.3)
        return layer, tf.function(lambda x: layer(x, training=True), jit_compile=jit_compile)

    layer, call = made()
    first, second = call(ones).numpy(), call(ones).numpy()
    np.testing.assert_allclose(sorted(set(first)), [0.0, 1.0 / 0.7], rtol=1e-6)
    assert 0.2 < (first == 0.0).mean() < 0.4
    assert (first != second).any()
    np.testing.assert_array_equal(layer(ones), ones)
    np.testing.assert_array_equal(made()[1](ones), first)


@of_keras_3
def test_dropout_is_by_philox_under_xla():
    layer = models.Dropout(0.3)
    call = tf.function(lambda x: layer(x, training=True), jit_compile=True)
    call(tf.ones([8]))
    graph = call.get_concrete_function(tf.ones([8])).graph
    [node] = [x for x in graph.get_operations() if x.type == "StatelessRandomUniformV2"]
    assert tf.get_static_value(node.inputs[-1]) == tf.random.Algorithm.PHILOX.value


@of_keras_3
def test_dropout_is_saved_with_its_arguments():
    layer = models.Dropout(0.3, noise_shape=(None, 1), seed=4)
    again = models.Dropout.from_config(layer.get_config())
    ones = tf.ones([50, 3])
    dropped = again(ones, training=True).numpy()
    np.testing.assert_array_equal(dropped, layer(ones, training=True))
    np.testing.assert_array_equal(dropped[:, :1] + 0.0 * dropped, dropped)


@of_keras_3
@pytest.mark.parametrize("shape", [(None, 1, None), (2, 1, 4), (1, None, 1)])
def test_dropout_drops_alike_along_axes_of_1(shape):
    layer, ones = models.Dropout(0.5, noise_shape=shape, seed=4), tf.ones([2, 30, 4])
    call = tf.function(lambda x: layer(x, training=True), [tf.TensorSpec([None, None, 4])])
    for dropped in (layer(ones, training=True).numpy(), call(ones).numpy()):
        assert set(dropped.ravel()) == {0.0, 2.0}
        for axis, size in enumerate(shape):
            if size == 1:
                assert (np.diff(dropped, axis=axis) == 0.0).all()
            elif size is None:
                assert (np.diff(dropped, axis=axis) != 0.0).any()
