"""`CatalogueLoss` beside the same loss on all logits: values, gradients, modes, padding, saving."""

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.metrics.test_evaluator import eagerly
from tfrank_sel import losses

NUM_ITEMS, SIZE = 23, 6
LOSSES = [
    losses.RG2Loss(),
    losses.RG2Loss(0.3, target=2.0),
    losses.RGCrossLoss(0.3),
    losses.SoftmaxLoss(temperature=0.5),
    losses.SoftmaxLoss(targets=losses.targets.Softmax()),
    losses.SmoothTopKLoss(3),
    losses.TopKCrossEntropyLoss([1, 3]),
    losses.PairwiseLogisticLoss(),
]


def embedding(mask_zero: bool = False) -> Any:
    layer = keras.layers.Embedding(NUM_ITEMS, SIZE, mask_zero=mask_zero)
    layer.build(None)
    # far from 0: mean and spread of the vectors must both keep their digits
    layer.set_weights([np.random.default_rng(0).normal(2.0, 0.4, (NUM_ITEMS, SIZE))])
    return layer


def states(*shape: int, seed: int = 1) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(0.0, 0.4, (*shape, SIZE)), tf.float32)


def on_all_logits(
    loss: losses.ListwiseLoss, items: Any, p: tf.Tensor, labels: Any, of_items: Any, weights: Any
) -> tuple[Any, ...]:
    """The mean of the loss over the states with a label, and its gradients, in float64."""
    config = {**loss.get_config(), "reduction": "none", "dtype": "float64"}
    exact, first = type(loss).from_config(config), int(items.mask_zero)
    p, q = tf.cast(p, tf.float64), tf.cast(tf.convert_to_tensor(items.embeddings), tf.float64)
    with eagerly(), tf.GradientTape() as tape:
        tape.watch([p, q])
        logits = tf.matmul(p, q[first:], transpose_b=True)
        of_items = np.broadcast_to(1.0 if of_items is None else of_items[first:], logits.shape)
        values = exact(labels, logits, of_items) * tf.cast(weights, tf.float64)
        value = tf.reduce_sum(values) / len(labels)
    return value, *tape.gradient(value, [p, q])


def stepped(loss: Any, y: Any, p: tf.Tensor, items: Any, weights: Any, mode: str) -> Any:
    def step(p: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(p)
            value = loss(y, p, weights)
        q = items.embeddings
        return value, *tape.gradient(value, [p, getattr(q, "value", q)])

    if mode != "eager":
        step = tf.function(step, jit_compile=mode == "xla", autograph=False)
    return [np.asarray(tf.convert_to_tensor(x)) for x in step(p)]


@pytest.mark.sample(12)
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda x: x.name)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_equals_the_loss_on_all_logits(
    loss: losses.ListwiseLoss, mode: str, is_weighted: bool
) -> None:
    rng, items, p = np.random.default_rng(2), embedding(mask_zero=True), states(3, 4)
    y = rng.integers(1, NUM_ITEMS, (3, 4))
    y[0, :2], y[2] = -1, 0  # both are padding, and the last sequence has nothing else
    of_items = rng.uniform(0.5, 2.0, NUM_ITEMS) if is_weighted else None
    weights = rng.uniform(0.5, 2.0, (3, 4)) if is_weighted else None
    ours = losses.CatalogueLoss(loss, items, of_items, logits_at_once=2 * NUM_ITEMS)
    value, of_states, of_vectors = stepped(ours, y, p, items, weights, mode)

    there = y.reshape(-1) > 0
    labels = np.eye(NUM_ITEMS - 1)[y.reshape(-1)[there] - 1]
    kept = np.ones(there.sum()) if weights is None else weights.reshape(-1)[there]
    flat = tf.boolean_mask(tf.reshape(p, [-1, SIZE]), there)
    expected = on_all_logits(loss, items, flat, labels, of_items, kept)
    largest = np.abs(expected[1]).max()
    np.testing.assert_allclose(value, expected[0], rtol=2e-6)
    got = of_states.reshape(-1, SIZE)
    np.testing.assert_allclose(got[there], expected[1], atol=1e-5 * largest)
    assert not got[~there].any()
    np.testing.assert_allclose(of_vectors, expected[2], atol=1e-5 * np.abs(expected[2]).max())


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_keras_mask_is_the_index_of_padding(shape: tuple[int, ...], reduction: str) -> None:
    rng, masked = np.random.default_rng(2), states(*shape)
    there, y = rng.random(shape) < 0.6, rng.integers(1, NUM_ITEMS, shape)
    masked._keras_mask = tf.constant(there)
    items = embedding(mask_zero=True)
    ours = losses.CatalogueLoss(losses.SoftmaxLoss(), items, reduction=reduction)
    expected = ours(np.where(there, y, -1), states(*shape))
    np.testing.assert_array_equal(ours(y, masked), expected)
    if len(shape) == 1:  # several items for each state
        both = np.stack([y, y % (NUM_ITEMS - 1) + 1], axis=1)
        expected = ours(np.where(there[:, None], both, -1), states(*shape))
        np.testing.assert_array_equal(ours(both, masked), expected)


def test_few_states_are_not_padded_to_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, of_classes = [], losses.SoftmaxLoss.of_classes

    def counted(self: Any, classes: tf.Tensor, scores: tf.Tensor) -> Any:
        counts.append(scores.shape[0])
        return of_classes(self, classes, scores)

    monkeypatch.setattr(losses.SoftmaxLoss, "of_classes", counted)
    for blocks, size in ((100, 5), (3, 3)):
        ours = losses.CatalogueLoss(
            losses.SoftmaxLoss(), embedding(), logits_at_once=blocks * NUM_ITEMS
        )
        ours(np.arange(5), states(5))
        assert set(counts) == {size}
        counts.clear()


@pytest.mark.sample(3)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda x: x.name)
def test_several_items_of_a_state_are_labels_of_one_list(loss: losses.ListwiseLoss) -> None:
    items, p = embedding(), states(4)
    y = np.array([[3, 7, 1], [0, -1, -1], [22, 5, -1], [-1, -1, -1]])
    labels = np.zeros((3, NUM_ITEMS))
    for row, taken in enumerate(y[:3]):
        labels[row, taken[taken >= 0]] = 1.0
    ours = losses.CatalogueLoss(loss, items, logits_at_once=NUM_ITEMS)
    value, of_states, of_vectors = stepped(ours, y, p, items, None, "graph")
    expected = on_all_logits(loss, items, p[:3], labels, None, np.ones(3))
    np.testing.assert_allclose(value, expected[0], rtol=2e-6)
    np.testing.assert_allclose(of_states[:3], expected[1], atol=1e-5 * np.abs(expected[1]).max())
    np.testing.assert_allclose(of_vectors, expected[2], atol=1e-5 * np.abs(expected[2]).max())


@pytest.mark.parametrize("loss", [losses.RGCrossLoss(0.3), losses.SoftmaxLoss()])
def test_gradients_are_finite_differences(loss: losses.ListwiseLoss) -> None:
    items, p, y = embedding(), tf.cast(states(3), tf.float64), [4, 0, 9]
    q = tf.Variable(tf.cast(tf.convert_to_tensor(items.embeddings), tf.float64))
    exact = type(loss).from_config({**loss.get_config(), "dtype": "float64"})
    ours = losses.CatalogueLoss(exact, lambda: q, dtype="float64", logits_at_once=30)
    with tf.GradientTape() as tape:
        tape.watch(p)
        value = ours(y, p)
    gradients = tape.gradient(value, [p, q])
    rng = np.random.default_rng(3)
    along = [tf.constant(rng.normal(size=x.shape)) for x in (p, q)]
    slope = sum(float(tf.reduce_sum(g * d)) for g, d in zip(gradients, along, strict=True))
    start, step = tf.identity(q), 1e-5
    ends = []
    for sign in (1.0, -1.0):
        q.assign(start + sign * step * along[1])
        ends.append(float(ours(y, p + sign * step * along[0])))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-7)


def test_reductions_and_weights_of_sequences() -> None:
    items, p, y = embedding(), states(2, 3), np.array([[1, 2, -1], [5, -1, -1]])
    of_one = {
        how: losses.CatalogueLoss(losses.RGCrossLoss(), items, reduction=how)
        for how in ("none", "sum", "sum_over_batch_size")
    }
    values = of_one["none"](y, p).numpy()
    assert values.shape == (2, 3)
    assert not values[y < 0].any()
    assert float(of_one["sum"](y, p)) == pytest.approx(values.sum(), rel=1e-6)
    assert float(of_one["sum_over_batch_size"](y, p)) == pytest.approx(values.sum() / 3, rel=1e-6)
    by_sequence = of_one["none"](y, p, np.array([2.0, 0.5])).numpy()
    np.testing.assert_allclose(by_sequence, values * [[2.0], [0.5]], rtol=1e-6)


def encoder(items: Any) -> Any:
    inputs = keras.Input([4], dtype="int32")
    return keras.Model(inputs, keras.layers.Dense(SIZE, "tanh")(items(inputs)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", [losses.RGCrossLoss(1.0), losses.SoftmaxLoss()])
@pytest.mark.parametrize(
    "policy", ["float32", pytest.param("mixed_float16", marks=pytest.mark.long)]
)
def test_fit_learns_the_next_item(loss: Any, policy: str, tmp_path: pathlib.Path) -> None:
    before = np.random.default_rng(4).integers(1, NUM_ITEMS, (256, 1))
    x = (before + np.arange(5)) % (NUM_ITEMS - 1) + 1  # each item is followed by the next
    x[:40, :2] = 0  # padding
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    try:
        items = keras.layers.Embedding(NUM_ITEMS, SIZE, mask_zero=True)
        model = encoder(items)
        model.compile(keras.optimizers.Adam(0.1), losses.CatalogueLoss(loss, items))
        history = model.fit(x[:, :4], x[:, 1:], batch_size=64, epochs=15, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert history.history["loss"][-1] < history.history["loss"][0]
    logits = model.predict(x[:, :4], verbose=0)[:, -1] @ items.get_weights()[0].T
    best = logits[:, 1:].argmax(axis=1) + 1
    assert np.mean(best == x[:, 4]) > 0.5  # by chance: 0.05

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(x[:8, :4], verbose=0), model.predict(x[:8, :4], verbose=0)
    )
    with pytest.raises(ValueError, match="`items` must be given: compile the loaded model again"):
        loaded.evaluate(x[:8, :4], x[:8, 1:], verbose=0)


def test_memory_has_a_bound() -> None:
    """No operation of a step makes the logits of more states than asked for."""
    items, p, y = embedding(), states(40), np.zeros(40, np.int32)
    for loss, most in ((losses.RG2Loss(), NUM_ITEMS * SIZE), (losses.SoftmaxLoss(), 4 * NUM_ITEMS)):
        ours = losses.CatalogueLoss(loss, items, logits_at_once=4 * NUM_ITEMS)

        @tf.function(autograph=False)
        def step(p: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(p)
                value = ours(y, p)  # noqa: B023
            return tape.gradient(value, p)

        graph = step.get_concrete_function(p).graph
        functions = [graph, *(f.graph for f in graph._functions.values() if hasattr(f, "graph"))]
        sizes = [
            x.shape.num_elements()
            for g in functions
            for op in g.get_operations()
            for x in op.outputs
            if x.shape.is_fully_defined()
        ]
        assert max(sizes) <= max(most, 40 * SIZE)


def test_what_does_not_fit_is_refused() -> None:
    items = embedding()
    with pytest.raises(ValueError, match="`loss` must be one whose labels may be indices"):
        losses.CatalogueLoss(losses.OrdinalLoss(4), items)
    with pytest.raises(ValueError, match="`items` must be an Embedding, or a function"):
        losses.CatalogueLoss(losses.SoftmaxLoss(), np.zeros([3, 2]))
    ours = losses.CatalogueLoss(losses.SoftmaxLoss(), items)
    ragged = tf.ragged.constant([[1], [2, 3]])
    for y, p in (
        ([1.0], states(1)),
        ([[[1]]], states(1, 1)),
        ([1], states(1)[0]),
        ([[1, 2]], states(1, 3)),
        ([1], states(2)),
        (ragged, ragged.with_values(states(3))),
    ):
        with pytest.raises(ValueError, match=r"`y_true` must be dense integers .* Received: y_tr"):
            ours(y, p)
    with pytest.raises(ValueError, match="`items` must have vectors as long as the states"):
        ours([1], states(1)[:, :-1])
    for count in (1, NUM_ITEMS - 1):
        weighted = losses.CatalogueLoss(losses.SoftmaxLoss(), items, np.ones(count))
        with pytest.raises(ValueError, match="`item_weights` must have a number for each row"):
            weighted([1], states(1))
    unbuilt = losses.CatalogueLoss(losses.SoftmaxLoss(), keras.layers.Embedding(3, SIZE))
    with pytest.raises(ValueError, match="`items` must be built"):
        unbuilt([1], states(1))


@pytest.mark.parametrize("loss", [losses.RGCrossLoss(), losses.SoftmaxLoss()])
def test_an_index_keeps_its_digits(loss: losses.ListwiseLoss) -> None:
    """A hash is no item, and bfloat16 has 8 bits."""
    vectors = tf.constant(np.random.default_rng(5).normal(size=(700, SIZE)), tf.float32)
    ours, y = losses.CatalogueLoss(loss, lambda: vectors), np.array([257, 513, 699])
    value = float(ours(y, states(3)))
    rounded = losses.CatalogueLoss(loss, lambda: vectors, dtype="bfloat16")
    assert float(rounded(y, states(3))) == pytest.approx(value, rel=0.02)
    logits = tf.matmul(states(3), vectors, transpose_b=True)
    for far in (2**32, 2**40):
        assert float(ours(y + far, states(3))) == float(loss(y + far, logits)) == 0.0
    assert float(ours(y - 2**40, states(3))) == 0.0


def test_no_states_have_no_loss() -> None:
    ours = losses.CatalogueLoss(losses.RGCrossLoss(), embedding())
    assert float(ours(np.zeros([0, 3], int), states(0, 3))) == 0.0
