"""Inputs of exported models from lists."""

import dataclasses
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving.named import TYPES
from tfrank_sel import data, export, models
from tfrank_sel.data.rejections import InputError
from tfrank_sel.features import Category, Number, Vector
from tfrank_sel.pipelines.evaluation.saved import RecordScorer


@pytest.fixture(scope="module")
def folder(exported, tmp_path_factory):
    """A model of types, and packed ones of numbers that have names and that have none."""
    folder = tmp_path_factory.mktemp("models")
    keras.utils.set_random_seed(1)
    model = models.Scorer([0.0] * 3, [1.0] * 3, [4])
    model.build((None, None, 3))
    export.export(model, data.FeatureSpec(3), folder / "nameless")
    names = {"feature_names": list("abc")}
    export.export(model, data.FeatureSpec(3), folder / "numbers", metadata=names)
    for name in ("typed", "lookups"):
        (folder / name).symlink_to(exported / name)
    return folder


def test_a_packed_model_takes_its_numbers_by_name_or_of_lists_without_names_by_position(folder):
    values = np.random.default_rng(0).normal(size=[2, 4, 3]).astype(np.float32)
    mask = tf.constant([[True] * 4, [True] * 2 + [False] * 2])
    predict = tf.saved_model.load(str(folder / "numbers")).signatures["predict"]
    expected = predict(features=tf.constant(values), mask=mask)["scores"].numpy()

    features = {"word": Category(), "c": Number(), "more": Vector(size=2), "a": Number()}
    features["b"] = Number()
    mixed = np.concatenate([values[..., 2:], np.ones([2, 4, 2], "f"), values[..., :2]], axis=2)
    scorer = pickle.loads(pickle.dumps(RecordScorer(str(folder / "numbers"), features)))
    inputs = {"features": tf.constant(mixed), "texts": tf.fill([2, 4, 1], "x"), "mask": mask}
    np.testing.assert_array_equal(scorer(inputs), expected)
    np.testing.assert_array_equal(tf.function(scorer)(inputs), expected)
    again = RecordScorer(str(folder / "numbers"), features)
    np.testing.assert_array_equal(tf.function(again)(inputs), expected)  # first used in a graph

    inputs = {"features": tf.constant(values), "mask": mask}
    for model, known in (
        ("numbers", {"features": Vector(size=3)}),
        ("nameless", {"features": Vector(size=3)}),
        ("nameless", dict.fromkeys("xyz", Number())),
    ):
        scorer = RecordScorer(str(folder / model), known)
        np.testing.assert_array_equal(scorer(inputs), expected)


@pytest.mark.parametrize(
    ("model", "features", "message"),
    [
        ("numbers", {"a": Number(), "b": Number()}, "c, which they lack"),
        ("numbers", {"features": Vector(size=2)}, "3 numbers, and 2 in them"),
        ("nameless", {"features": Vector(size=5)}, "features, which has 5 numbers in them"),
        ("nameless", dict.fromkeys("ab", Number()), "3 numbers, and 2 in them"),
        ("typed", {"price": Number()}, "stock, which they lack"),
        ("typed", {**TYPES, "price": Category()}, r"price, which is Category\(.* and Number\("),
        ("typed", {**TYPES, "embedding": Vector(size=3)}, r"embedding, which is Vector\(.*size=3"),
        (
            "typed",
            {**TYPES, "year": dataclasses.replace(TYPES["year"], dtype="string")},
            "year, which is Category",
        ),
    ],
)
def test_lists_of_other_features_are_refused_by_name(folder, model, features, message):
    with pytest.raises(InputError, match=f"must have the features of the model. Rec.*{message}"):
        RecordScorer(str(folder / model), features)


def test_a_model_whose_features_have_no_types_is_refused(folder):
    with pytest.raises(InputError, match=r"packed features, or with typed features\. Rec"):
        RecordScorer(str(folder / "lookups"), TYPES)
