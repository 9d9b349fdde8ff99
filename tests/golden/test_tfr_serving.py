"""Replays the serving signatures of tensorflow-ranking 0.5.5 by those of our export.

A case holds requests and outputs, but no model. Ours knows the score that is recorded for the
features of each item, so that outputs agree only if each item reaches the model, in its place.
"""

import base64
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tests.golden import tfr_data_extra, vectors
from tests.golden.test_tfr_data import by_reference, specs
from tests.golden.vectors import Case
from tfrank_sel import export
from tfrank_sel.data import ListFeatures

pytestmark = pytest.mark.skipif(
    keras.__version__.startswith("2."), reason="export is for the default stack"
)

Array = NDArray[np.float64]

METHODS = {"predict": "ELWC", "regress": "TF_EXAMPLE"}  # and the format of their requests
LISTS = tfr_data_extra.case("ELWC", "full", "defaults", "dynamic")
ITEMS = [{"f": [0.1], "q": [0.5]}, {"f": [2.5], "q": [1.0]}, {"f": [-0.2], "q": [9.0]}]
OURS: Case = {  # recorded where a model scores an item by f + 10 * q
    **LISTS,
    "id": "SERVING/of_lists",
    "format": "SERVING",
    "example_feature_spec": {"f": LISTS["example_feature_spec"]["f"]},
    "examples_b64": [base64.b64encode(tfr_data_extra.example(x)).decode() for x in ITEMS],
    "expected": {
        "predict": {"outputs": [[5.1, 4.8, 1e30], [90.1, 90.5, 90.5], [14.8, 1e30, 15.5]]},
        "regress": {"outputs": [5.1, 12.5, 89.8]},
    },
}
CASES = [c for c in vectors.contents("tfr_data.json")["cases"] if c["format"] == "SERVING"]


class Recorded(keras.Model):
    """Gives an item the score that is recorded for the features nearest to its own."""

    def __init__(self, features: Array, scores: Array) -> None:
        super().__init__()
        self.features = tf.constant(features, tf.float32)
        self.recorded = tf.constant(scores, tf.float32)
        self.built = True

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        found = by_item({name: tf.cast(x, tf.float32) for name, x in inputs.items()})
        distances = tf.reduce_sum(tf.abs(found[:, :, tf.newaxis] - self.features), axis=-1)
        return tf.gather(self.recorded, tf.argmin(distances, axis=-1))


def by_item(features: dict[str, tf.Tensor]) -> tf.Tensor:
    """All features of each item, those of its query too, `[batch_size, list_size, size]`."""
    of_items = [x for _, x in sorted(features.items()) if len(x.shape) == 3]
    of_lists = [x[:, tf.newaxis] for _, x in sorted(features.items()) if len(x.shape) == 2]
    size = tf.shape(of_items[0])[1]
    return tf.concat([*of_items, *(tf.repeat(x, size, axis=1) for x in of_lists)], axis=-1)


def requests(case: Case, method: str) -> list[str]:
    """The requests of a method: those of lists are records, those of items stand beside them."""
    [name] = [
        x for x in case if x.endswith("_b64") and (x == "records_b64") == (method == "predict")
    ]
    encoded: list[str] = case[name]
    return encoded


def outputs(case: Case, method: str) -> Array:
    """What is recorded for a method, by its name or by that of its signature."""
    [found] = [x for name, x in case["expected"].items() if name.split("/")[-1] == method]
    while isinstance(found, dict):
        found = found["outputs"] if "outputs" in found else found["values"]
    return np.array(found, np.float32)


def read(case: Case, method: str) -> tuple[Array, Array]:
    """The features of the items of the requests, and which are no padding, by the reference."""
    parsed = by_reference(
        {**case, "format": METHODS[method], "records_b64": requests(case, method)}
    )
    names = [*case["example_feature_spec"], *(case["context_feature_spec"] or {})]
    features = {name: tf.constant(parsed[name], tf.float32) for name in names}
    return by_item(features).numpy(), np.array(parsed["mask"])


@pytest.mark.compiled
@pytest.mark.parametrize("case", [OURS, *CASES], ids=lambda case: case["id"])
def test_replay(case: Case, tmp_path: pathlib.Path) -> None:
    lists = {method: read(case, method) for method in METHODS}
    recorded = {method: outputs(case, method) for method in METHODS}
    features = np.concatenate([x[mask] for x, mask in lists.values()])
    scores = [recorded[m].reshape(mask.shape)[mask] for m, (_, mask) in lists.items()]
    model = Recorded(features, np.concatenate(scores))
    spec = ListFeatures(specs(case, "example_feature_spec"), specs(case, "context_feature_spec"))
    export.export(model, spec, tmp_path / "model")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    for method, (_, mask) in lists.items():
        serialized = tf.constant([base64.b64decode(x) for x in requests(case, method)])
        found: Any = signatures[f"tensorflow/serving/{method}"](inputs=serialized)["outputs"]
        assert found.shape == recorded[method].shape
        found = np.reshape(found, mask.shape)
        expected = recorded[method].reshape(mask.shape)
        # of padding, tensorflow-ranking's are the model's: here they are the lowest
        expected = np.where(mask, expected, export.PADDING_SCORE)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
