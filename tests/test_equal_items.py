"""A score belongs to an item: equal items score equally, in any batch, order, padding, engine."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import rankers
from tests.rankers import FEATURES, KINDS, expected
from tfrank_sel import data, export, models, roads


@keras.saving.register_keras_serializable("tests")
class Rounded(keras.layers.Layer):
    """Scores that differ in the last bits by place, as rows of a product do on some processors."""

    def call(self, scores):
        place = tf.cast(tf.range(tf.shape(scores)[1]), tf.float32)
        return scores * (1.0 + 2e-7 * tf.sin(5.0 * place)[:, tf.newaxis])


def rounded():
    layers = [keras.Input([None, FEATURES]), keras.layers.Rescaling(0.02)]
    return keras.Sequential([*layers, keras.layers.Dense(1), Rounded()])


MADE = {name: make for name, make in KINDS.items() if name != "types"}
ROUNDED = "rounded member"
MADE[ROUNDED] = lambda random: models.Ensemble([rounded(), rankers.forest(random)])


@pytest.fixture
def engines(tmp_path):
    """Scores of a model by Keras, by its SavedModel and, if it has a form there, by ONNX."""

    def made(model, has_onnx):
        takes_mask = getattr(model, "takes_mask", False)
        yield lambda x, mask: expected(model, x, mask)
        export.export(model, data.FeatureSpec(FEATURES), tmp_path / "served")
        served = tf.saved_model.load(str(tmp_path / "served"))
        yield lambda x, mask: served.signatures["predict"](
            features=tf.constant(x), mask=tf.constant(mask)
        )["scores"].numpy()
        if has_onnx and roads.exists("onnx"):
            export.onnx(model, tmp_path / "model.onnx")
            session = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "model.onnx")
            yield lambda x, mask: session.run(
                ["scores"], {"features": x, "mask": mask} if takes_mask else {"features": x}
            )[0]

    return made


@pytest.mark.long
@pytest.mark.parametrize("kind", [x for x in MADE if x != ROUNDED])
def test_equal_items_score_equally(kind, engines) -> None:
    assert_equal_items_score_equally(kind, engines)


def test_rounding_of_a_member_is_no_score(engines) -> None:
    assert_equal_items_score_equally(ROUNDED, engines)


def assert_equal_items_score_equally(kind, engines) -> None:
    random = np.random.default_rng(1)
    keras.utils.set_random_seed(1)
    model = MADE[kind](random)
    x = (random.normal(size=[6, 7, FEATURES]) * 30.0).astype(np.float32)
    x[3:] = x[3:, :1]  # lists of equal items only
    doubled, mask = np.concatenate([x, x], axis=1), np.ones([6, 14], bool)
    expected(model, doubled, mask)
    rankers.shaken(model, random)
    order = random.permutation(14)
    junk = np.pad(doubled, [(0, 0), (0, 5), (0, 0)], constant_values=1e30)
    takes_mask = getattr(model, "takes_mask", False)
    of_keras = expected(model, doubled, mask)
    for score in engines(model, kind != ROUNDED):
        found = score(doubled, mask)
        near = {"rtol": 1e-5, "atol": 1e-5 * max(np.abs(found).max(), 1.0)}
        np.testing.assert_allclose(found, of_keras, **near)
        np.testing.assert_allclose(found[:, 7:], found[:, :7], **near)
        np.testing.assert_allclose(found[3:], found[3:, :1].repeat(14, 1), **near)
        alone = [score(doubled[i : i + 1], mask[:1]) for i in range(6)]
        np.testing.assert_allclose(np.concatenate(alone), found, **near)
        np.testing.assert_allclose(score(doubled[:, order], mask), found[:, order], **near)
        if takes_mask and kind != "isotonic":  # attends to padding
            padded = score(junk, np.pad(mask, [(0, 0), (0, 5)]))
            np.testing.assert_allclose(padded[:, :14], found, **near)
    inputs = {"features": doubled, "mask": mask} if takes_mask else doubled
    why = models.explain(model, inputs, 0, 7).values.numpy()
    np.testing.assert_allclose(why, np.zeros_like(why), atol=near["atol"])
