"""The presets of TensorFlow Recommenders where its own programs do not go."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, losses
from tfrank_sel.presets import tfrs

rng = np.random.default_rng(0)
QUERIES, CANDIDATES = (rng.normal(size=(n, 3)).astype("float32") for n in (4, 20))
SEARCH = tfrs.layers.factorized_top_k
LOSSES = [
    losses.RGCrossLoss(reduction="sum"),
    losses.SoftmaxLoss(reduction="sum"),
    losses.PairwiseLogisticLoss(reduction="sum"),
    losses.MatchingLoss(links.Identity(), reduction="sum"),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda x: x.name)
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_candidate_that_is_left_out_is_padding(loss: losses.ListwiseLoss, policy: str) -> None:
    counts = np.ones([4, 4], bool)
    counts[0, 2] = counts[2, 0] = False
    keras.config.set_dtype_policy(policy)
    try:
        tasks = [
            tfrs.tasks.Retrieval(loss),
            tfrs.tasks.Retrieval(loss, remove_accidental_hits=True),
        ]
        ids = tf.constant(["a", "b", "a", "c"])
        values = [
            float(tasks[0](QUERIES, CANDIDATES[:4], score_mask=counts)),
            float(tasks[1](QUERIES, CANDIDATES[:4], candidate_ids=ids)),
        ]
        plain = float(tfrs.tasks.Retrieval()(QUERIES, CANDIDATES[:4], score_mask=counts))
    finally:
        keras.config.set_dtype_policy("float32")
    expected = loss(np.where(counts, np.eye(4), np.nan), QUERIES @ CANDIDATES[:4].T)
    assert values == pytest.approx([float(expected)] * 2, rel=2e-3)
    assert np.isfinite(plain)


@pytest.mark.parametrize("make", [SEARCH.BruteForce, SEARCH.Streaming])
def test_a_search_has_at_most_all_candidates(make: type) -> None:
    batches = tf.data.Dataset.from_tensor_slices((np.arange(20), CANDIDATES)).batch(8)
    index = make(k=np.int64(50)).index_from_dataset(batches)
    best = np.argsort(-QUERIES @ CANDIDATES.T, axis=1)
    np.testing.assert_array_equal(index(QUERIES)[1], best)
    rest = index.query_with_exclusions(QUERIES, best[:, :2], k=np.int64(5))[1]
    np.testing.assert_array_equal(rest, best[:, 2:7])
    share = tfrs.metrics.FactorizedTopK(index, ks=np.array([1, 100]))
    for kind in (np.int32, np.int64):
        share.update_state(QUERIES, CANDIDATES[best[:, 0]], best[:, 0].astype(kind))
    assert [float(x) for x in share.result()] == [1.0, 1.0]


@pytest.mark.sample(2)
@pytest.mark.compiled
@pytest.mark.parametrize("make", [SEARCH.BruteForce, SEARCH.Streaming])
def test_a_traced_search_uses_the_candidates_of_today(make: type, tmp_path: pathlib.Path) -> None:
    def batches(x: np.ndarray) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(x).batch(8)

    index = make(k=1)
    traced = tf.function(lambda queries: dict(zip("ab", index(queries), strict=True)))
    for candidates in (CANDIDATES, -3.0 * CANDIDATES[:5]):
        index.index(batches(candidates), batches(np.arange(len(candidates))))
        best = np.argmax(QUERIES @ candidates.T, axis=1)
        for found in (
            index(QUERIES)[1],
            traced(QUERIES)["b"],
            index.predict(QUERIES, verbose=0)[1],
        ):
            np.testing.assert_array_equal(found[:, 0], best)
    spec = tf.TensorSpec([None, 3], tf.float32, name="queries")
    tf.saved_model.save(index, tmp_path, traced.get_concrete_function(spec))
    loaded = tf.saved_model.load(tmp_path)
    found = loaded.signatures["serving_default"](queries=tf.constant(QUERIES))
    np.testing.assert_array_equal(found["b"][:, 0], best)
    with pytest.raises(ValueError, match="must keep their dtypes after a search in a graph"):
        index.index(batches(CANDIDATES), batches(np.array(["a"] * 20)))
    np.testing.assert_array_equal(traced(QUERIES)["b"][:, 0], best)


def test_each_candidate_has_an_identifier() -> None:
    with pytest.raises(ValueError, match="`candidates` must have an identifier each"):
        SEARCH.BruteForce().index(CANDIDATES[:7], np.arange(20))


def test_a_cross_layer_is_saved(tmp_path: pathlib.Path) -> None:
    model = keras.Sequential([keras.Input([3]), tfrs.layers.dcn.Cross(np.int64(2))])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(QUERIES), model(QUERIES))
