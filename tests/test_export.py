import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import stock_server
from tfrank_sel import export, locks, models
from tfrank_sel.data import elwc, parsing
from tfrank_sel.data.spec import FeatureSpec

SPEC = FeatureSpec(num_features=3)
LOWEST = tf.float32.min
ONES = np.ones([2, 3], "f")
ALL = tf.constant([[True]])  # broadcast to every item


def ranker(call):
    inputs = keras.Input([None, 3])
    return keras.Model(inputs, keras.layers.Lambda(call, output_shape=(None,))(inputs))


def written(features):
    ids = [b"d%d" % n for n in range(len(features))]
    return elwc.serialize(np.reshape(features, [-1, 3]), SPEC, doc_ids=ids)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [keras.Input([None, 3]), layers.Dense(8, "relu"), layers.Dense(1), layers.Reshape([-1])]
    )


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model"
    export.export(model, SPEC, path, top_k=2, examples=[written(ONES)])
    return path


@pytest.fixture(scope="module")
def signatures(path):
    return tf.saved_model.load(str(path)).signatures


@pytest.mark.parametrize("sizes", [[1], [5, 1, 3], [1000, 2], [0, 2], [0], []])
def test_every_signature_scores_as_keras_does(model, signatures, sizes):
    lists = [np.random.default_rng(n).normal(size=[n, 3]).astype("f") for n in sizes]
    examples = tf.constant([written(x) for x in lists], tf.string)

    served = signatures["serving_default"](examples=examples)
    ranked = signatures["rank_top_k"](examples=examples, k=tf.constant(3))

    assert served["scores"].shape == (len(sizes), max(sizes, default=0))
    assert ranked["scores"].shape == (len(sizes), min(3, max(sizes, default=0)))
    for row, features in enumerate(lists):
        size = len(features)
        scores = model(features[None])[0].numpy() if size else np.zeros([0])
        order = np.argsort(-scores, kind="stable")[:3]
        np.testing.assert_allclose(served["scores"][row, :size], scores, atol=1e-6)
        assert np.all(served["scores"][row, size:] == LOWEST)
        assert np.sum(served["mask"][row]) == size
        np.testing.assert_allclose(ranked["scores"][row, : len(order)], scores[order], atol=1e-6)
        assert ranked["doc_ids"][row, : len(order)].numpy().tolist() == [b"d%d" % n for n in order]
        assert ranked["ranks"][row].numpy().tolist()[: len(order)] == [*range(1, len(order) + 1)]
        assert not np.any(ranked["ranks"][row, len(order) :])
        assert np.sum(ranked["mask"][row]) == len(order)
        if size:
            dense = signatures["predict"](features=tf.constant(features[None]), mask=ALL)["scores"]
            np.testing.assert_allclose(dense[0], scores, atol=1e-6)


def test_a_pair_is_explained(model, signatures):
    features = tf.random.stateless_normal([2, 4, 3], seed=[0, 0])
    pair = tf.constant([[0, 2], [3, 1]])

    served = signatures["explain"](features=features, mask=ALL, pair=pair)

    scores = tf.gather(model(features), pair, batch_dims=1)
    differences = scores[:, 0] - scores[:, 1]
    np.testing.assert_allclose(tf.reduce_sum(served["contributions"], 1), differences, atol=1e-5)
    assert served["features"].numpy().tolist() == [[b"1", b"2", b"3"]] * 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be indices of items"):
        signatures["explain"](features=features, mask=ALL, pair=pair + 1)


def test_lists_may_come_as_bytes(model, signatures):
    lists = [np.random.default_rng(n).normal(size=[n, 3]).astype("f") for n in (4, 0, 1)]

    served = signatures["predict_bytes"](features=tf.constant([x.tobytes() for x in lists]))

    assert tf.reduce_sum(tf.cast(served["mask"], tf.int32), 1).numpy().tolist() == [4, 0, 1]
    np.testing.assert_allclose(served["scores"][0], model(lists[0][None])[0], atol=1e-6)
    np.testing.assert_allclose(served["scores"][2, 0], model(lists[2][None])[0, 0], atol=1e-6)
    assert np.all(served["scores"][1] == LOWEST)
    assert signatures["predict_bytes"](features=tf.constant([b""]))["scores"].shape == (1, 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="12 bytes for each item"):
        signatures["predict_bytes"](features=tf.constant([b"\0" * 13]))


def test_the_names_of_tensorflow_ranking_answer(model, signatures):
    features = np.random.default_rng(0).normal(size=[3, 3]).astype("f")
    examples = tf.constant([written(features)])
    items = parsing.split(examples)[0][0]

    whole = signatures["tensorflow/serving/predict"](inputs=examples)["outputs"]

    np.testing.assert_allclose(whole, model(features[None]), atol=1e-6)
    for name in ("regress", "tensorflow/serving/regress"):
        single = signatures[name](inputs=items)["outputs"]
        np.testing.assert_allclose(single, model(features[:, None])[:, 0], atol=1e-6)


def test_the_manifest_tells_what_was_exported(tmp_path, model, path):
    metadata = {"metrics": {"ndcg": 0.5}}
    export.export(model, SPEC, tmp_path / "same", metadata=metadata)
    export.export(keras.models.clone_model(model), SPEC, tmp_path / "other", metadata=metadata)
    folders = path, tmp_path / "same", tmp_path / "other"
    told = [json.loads((x / "assets.extra" / "manifest.json").read_text()) for x in folders]
    for manifest in told[1:]:
        assert manifest["metrics"] == {"ndcg": 0.5}
        assert manifest["versions"]["tensorflow"] == tf.__version__
        assert FeatureSpec(**manifest["features"]) == SPEC
    hashes = [manifest["weights_sha256"] for manifest in told]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_version_can_be_taken_back_and_old_ones_removed(path, tmp_path):
    for version in (1, 2, 3, 4):
        export.publish(path, tmp_path, version)
    (tmp_path / "9").touch()  # no folder, hence no version

    assert export.roll_back(tmp_path) == 3
    assert export.remove_old(tmp_path, keep=2) == [1]
    assert sorted(child.name for child in tmp_path.iterdir()) == ["2", "3", "9", "rolled-back-4"]
    assert export.remove_old(tmp_path, keep=2) == []
    with pytest.raises(ValueError, match=r"`keep` must be positive\. Received: 0"):
        export.remove_old(tmp_path, keep=0)
    export.remove_old(tmp_path, keep=1)
    with pytest.raises(ValueError, match=r"two versions to roll back\. Received: versions \[3\]"):
        export.roll_back(tmp_path)


@pytest.mark.long
def test_equal_scores_keep_their_order_and_padding_comes_last(tmp_path):
    export.export(ranker(lambda x: x[:, :, 0] - np.inf * x[:, :, 1]), SPEC, tmp_path / "m")
    rank_top_k = tf.saved_model.load(str(tmp_path / "m")).signatures["rank_top_k"]
    lists = [[[1, 0, 0], [2, 1, 0], [2, 0, 0], [1, 0, 0]], [[3, 1, 0]]]

    # 0 * inf is NaN, and NaN is no excuse for padding to lead either.
    ranked = rank_top_k(examples=tf.constant([written(x) for x in lists]), k=tf.constant(4))

    assert ranked["mask"].numpy().tolist() == [[True] * 4, [True, False, False, False]]
    assert ranked["doc_ids"][1].numpy().tolist() == [b"d0", b"", b"", b""]
    export.export(ranker(lambda x: x[:, :, 0]), SPEC, tmp_path / "ties")
    rank_top_k = tf.saved_model.load(str(tmp_path / "ties")).signatures["rank_top_k"]
    ranked = rank_top_k(examples=tf.constant([written(x) for x in lists]), k=tf.constant(4))
    assert ranked["doc_ids"][0].numpy().tolist() == [b"d1", b"d2", b"d0", b"d3"]


def test_bad_requests_are_told_what_is_required(signatures):
    predict, rank_top_k = signatures["predict"], signatures["rank_top_k"]
    invalid = tf.errors.InvalidArgumentError

    with pytest.raises(invalid, match="`features` must be finite"):
        predict(features=tf.constant([[[1.0, 2.0, float("nan")]]]), mask=ALL)
    with pytest.raises(invalid, match="`k` must be positive"):
        rank_top_k(examples=tf.constant([written([[1, 2, 3]])]), k=tf.constant(0))
    short = elwc.serialize(np.ones([1, 2]), FeatureSpec(num_features=2))
    with pytest.raises(invalid, match=r"Key: features.*Values size: 2 but output shape: \[3\]"):
        rank_top_k(examples=tf.constant([short]), k=tf.constant(1))


def test_a_mask_says_which_items_there_are(model, signatures):
    features = tf.ones([2, 3, 3])
    mask = tf.constant([[True, True, False], [True, False, True]])

    served = signatures["predict"](features=features, mask=mask)

    assert served["mask"].numpy().tolist() == mask.numpy().tolist()
    scores = np.where(mask, model(features), LOWEST)
    np.testing.assert_allclose(served["scores"], scores, atol=1e-6)
    everything = signatures["predict"](features=features, mask=ALL)
    assert everything["mask"].numpy().all()


def test_each_list_may_have_its_own_k(signatures):
    examples = tf.constant([written(np.eye(3)), written(np.eye(3)[::-1])])

    ranked = signatures["rank_top_k"](examples=examples, k=tf.constant([1, 2]))

    assert ranked["ranks"].numpy().tolist() == [[1, 0], [1, 2]]
    assert ranked["mask"].numpy().tolist() == [[True, False], [True, True]]
    assert ranked["doc_ids"][0, 1].numpy() == b""
    assert ranked["scores"][0, 1] == LOWEST
    with pytest.raises(tf.errors.InvalidArgumentError, match="`k` must be positive"):
        signatures["rank_top_k"](examples=examples, k=tf.constant([1, 0]))


@pytest.mark.long
def test_a_server_without_xla_runs_every_signature(model, path, signatures):
    answers = stock_server.answers(path)

    assert sorted(name for name, _ in answers) == sorted(signatures)
    for name, scores in answers:
        if name == "explain":  # an item against itself
            assert not np.any(scores)
            continue
        wanted = model(ONES[None])
        by_item = name.endswith("regress")
        np.testing.assert_allclose(scores, wanted[0] if by_item else wanted, atol=1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tf.numpy_function(lambda y: y[..., 0], [x], tf.float32), "PyFunc calls Python"),
        (tf.function(lambda x: x[..., 0] + 1.0, jit_compile=True), "requires XLA"),
    ],
)
def test_what_a_stock_server_cannot_run_is_refused(tmp_path, call, message):
    def scores(x):
        return tf.ensure_shape(call(x), [None, None])

    with pytest.raises(ValueError, match=message):
        export.export(ranker(scores), SPEC, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(tf.raw_ops, "DecodeWebP"), reason="not in this TensorFlow")
def test_an_operation_that_the_server_of_the_image_does_not_have_is_refused(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def decode(contents):
        return tf.raw_ops.DecodeWebP(contents=contents)

    tf.saved_model.save(tf.Module(), str(tmp_path / "m"), {"serving_default": decode})
    with pytest.raises(ValueError, match=r"DecodeWebP is newer than TensorFlow 2\.19"):
        export.check_servable(tmp_path / "m")


@pytest.mark.long
def test_a_model_compiled_with_xla_is_servable(tmp_path, model):
    twin = keras.models.clone_model(model)
    twin.compile("sgd", "mse", jit_compile=True)
    twin.fit(np.ones([2, 4, 3]), np.ones([2, 4]), verbose=0)

    export.export(twin, SPEC, tmp_path / "m")


def test_bad_arguments_write_nothing(tmp_path, model):
    (tmp_path / "m").mkdir()
    with pytest.raises(FileExistsError, match="`path` must not exist"):
        export.export(model, SPEC, tmp_path / "m")
    with pytest.raises(ValueError, match=r"`top_k` must be positive\. Received: 0"):
        export.export(model, SPEC, tmp_path / "new", top_k=0)
    with pytest.raises(ValueError, match=r"list_size, 1\]. Received"):
        export.export(ranker(lambda x: x), SPEC, tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_version_is_published_once(tmp_path, path):
    base = tmp_path / "base"

    published = export.publish(path, base, 7)

    assert published == base / "7"
    files = {p.relative_to(path) for p in (*path.rglob("*"), path / "digests.json")}
    assert {p.relative_to(published) for p in published.rglob("*")} == files
    (base / "009").mkdir()
    for version in (7, 9):
        with pytest.raises(FileExistsError, match="`version` must be new"):
            export.publish(path, base, version)
    with pytest.raises(ValueError, match=r"below 2\*\*63: .* Received: -1"):
        export.publish(path, base, -1)
    with pytest.raises(FileNotFoundError, match=r"must contain saved_model\.pb"):
        export.publish(tmp_path, base, 8)
    assert sorted(p.name for p in base.iterdir()) == ["009", "7"]


def test_what_a_system_without_locks_lacks_is_named(tmp_path, path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with pytest.raises(ImportError, match="requires the file locks of Linux or macOS"):
        export.publish(path, tmp_path / "base", 1)
    assert not (tmp_path / "base").exists()


@pytest.mark.long
def test_a_model_that_looks_at_the_whole_list_gets_the_mask(tmp_path):
    model = models.ListScorer([0.0] * 3, [1.0] * 3, hidden_units=[4], num_heads=2)
    sizes, random = (4, 2), np.random.default_rng(0)
    lists = [random.normal(size=[n, 3]).astype("f") for n in sizes]
    alone = [model(features[np.newaxis])[0] for features in lists]
    export.export(model, SPEC, tmp_path / "model")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures

    padded = np.stack([np.pad(x, [(0, 4 - len(x)), (0, 0)]) for x in lists])
    mask = tf.sequence_mask(sizes, 4)
    octets = tf.constant([x.tobytes() for x in lists])
    examples = tf.constant([written(x) for x in lists])
    for served in (
        signatures["serving_default"](examples=examples),
        signatures["predict"](features=tf.constant(padded), mask=mask),
        signatures["predict_bytes"](features=octets),
    ):
        for row, scores in enumerate(alone):
            np.testing.assert_allclose(served["scores"][row, : sizes[row]], scores, rtol=1e-4)
            np.testing.assert_array_equal(served["scores"][row, sizes[row] :], LOWEST)


def test_servers_ignore_versions_of_more_than_64_bits(tmp_path, path):
    (tmp_path / "20261121235959123456").mkdir()

    assert export.versions(tmp_path) == {}
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        export.publish(path, tmp_path, 2**63)


def test_a_version_that_is_a_link_is_removed_and_its_folder_stays(tmp_path):
    (tmp_path / "kept").mkdir()
    base = tmp_path / "base"
    base.mkdir()
    (base / "1").symlink_to(tmp_path / "kept")
    (base / "2").mkdir()

    assert export.remove_old(base, keep=1) == [1]
    assert [child.name for child in base.iterdir()] == ["2"]
    assert (tmp_path / "kept").is_dir()
