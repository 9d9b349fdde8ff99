"""The numbers of rax and keras-rs, by the names in docs/migrate.md, on JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfrank_sel import losses, metrics, numerics

if numerics.NAME != "jax":
    pytest.skip("`make test-jax` has these", allow_module_level=True)

import jax.numpy as jnp

rax = pytest.importorskip("rax")
keras_rs = pytest.importorskip("keras_rs")

RNG = np.random.default_rng(0)
MASK = np.arange(5) < np.array([4, 4, 4, 5, 5, 5])[:, np.newaxis]
SCORES = RNG.normal(size=MASK.shape).astype(np.float32)
GRADES = RNG.integers(0, 3, MASK.shape).astype(np.float32)
GRADES[:, :2] = 2, 0
SHARES = GRADES / np.sum(GRADES * MASK, axis=1, keepdims=True)
DISTINCT = RNG.permuted(np.tile(np.arange(5.0), [len(MASK), 1]), axis=1)
CLICKS = np.minimum(GRADES, 1.0)

OF_RAX = {"normalizer": losses.sum_over_terms, "reduction": "sum"}  # beside `reduce_fn=jnp.sum`
OF_KERAS_RS = {"normalizer": losses.mean_over_slots}
Measure = Callable[[np.ndarray], Any]


def by_rax(name: str, **options: Any) -> Measure:
    return lambda labels: getattr(rax, name)(SCORES, labels, where=jnp.asarray(MASK), **options)


def by_keras_rs(formula: Callable[..., Any]) -> Measure:
    mask = jnp.asarray(MASK)
    return lambda labels: formula({"labels": jnp.asarray(labels), "mask": mask}, SCORES)


CASES: dict[str, tuple[Measure, Any, np.ndarray]] = {
    "softmax_loss": (by_rax("softmax_loss"), losses.SoftmaxLoss(), SHARES),
    "poly1_softmax_loss": (by_rax("poly1_softmax_loss"), losses.PolyOneSoftmaxLoss(), SHARES),
    "listmle_loss": (by_rax("listmle_loss"), losses.ListMLELoss(), DISTINCT),
    "ListMLELoss": (by_keras_rs(keras_rs.losses.ListMLELoss()), losses.ListMLELoss(), DISTINCT),
    "unique_softmax_loss": (by_rax("unique_softmax_loss"), losses.UniqueSoftmaxLoss(), GRADES),
    "opa_metric": (by_rax("opa_metric"), metrics.OPA(), GRADES),
}
for name, ours, options in (
    ("pairwise_hinge_loss", losses.PairwiseHingeLoss(**OF_RAX), {}),
    ("pairwise_logistic_loss", losses.PairwiseLogisticLoss(**OF_RAX), {}),
    ("pairwise_soft_zero_one_loss", losses.PairwiseSoftZeroOneLoss(**OF_RAX), {}),
    ("pairwise_mse_loss", losses.PairwiseMSELoss(**OF_RAX), {}),
    ("pairwise_qr_loss", losses.PairwiseQuantileLoss(0.25, **OF_RAX), {"tau": 0.25}),
    ("pointwise_mse_loss", losses.MeanSquaredLoss(**OF_RAX), {}),
    ("pointwise_sigmoid_loss", losses.SigmoidCrossEntropyLoss(**OF_RAX), {}),
):
    labels = CLICKS if name == "pointwise_sigmoid_loss" else GRADES
    CASES[name] = by_rax(name, reduce_fn=jnp.sum, **options), ours, labels
CASES["labeldiff_lambdaweight"] = (
    by_rax("pairwise_logistic_loss", reduce_fn=jnp.sum, lambdaweight_fn=rax.labeldiff_lambdaweight),
    losses.PairwiseLogisticLoss(losses.lambdas.LabelDiffLambdaWeight(), **OF_RAX),
    GRADES,
)
for theirs, ours in (
    ("PairwiseHingeLoss", losses.PairwiseHingeLoss(**OF_KERAS_RS)),
    ("PairwiseLogisticLoss", losses.PairwiseLogisticLoss(**OF_KERAS_RS)),
    ("PairwiseMeanSquaredError", losses.PairwiseMSELoss(**OF_KERAS_RS)),
    ("PairwiseSoftZeroOneLoss", losses.PairwiseSoftZeroOneLoss(**OF_KERAS_RS)),
):
    CASES[theirs] = by_keras_rs(getattr(keras_rs.losses, theirs)()), ours, GRADES
for k in (None, 2):
    for name, theirs, made, labels in (
        ("ndcg_metric", "NDCG", metrics.NDCG, GRADES),
        ("dcg_metric", "DCG", metrics.DCG, GRADES),
        ("mrr_metric", "MeanReciprocalRank", metrics.MRR, CLICKS),
        ("ap_metric", "MeanAveragePrecision", metrics.MAP, CLICKS),
        ("precision_metric", "PrecisionAtK", metrics.Precision, CLICKS),
        ("recall_metric", "RecallAtK", metrics.Recall, CLICKS),
    ):
        CASES[f"{name}-{k}"] = by_rax(name, topn=k), made(k), labels
        CASES[f"{theirs}-{k}"] = by_keras_rs(getattr(keras_rs.metrics, theirs)(k)), made(k), labels


@pytest.mark.parametrize("case", CASES)
def test_a_peer_has_the_same_number(case: str) -> None:
    theirs, ours, labels = CASES[case]
    found = ours(np.where(MASK, labels, np.nan), SCORES)
    assert float(found) == pytest.approx(float(theirs(labels)), rel=1e-5)
