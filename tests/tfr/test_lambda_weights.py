"""Lambda weights beside those of tensorflow-ranking in one process: the stack of `[tfr]`."""

from typing import Any

import pytest
import tensorflow as tf

from tests.golden.test_tfr_losses import assert_equals_recorded
from tests.tfr.test_random_losses import random_case

pytestmark = pytest.mark.usefixtures("eagerly")

tfr = pytest.importorskip("tensorflow_ranking")

WEIGHTS: list[dict[str, Any]] = [
    {"class": "LabelDiffLambdaWeight"},
    {"class": "DCGLambdaWeight", "kwargs": {"smooth_fraction": 0.3, "topn": 3}},
    {"class": "NDCGLambdaWeight"},
    {"class": "NDCGLambdaWeight", "kwargs": {"gain_fn": "identity", "rank_discount_fn": "inverse"}},
    {"class": "NDCGLambdaWeightV2", "kwargs": {"topn": 2}},
    {"class": "YetiDCGLambdaWeight", "kwargs": {"normalized": True, "topn": 3}},
    {"class": "PrecisionLambdaWeight", "kwargs": {"topn": 2}},
]
PAIRWISE = (
    "PairwiseHingeLoss",
    "PairwiseLogisticLoss",
    "PairwiseMSELoss",
    "PairwiseSoftZeroOneLoss",
)
OF_ITEMS = ("DCGLambdaWeight", "NDCGLambdaWeight")  # which a softmax takes, too


def theirs(case: dict[str, Any]) -> Any:
    """The loss of tensorflow-ranking with its lambda weight."""
    given = case["lambda_weight"]
    arguments = {
        k: getattr(tfr.keras.utils, v) if isinstance(v, str) else v
        for k, v in given.get("kwargs", {}).items()
    }
    weight = getattr(tfr.keras.losses, given["class"])(**arguments)
    return getattr(tfr.keras.losses, case["loss"])(
        lambda_weight=weight, reduction=tf.keras.losses.Reduction.NONE
    )


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
@pytest.mark.parametrize("name", [*PAIRWISE, "SoftmaxLoss"])
def test_equals_tensorflow_ranking(name: str, weight: dict[str, Any]) -> None:
    if name == "SoftmaxLoss" and weight["class"] not in OF_ITEMS:
        pytest.skip("ours refuses what theirs ignores")
    for seed in (2, 3):
        case = {**random_case(name, {}, seed), "lambda_weight": weight}
        scores = tf.constant(case["y_pred"])
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = theirs(case)(tf.constant(case["y_true"]), scores, case["sample_weight"])
        recorded = {
            "expected": {"none": value.numpy().tolist()},
            "grad_sum": tape.gradient(value, scores).numpy().tolist(),
        }
        assert_equals_recorded({**case, **recorded})
