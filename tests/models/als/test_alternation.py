"""Items solved in closed form: the minimum of the loss, and the training of the other weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses
from tfrank_sel.models.als import ItemSolver

ITEMS, WIDTH, RIDGE, EXPONENT = 12, 6, 0.3, 0.4
WEIGHTS = [9.0, *np.linspace(0.5, 2.0, ITEMS)]  # the first is that of padding


def compiled(loss, rank, weights=None, width=WIDTH):
    """A model of states of a rank, and the items."""
    keras.utils.set_random_seed(0)
    items = keras.layers.Embedding(ITEMS + 1, width, mask_zero=True)
    items.build()
    inputs = keras.Input([5] if rank == 2 else [4, 5])
    model = keras.Model(inputs, keras.layers.Dense(width, "tanh")(inputs))
    model.items = items  # a part of the model, as of a `SequenceEncoder`
    catalogue = losses.CatalogueLoss(loss, items, weights)
    model.compile(keras.optimizers.Adam(0.02), catalogue)
    return model


def made(rank):
    """Inputs, and targets: one of each position, or four different ones of each row."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 5) if rank == 2 else (60, 4, 5)).astype(np.float32)
    targets = np.argsort(rng.random([60, ITEMS - 1]), axis=1)[:, :4] + 1  # none is the last
    targets[:9, :2] = -1
    targets[7] = -1
    return inputs, targets


def value(loss, states, targets, items):
    """The objective, in float64, of all logits."""
    indices = targets if len(states.shape) == 2 else targets.reshape(-1, 1)
    states = tf.reshape(tf.cast(states, tf.float64), [-1, items.shape[1]])
    labels = tf.reduce_sum(tf.one_hot(indices - 1, ITEMS, dtype=tf.float64), axis=1)
    weights = np.broadcast_to(WEIGHTS[1:], labels.shape)
    all_logits = type(loss)(loss.alpha, loss.target, reduction="sum", dtype="float64")
    counts = np.bincount(targets[targets > 0], minlength=ITEMS + 1)[1:]
    ridges = RIDGE * np.maximum(counts, 1.0) ** EXPONENT
    logits = tf.matmul(states, items, transpose_b=True)
    of_labels = all_logits(labels, logits, weights)
    return of_labels + tf.reduce_sum(ridges * tf.reduce_sum(items**2, axis=1)) / 2.0


@pytest.mark.long
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("loss", [losses.RG2Loss(0.2, 0.7), losses.RGCrossLoss(0.2)], ids=repr)
def test_steps_lower_the_objective_to_that_of_a_dense_solution(loss, rank):
    model, (inputs, targets) = compiled(loss, rank, WEIGHTS), made(rank)
    states, padding = model(inputs), model.items.embeddings[0].numpy()
    start = tf.Variable(tf.cast(model.items.embeddings[1:], tf.float64))
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            values = [value(loss, states, targets, start)]
        gradient = tape.gradient(values[0], start)
    hessian = outer.jacobian(gradient, start).numpy().reshape(ITEMS * WIDTH, -1)
    expected = start.numpy() - np.linalg.solve(hessian, gradient.numpy().ravel()).reshape(
        start.shape
    )
    data = (tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(25),)
    data = (inputs, targets) if rank == 2 else data
    solver = ItemSolver(*data, regularization=RIDGE, count_exponent=EXPONENT, batch_size=25)
    solver.set_model(model)
    for _ in range(1 if isinstance(loss, losses.RG2Loss) else 60):  # RG^x by its bound
        solver.on_epoch_end(0)
        items = tf.cast(model.items.embeddings[1:], tf.float64)
        values.append(value(loss, states, targets, items))
    assert np.all(np.diff(values) < 1e-6 * abs(values[0]))
    np.testing.assert_allclose(items, expected, atol=1e-5)
    np.testing.assert_array_equal(model.items.embeddings[0], padding)


@pytest.mark.long
def test_gradients_train_the_other_weights_and_later_all():
    model, (inputs, targets) = compiled(losses.RGCrossLoss(0.1), 3, width=130), made(3)
    options = {"batch_size": 20, "verbose": 0, "epochs": 1}
    model.fit(inputs, targets, **options)  # a step that trains the items
    items = model.items.embeddings.numpy()

    class Before(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            np.testing.assert_array_equal(model.items.embeddings, items)

    dense = model.layers[1].kernel.numpy()
    before = model.evaluate(inputs, targets, verbose=0)
    model.fit(inputs, targets, callbacks=[Before(), ItemSolver(inputs, targets)], **options)
    assert np.any(model.layers[1].kernel.numpy() != dense)
    items = model.items.embeddings.numpy()
    assert model.evaluate(inputs, targets, verbose=0) < before
    model.fit(inputs, targets, **options)
    assert np.any(model.items.embeddings.numpy() != items)


def test_a_loss_without_a_closed_form_is_refused():
    model, (inputs, targets) = compiled(losses.SoftmaxLoss(), 3), made(3)
    with pytest.raises(ValueError, match="`targets` must be None with a"):
        ItemSolver(inputs)
    with pytest.raises(ValueError, match="`CatalogueLoss` of an `RG2Loss` or `RGCrossLoss`"):
        model.fit(inputs, targets, verbose=0, callbacks=[ItemSolver(inputs, targets)])


def test_states_of_weight_0_are_absent_from_any_data():
    (inputs, targets), weights = made(2), np.repeat([1.0, 2.0, 0.0], 20)
    kept = weights > 0.0
    data = tf.data.Dataset.from_tensor_slices((inputs, targets, weights)).batch(20)
    solved = []
    for given in [
        (inputs[kept], targets[kept], weights[kept]),
        (inputs, targets, weights),
        (data,),
    ]:
        model = compiled(losses.RG2Loss(0.2), 2)
        solver = ItemSolver(*given)
        solver.set_model(model)
        solver.on_epoch_end(0)
        solved.append(model.items.embeddings.numpy())
    solver = ItemSolver(data.repeat())
    solver.set_model(model := compiled(losses.RG2Loss(0.2), 2))
    solver.set_params({"steps": 3})
    solver.on_epoch_end(0)
    for found in (*solved[1:], model.items.embeddings.numpy()):
        np.testing.assert_allclose(found, solved[0], atol=1e-6)
