"""Losses beside those of tensorflow-ranking in one process: the stack of the extra `tfr`."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import tfr_counterparts
from tests.golden.test_tfr_losses import assert_equals_recorded, loss_of
from tests.golden.vectors import Case

pytestmark = pytest.mark.usefixtures("eagerly")

tfr = pytest.importorskip("tensorflow_ranking")

IMPL = "losses_impl."
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "SoftmaxLoss": [{}, {"temperature": 0.7}],
    "CalibratedSoftmaxLoss": [{"virtual_label": 0.3, "temperature": 1.5}],
    "UniqueSoftmaxLoss": [{}, {"temperature": 0.7}],
    "ListMLELoss": [{}, {"temperature": 0.7}],
    "ApproxNDCGLoss": [{}, {"temperature": 0.7}],
    "ApproxMRRLoss": [{}, {"temperature": 0.7}],
    "ClickEMLoss": [{"exam_loss_weight": 0.4, "rel_loss_weight": 1.3}],
    "MixtureEMLoss": [{"alpha": 0.6}],
    f"{IMPL}PolyOneSoftmaxLoss": [{"epsilon": 0.4, "temperature": 1.5}],
    f"{IMPL}NeuralSortCrossEntropyLoss": [{}, {"temperature": 1.5}],
    f"{IMPL}NeuralSortNDCGLoss": [{}, {"temperature": 1.5}],
    f"{IMPL}CircleLoss": [{"gamma": 5.0, "margin": 0.1}],
    "PairwiseHingeLoss": [{}, {"temperature": 0.7}],
    "PairwiseLogisticLoss": [{}, {"temperature": 0.7}],
    "PairwiseSoftZeroOneLoss": [{}, {"temperature": 0.7}],
    "PairwiseMSELoss": [{}, {"temperature": 0.7}],
    "SigmoidCrossEntropyLoss": [{}],
    "MeanSquaredLoss": [{}],
    "OrdinalLoss": [{"ordinal_size": 3}],
    f"{IMPL}MultiClassLoss": [{"num_classes": 4, "from_logits": True}],
}
LARGEST_LABEL = {
    "ClickEMLoss": 1.0,
    "MixtureEMLoss": 1.0,
    "SigmoidCrossEntropyLoss": 1.0,
    "OrdinalLoss": 3.0,
    f"{IMPL}MultiClassLoss": 3.0,
}
NUM_SCORES = {
    "ClickEMLoss": 2,
    "MixtureEMLoss": 2,
    "OrdinalLoss": 3,
    f"{IMPL}MultiClassLoss": 4,
}
RANDOM = ("GumbelApproxNDCGLoss", "CoupledRankDistilLoss", "YetiLogisticLoss")
CASES = [
    pytest.param(name, kwargs, seed, id=f"{name}-{kwargs}-{seed}")
    for name, several in ARGUMENTS.items()
    for kwargs in several
    for seed in range(2)
]


def random_case(name: str, kwargs: dict[str, Any], seed: int) -> Case:
    """Lists of different labels, so that there are no ties; of weights per item with odd seeds."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 8))
    labels = np.array([rng.permutation(size) for _ in range(3)], np.float64)
    labels = np.minimum(labels, LARGEST_LABEL.get(name, size))
    if name != "ListMLELoss":  # which has padding of its own there
        labels[rng.random(labels.shape) < 0.2] = -1.0
    shape = (*labels.shape, NUM_SCORES[name]) if name in NUM_SCORES else labels.shape
    scale = 0.3 if name == f"{IMPL}CircleLoss" else 1.0
    return {
        "id": name,
        "loss": name,
        "kwargs": kwargs,
        "lambda_weight": None,
        "ragged": False,
        "scenario": "random",
        "weight_kind": "w_item",
        "y_true": labels.tolist(),
        "y_pred": (0.5 + scale * rng.normal(size=shape)).tolist(),
        "sample_weight": rng.uniform(0.5, 2.0, labels.shape).tolist() if seed % 2 else None,
        "deterministic": True,
    }


def with_recorded(case: Case) -> Case:
    """Adds the value and gradient that tensorflow-ranking has now."""
    scores = tf.constant(case["y_pred"])
    labels, weights = tf.constant(case["y_true"]), case["sample_weight"]
    name = case["loss"].removeprefix(IMPL)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        if case["loss"].startswith(IMPL):
            loss = getattr(tfr.losses_impl, name)(name="loss", **case["kwargs"])
            logits = scores if name == "PolyOneSoftmaxLoss" else loss.get_logits(scores)
            values, list_weights = loss.compute_per_list(labels, logits, weights)
            # of a list without a pair, the weight of the circle loss is 0 / 0
            values *= tf.where(tf.math.is_nan(list_weights), 0.0, list_weights)
        else:
            values = getattr(tfr.keras.losses, name)(
                reduction=tf.keras.losses.Reduction.NONE, **case["kwargs"]
            )(labels, scores, weights)
    grad = tape.gradient(values, scores)
    recorded = {"none": values.numpy().tolist()}
    return {**case, "expected": recorded, "grad_sum": grad.numpy().tolist()}


@pytest.mark.parametrize(("name", "kwargs", "seed"), CASES)
def test_equals_tensorflow_ranking(name: str, kwargs: dict[str, Any], seed: int) -> None:
    assert_equals_recorded(with_recorded(random_case(name, kwargs, seed)))


def test_every_loss_that_is_not_random_is_compared() -> None:
    assert set(ARGUMENTS) == set(tfr_counterparts.LOSSES) - set(RANDOM)


@pytest.mark.parametrize("name", RANDOM[:2])
def test_random_losses_agree_in_the_mean(name: str) -> None:
    case = random_case("ListMLELoss", {"sample_size": 4000}, 0)
    labels, scores = tf.constant(case["y_true"]), tf.constant(case["y_pred"])
    theirs = getattr(tfr.keras.losses, name)(sample_size=4000)(labels, scores)
    ours = loss_of(tfr_counterparts.of({**case, "loss": name}), "float32")
    np.testing.assert_allclose(np.mean(ours(labels, scores)), theirs, rtol=0.02)
