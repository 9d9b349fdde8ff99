import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrank_sel import losses, models

SIZES = (5, 3, 0)


def inputs(seed=0, list_size=5):
    """Lists of the sizes above, with junk at padding."""
    features = np.random.default_rng(seed).normal(0.0, 9.0, (3, list_size, 2)).astype(np.float32)
    return {"features": features, "mask": tf.sequence_mask(SIZES, list_size).numpy()}


def scorer(**changed):
    arguments = {"mean": [0.5, 0.0], "variance": [1.0, 4.0], "hidden_units": [8, 4]}
    return models.ListScorer(**{**arguments, **changed})


def relative(values):
    """What `WithinList` appends to the values of one feature of one list, as its formula says."""
    n, spread = len(values), values.std()
    z = (values - values.mean()) / spread if spread > 0.0 else np.zeros(n)
    below = (values[None] < values[:, None]).sum(axis=1)
    equal = (values[None] == values[:, None]).sum(axis=1) - 1
    r = 2.0 * (below + equal / 2.0) / (n - 1) - 1.0 if n > 1 else np.zeros(n)
    return np.stack([values, np.clip(z, -4.0, 4.0), r], axis=1)


@settings(deadline=None, max_examples=30)
@given(
    values=st.lists(st.integers(-3, 3), min_size=1, max_size=6),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    padding=st.integers(0, 3),
)
def test_places_within_a_list_are_those_of_the_formula(values, scale, padding):
    x = np.array(values, np.float32) * np.float32(scale)
    padded = np.concatenate([x, np.full(padding, 7e5, np.float32)])[None, :, None]
    mask = np.arange(len(x) + padding)[None] < len(x)
    found = models.WithinList()(tf.constant(padded), tf.constant(mask)).numpy()[0]
    np.testing.assert_allclose(found[: len(x)], relative(x.astype(np.float64)), atol=2e-5)
    np.testing.assert_array_equal(found[len(x) :], 0.0)


@pytest.mark.parametrize("num_heads", [0, 2])
def test_order_and_padding_are_irrelevant(num_heads):
    model, given_inputs = scorer(num_heads=num_heads), inputs()
    scores = model(given_inputs).numpy()
    order = np.random.default_rng(1).permutation(5)
    moved = model({name: values[:, order] for name, values in given_inputs.items()})
    np.testing.assert_allclose(moved, scores[:, order], rtol=1e-4, atol=1e-5)
    alone = model(given_inputs["features"][1:2, : SIZES[1]])
    np.testing.assert_allclose(alone, scores[1:2, : SIZES[1]], rtol=1e-4, atol=1e-5)
    assert np.isfinite(scores).all()


def test_an_item_is_scored_beside_the_others():
    model, given_inputs = scorer(), inputs()
    alone = model(given_inputs["features"][:1, :1])
    assert abs(float(alone[0, 0] - model(given_inputs)[0, 0])) > 1e-3


@pytest.mark.parametrize("num_heads", [0, 2])
def test_a_saved_model_scores_the_same(num_heads, tmp_path):
    model, given_inputs = scorer(num_heads=num_heads), inputs()
    scores = model(given_inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(given_inputs), scores, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("jit_compile", [pytest.param(True, marks=pytest.mark.long), False])
def test_it_learns_what_no_item_tells_alone(jit_compile):
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    offsets = random.normal(0.0, 9.0, (64, 1, 1))
    features = (offsets + random.normal(size=(64, 6, 1))).astype(np.float32)
    labels = (features[..., 0] == features[..., 0].max(axis=1, keepdims=True)).astype(np.float32)
    model = models.ListScorer([0.0], [1.0], hidden_units=[8], dropout=0.0, num_heads=2)
    model.compile(keras.optimizers.Adam(0.03), losses.SoftmaxLoss(), jit_compile=jit_compile)
    model.fit({"features": features, "mask": np.ones([64, 6], bool)}, labels, epochs=20, verbose=0)
    best = np.argmax(model.predict(features, verbose=0), axis=1)
    assert (best == labels.argmax(axis=1)).mean() > 0.9


@pytest.mark.parametrize("shares", [None, [1.0, 3.0]], ids=["equal", "shares"])
def test_an_ensemble_is_the_mean_of_standardised_scores(tmp_path, shares):
    keras.utils.set_random_seed(0)  # a dead member has no spread to divide by
    members = [scorer(), models.Scorer([0.0] * 2, [1.0] * 2, [4])]
    ensemble, given_inputs = models.Ensemble(members, shares), inputs()
    found = ensemble(given_inputs).numpy()
    for row, size in enumerate(SIZES):
        of_members = [
            member(given_inputs if member.name == "list_scorer" else given_inputs["features"])
            for member in members
        ]
        items = np.array([scores.numpy()[row, :size] for scores in of_members], np.float64)
        if size:
            items -= items.mean(axis=1, keepdims=True)
            items /= items.std(axis=1, keepdims=True)
        expected = np.dot([0.25, 0.75] if shares else [0.5, 0.5], items)
        np.testing.assert_allclose(found[row, :size], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found[row, size:], 0.0)
    ensemble.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(given_inputs), found, rtol=1e-5, atol=1e-6)


def test_other_features_are_refused():
    with pytest.raises(ValueError, match=r"\[batch_size, list_size, 2\]"):
        scorer()(np.zeros([1, 2, 3], np.float32))
    with pytest.raises(ValueError, match="must not be empty"):
        models.Ensemble([])
    for shares in ([1.0], [1.0, 0.0]):
        with pytest.raises(ValueError, match="a positive number for each of 2 members"):
            models.Ensemble([scorer(), scorer()], shares)


@pytest.mark.parametrize(
    "wrong",
    [
        {"features": np.zeros([1, 2, 2], np.float32)},
        {**inputs(), "more": np.zeros([3, 5, 2], np.float32)},
        tf.ragged.constant([[[1.0, 2.0]]], ragged_rank=1),
    ],
    ids=["no mask", "two features", "ragged"],
)
def test_inputs_that_are_no_features_with_their_mask_are_refused(wrong):
    with pytest.raises(ValueError, match="mask"):
        scorer()(wrong)
