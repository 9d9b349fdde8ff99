"""ONNX Runtime for Java scores as the models do of which its files were written."""

import keras
import numpy as np

from tests import rankers
from tests.engines import java
from tests.engines.java import ITEMS, LISTS
from tfrank_sel import export

NAMES = ["price", "clicks", "age", "stock", "margin"]


def test_onnx_runtime_for_java_scores_each_list_as_the_model(tmp_path):
    random = np.random.default_rng(0)
    x, _ = rankers.lists(random, LISTS, ITEMS)
    mask, expected = np.ones(x.shape[:2], bool), {}
    for kind in ("list scorer", "trees", "recalibrated ensemble", "functional"):
        keras.utils.set_random_seed(1)
        model, name = rankers.KINDS[kind](random), kind.replace(" ", "_")
        rankers.expected(model, x[:1], mask[:1])  # builds it
        rankers.shaken(model, random)
        export.onnx(model, tmp_path / f"{name}.onnx")
        expected[name] = rankers.expected(model, x, mask)
    java.score("onnx", "Score.java", NAMES, x, tmp_path, *expected)
    for name, wanted in expected.items():
        found = np.loadtxt(tmp_path / f"{name}.csv", dtype=np.float32).reshape(wanted.shape)
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * scale, err_msg=name)
