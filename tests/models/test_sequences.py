"""`SequenceEncoder`: causality, padding, training, saving, and the best items of an export."""

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import export, keras_versions, losses, metrics, models
from tfrank_sel.ops import catalogue

pytestmark = pytest.mark.skipif(not keras_versions.IS_KERAS_3, reason="is of Keras 3")

NUM_ITEMS = 20


def made(num_items: int = NUM_ITEMS, **options: Any) -> models.SequenceEncoder:
    keras.utils.set_random_seed(0)
    return models.SequenceEncoder(num_items, 8, num_heads=2, max_length=6, **options)


HISTORY = np.array([[3, 9, 4, 9], [1, 2, 5, 6]])


@pytest.mark.sample(2)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_later_item_changes_no_earlier_state(jit_compile: bool) -> None:
    run = tf.function(made(), jit_compile=jit_compile, autograph=False)
    states = run(tf.constant(HISTORY))
    for place in range(1, 4):
        changed = HISTORY.copy()
        changed[:, place:] = [[17], [0]]
        others = run(tf.constant(changed))
        np.testing.assert_array_equal(others[:, :place], states[:, :place])
        assert np.all(np.any(others[:, place] != states[:, place], axis=-1))


@pytest.mark.sample(6)
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_padding_anywhere_changes_no_state(policy: str) -> None:
    encoder = made(dtype=policy)
    states = encoder(HISTORY)
    assert states.dtype == encoder.compute_dtype
    for there in ([2, 3, 4, 5], [0, 1, 2, 3], [0, 2, 3, 5]):
        padded = np.zeros([2, 6], np.int32)
        padded[:, there] = HISTORY
        found = encoder(padded)
        tolerance = 1e-6 if policy == "float32" else 0.05
        np.testing.assert_allclose(tf.gather(found, there, axis=1), states, atol=tolerance)
        assert not np.any(np.delete(found.numpy(), there, axis=1))
        np.testing.assert_array_equal(found._keras_mask, padded > 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("loss", "tied"), [(losses.SoftmaxLoss(), True), (losses.RGCrossLoss(1.0), False)]
)
@pytest.mark.parametrize(
    "policy", ["float32", pytest.param("mixed_float16", marks=pytest.mark.long)]
)
def test_learns_a_cycle_and_is_saved(
    loss: Any, tied: bool, policy: str, tmp_path: pathlib.Path
) -> None:
    first = np.random.default_rng(0).integers(0, NUM_ITEMS, (256, 1))
    items = (first + np.arange(7)) % NUM_ITEMS + 1  # each item is followed by the next
    inputs, targets = items[:, :6].copy(), items[:, 1:].copy()
    inputs[:40, :3], targets[:40, :3] = 0, -1
    encoder = made(dropout=0.0, num_blocks=1, tied=tied, dtype=policy)
    encoder.compile(
        keras.optimizers.Adam(0.02),
        losses.CatalogueLoss(loss, encoder.items),
        jit_compile=policy == "float32",
    )
    encoder.fit(inputs, targets, batch_size=64, epochs=15, verbose=0)
    best, _ = encoder.best(inputs, 1)
    assert np.mean(best[:, 0] == targets[:, -1]) > 0.9
    assert (encoder.items_of_inputs is encoder.items) == tied

    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.models.load_model(tmp_path / "encoder.keras")
    assert loaded.get_config() == encoder.get_config()
    np.testing.assert_array_equal(loaded(inputs[:8]), encoder(inputs[:8]))


@pytest.mark.sample(8)
@pytest.mark.parametrize("at_once", [3, 40, 1 << 16])
@pytest.mark.parametrize("k", [3, 96])
def test_best_are_those_of_all_logits_without_seen_items(
    at_once: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfrank_sel.ops.catalogue.ITEMS_AT_ONCE", at_once)
    monkeypatch.setattr("tfrank_sel.ops.catalogue.LOGITS_AT_ONCE", 2 * at_once)
    monkeypatch.setattr("tfrank_sel.ops.catalogue.GROUP", 4)
    encoder = made(93)
    rng = np.random.default_rng(1)
    histories = rng.integers(0, 94, (5, 9))  # longer than `max_length`
    histories[0] = 0
    compiled = tf.function(lambda x: encoder.best(x, k), jit_compile=True, autograph=False)
    for numbers, scores in (encoder.best(histories, k), compiled(tf.constant(histories))):
        for row, got, values in zip(histories, numbers.numpy(), scores.numpy(), strict=True):
            last = row[row > 0][-6:]
            state = encoder(last[np.newaxis])[0, -1] if len(last) else tf.zeros([8])
            logits = encoder.items.get_weights()[0] @ state.numpy()
            logits[np.append(row, 0)] = -np.inf
            left = min(k, np.isfinite(logits).sum())
            assert not np.isin(got[:left], np.append(row, 0)).any()
            assert len({*got[:left]}) == left
            np.testing.assert_allclose(values[:left], np.sort(logits)[::-1][:left], atol=1e-5)
            np.testing.assert_allclose(values[:left], logits[got[:left]], atol=1e-5)
            assert not got[left:].any()
            if not len(last):  # equal scores keep the order of the items
                np.testing.assert_array_equal(got[:left], np.arange(1, left + 1))


@pytest.mark.long
@pytest.mark.parametrize("items", [0, 3, 93])
def test_of_no_state_or_item_nothing_is_best(items: int) -> None:
    vectors = tf.ones([1 + items, 2])
    for run in (catalogue.best_unseen, tf.function(catalogue.best_unseen, autograph=False)):
        for batch_size in (0, 2):
            seen = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [0] * batch_size)
            for of_kind in (seen, seen.to_tensor()):
                numbers, scores = run(tf.ones([batch_size, 2]), vectors, of_kind, 4)
                row = np.arange(1, 5) * (np.arange(4) < items)
                np.testing.assert_array_equal(numbers, [row] * batch_size or np.zeros([0, 4]))
                np.testing.assert_array_equal(scores == tf.float32.min, numbers == 0)


def test_the_catalogue_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrank_sel.ops.catalogue.ITEMS_AT_ONCE", 64)
    specs = [tf.TensorSpec([2, 3]), tf.TensorSpec([201, 3]), tf.TensorSpec([2, 5], tf.int32)]
    best = tf.function(lambda *x: catalogue.best_unseen(*x, 4), specs, autograph=False)
    pads = [x for x in best.get_concrete_function().graph.get_operations() if "Pad" in x.type]
    assert all(x.outputs[0].shape[0] == 2 for x in pads)
    assert pads


@pytest.mark.long
def test_the_export_answers_ids_as_the_model(tmp_path: pathlib.Path) -> None:
    ids = ["7", "007", *(f"é{i}" for i in range(NUM_ITEMS - 2))]
    encoder = made()
    export.next_items(encoder, ids, tmp_path / "model", k=4)
    served = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    history = tf.constant([["", "7", "é3"], ["unknown", "007", "é3"]])
    answer = served(history)
    numbers, scores = encoder.best(np.array([[0, 1, 6], [0, 2, 6]]), 4)
    expected = np.array(["", *ids])[numbers]
    assert [[x.decode() for x in row] for row in answer["items"].numpy()] == expected.tolist()
    np.testing.assert_allclose(answer["scores"], scores, rtol=1e-5)
    assert not {"7", "é3"} & {*expected[0]}
    assert not {"007", "é3"} & {*expected[1]}
    assert served(tf.zeros([2, 0], tf.string))["items"].shape == (2, 4)


def test_histories_may_be_ragged() -> None:
    encoder = made()
    best, scores = encoder.best(tf.ragged.constant([[3, 9, 4], [5]]), 4)
    expected = encoder.best([[3, 9, 4], [5, 0, 0]], 4)
    np.testing.assert_array_equal(best, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


@pytest.mark.long
def test_what_does_not_fit_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="`num_heads` must divide `num_factors`"):
        models.SequenceEncoder(3, 4, num_heads=3)
    with pytest.raises(ValueError, match="at most `max_length` = 6 positions"):
        made()(np.ones([1, 7], np.int32))
    of_any_length = tf.function(made(), [tf.TensorSpec([None, None], tf.int32)], autograph=False)
    assert of_any_length(np.ones([1, 6], np.int32)).shape == (1, 6, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most `max_length` = 6 positions"):
        of_any_length(np.ones([1, 7], np.int32))
    by_xla = tf.function(made(), of_any_length.input_signature, False, jit_compile=True)
    assert np.isfinite(by_xla(np.ones([1, 6], np.int32))).all()
    assert np.isnan(by_xla(np.ones([1, 7], np.int32))).all()
    with pytest.raises(ValueError, match="`k` must be positive"):
        made().best(HISTORY, 0)
    with pytest.raises(ValueError, match="`metrics` must not rank"):
        made().compile("adam", "mse", metrics=[["mae", metrics.NDCG(5, name="ndcg")]])
    for ids in (["a"] * NUM_ITEMS, ["", *map(str, range(NUM_ITEMS - 1))], ["a"]):
        with pytest.raises(ValueError, match="must be 20 different texts that are not empty"):
            export.next_items(made(), ids, tmp_path / "model")
