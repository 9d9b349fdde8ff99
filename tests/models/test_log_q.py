import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses, models

NUM_ITEMS, BATCH_SIZE = 20, 8


def stream(steps, seed=0):
    """Batches of items, and how many times a batch has each in the mean."""
    rng = np.random.default_rng(seed)
    p = 0.7 ** np.arange(NUM_ITEMS) + 0.01
    p /= p.sum()
    return rng.choice(NUM_ITEMS, [steps, BATCH_SIZE], p=p), BATCH_SIZE * p


def estimates(layer, batches):
    """The q of each item after the batches."""
    similarities = tf.zeros([BATCH_SIZE, BATCH_SIZE])
    layer(similarities, batches[0], training=False)  # makes its weights

    @tf.function
    def run(batches):
        found = tf.zeros([NUM_ITEMS])
        for items in batches:
            q = tf.exp(-layer(similarities, items, training=True)[0] / layer.temperature)
            found = tf.tensor_scatter_nd_update(found, items[:, tf.newaxis], q)
        return found

    return run(tf.constant(batches)).numpy()


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", [{"temperature": 0.1}, {"num_hashes": 3}])
def test_estimates_converge_to_the_frequencies_of_the_stream(options):
    batches, expected = stream(3000)
    found = estimates(models.LogQCorrection(NUM_ITEMS, alpha=0.002, **options), batches)
    np.testing.assert_allclose(np.log(found), np.log(expected), atol=0.3)


@pytest.mark.long
def test_collisions_make_items_look_more_frequent_and_more_hashes_undo_them():
    batches, expected = stream(2000)
    errors = [
        np.log(estimates(models.LogQCorrection(13, num_hashes=n), batches) / expected)
        for n in (1, 8)
    ]
    assert np.all(errors[0] > -0.5)
    assert np.abs(errors[1]).max() < 0.7 * np.abs(errors[0]).max()


@pytest.mark.long
def test_a_large_alpha_follows_a_drift():
    layer = models.LogQCorrection(2, alpha=0.5)
    batches = [[0]] * 50 + [[1]] * 5 + [[0], [1]] * 20
    found = [layer(tf.zeros([1, 1]), tf.constant(x), training=True)[0, 0] for x in batches]
    np.testing.assert_allclose(np.exp(np.negative(found[-2:])), 0.5, rtol=1e-4)


def test_only_training_counts_and_corrects():
    layer = models.LogQCorrection(3, temperature=0.5)
    similarities, items = tf.random.normal([2, 2]), tf.constant([[0], [2]])
    layer(similarities, items, training=True)
    before = [w.numpy() for w in layer.weights]
    for training in (False, None):
        np.testing.assert_array_equal(layer(similarities, items, training=training), similarities)
    for weight, expected in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_the_loss_is_that_of_its_own_log_q():
    layer = models.LogQCorrection(NUM_ITEMS, temperature=0.2)
    batches, _ = stream(50)
    estimates(layer, batches)
    similarities, items = tf.random.normal([BATCH_SIZE] * 2), tf.constant(batches[0])
    corrected = layer(similarities, items, training=True)
    gaps = layer.gaps.numpy()
    log_q = np.where(gaps > 0.0, -np.log(np.maximum(gaps, 1e-9)), 0.0)
    for symmetric in (False, True):
        plain = losses.InBatchInfoNCELoss(0.2, symmetric)
        known = losses.InBatchInfoNCELoss(0.2, symmetric, log_q=log_q)
        np.testing.assert_allclose(plain(items, corrected), known(items, similarities), rtol=1e-5)


@pytest.mark.long
def test_estimates_keep_their_digits_under_mixed_precision():
    batches, _ = stream(100)
    layer = models.LogQCorrection(NUM_ITEMS, dtype="mixed_bfloat16")
    expected = models.LogQCorrection(NUM_ITEMS)
    for items in batches:
        output = layer(tf.zeros([BATCH_SIZE] * 2, tf.bfloat16), items, training=True)
        expected(tf.zeros([BATCH_SIZE] * 2), items, training=True)
    assert output.dtype == tf.bfloat16
    np.testing.assert_array_equal(layer.gaps, expected.gaps)


def two_tower():
    user, item = (keras.Input([], dtype="int32", name=name) for name in ("user", "item"))
    towers = [
        keras.layers.Embedding(NUM_ITEMS, 4, name=name)(x)
        for name, x in (("users", user), ("items", item))
    ]
    similarities = keras.layers.Lambda(
        lambda x: tf.matmul(x[0], x[1], transpose_b=True), output_shape=(None,)
    )(towers)
    corrected = models.LogQCorrection(NUM_ITEMS, temperature=0.5)(similarities, item)
    return keras.Model({"user": user, "item": item}, corrected)


@pytest.mark.long
@pytest.mark.parametrize("jit_compile", [True, False])
def test_it_trains_and_is_saved_with_the_model(jit_compile, tmp_path):
    keras.utils.set_random_seed(0)
    model = two_tower()
    model.compile("adam", losses.InBatchInfoNCELoss(0.5), jit_compile=jit_compile)
    items = stream(40)[0].reshape(-1)
    inputs = {"user": items, "item": items}
    history = model.fit(inputs, items, batch_size=BATCH_SIZE, epochs=3, verbose=0).history
    assert np.all(np.isfinite(history["loss"]))
    layer = model.get_layer("log_q_correction")
    assert int(layer.step.numpy()) == 120
    model.evaluate(inputs, items, batch_size=BATCH_SIZE, verbose=0)
    assert int(layer.step.numpy()) == 120
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path, safe_mode=False, custom_objects={"tf": tf})
    for weight, expected in zip(
        loaded.get_layer("log_q_correction").weights, layer.weights, strict=True
    ):
        np.testing.assert_array_equal(weight, expected)
