"""Presets have the values that tensorflow-ranking's losses and metrics gave, reduction and all."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import (
    differences,
    test_tfr_losses,
    test_tfr_metrics,
    tfr_counterparts,
    tfr_metric_counterparts,
)
from tests.golden.vectors import Case
from tfrank_sel.migration import names
from tfrank_sel.presets import tfr

pytestmark = pytest.mark.usefixtures("eagerly")

LOSSES = [
    case
    for case in test_tfr_losses.CASES
    if case["loss"] in names.LOSSES
    and "sum_over_batch_size" in case.get("expected", {})
    and case["deterministic"]
    and "gumbel_noise" not in case
    and not differences.of("losses", case)
]
POLY_ONE = [
    case
    for case in test_tfr_losses.CASES
    if case["loss"] == "losses_impl.PolyOneSoftmaxLoss" and not differences.of("losses", case)
]
METRICS = [
    case
    for case in test_tfr_metrics.CASES
    if case["metric"] in names.METRICS
    and "result" in case["expected"]
    and case["deterministic"]
    and not differences.of("metrics", case)
]


def tensor(x: Any, case: Case, per_item: bool = True) -> Any:
    if x is None or not (case["ragged"] and per_item):
        return x
    return tf.ragged.constant(x, tf.float32, ragged_rank=1)


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case["id"])
def test_a_loss_has_the_recorded_value(case: Case) -> None:
    arguments = {k: v for k, v in case["kwargs"].items() if k != "ragged"}
    if case["lambda_weight"] is not None:
        arguments["lambda_weight"] = tfr_counterparts.lambda_weight(case)
    make = getattr(tfr.losses, names.LOSSES[case["loss"]])
    weights = tensor(case["sample_weight"], case, case["weight_kind"].startswith("w_item"))
    labels, scores = (tensor(case[x], case) for x in ("y_true", "y_pred"))
    for reduction in ("sum_over_batch_size", "sum"):
        found = make(**arguments, reduction=reduction)(labels, scores, weights)
        np.testing.assert_allclose(found, case["expected"][reduction], rtol=2e-5, atol=1e-6)


def test_the_first_case_of_each_loss_has_the_recorded_value() -> None:
    for case in {case["loss"]: case for case in reversed(LOSSES)}.values():
        test_a_loss_has_the_recorded_value(case)


@pytest.mark.parametrize("case", POLY_ONE, ids=lambda case: case["id"])
def test_poly_one_has_the_recorded_sum(case: Case) -> None:
    loss = tfr.losses.poly_one_softmax_loss(**case["kwargs"], reduction="sum")
    weights = tensor(case["sample_weight"], case)
    found = loss(case["y_true"], case["y_pred"], weights)
    np.testing.assert_allclose(found, case["expected"]["weighted_sum"], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("case", METRICS, ids=lambda case: case["id"])
def test_a_metric_has_the_recorded_result(case: Case) -> None:
    arguments = {
        k: tfr_metric_counterparts.FUNCTIONS[v] if k.endswith("_fn") else v
        for k, v in case["kwargs"].items()
        if k not in ("ragged", "seed")
    }
    metric = getattr(tfr.metrics, names.METRICS[case["metric"]])(**arguments)
    for batch in case["batches"]:
        metric.update_state(*test_tfr_metrics.inputs(case, batch))
    np.testing.assert_allclose(metric.result(), case["expected"]["result"], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("of", "option"), [(tfr.losses, "lambda_weight"), (tfr.metrics, "topn")], ids=["loss", "metric"]
)
def test_each_key_takes_none_as_the_factory_of_tensorflow_ranking_does(of, option: str) -> None:
    for key in of.KEYS:
        assert of.get(key, **{option: None}).get_config() == of.get(key).get_config()


@pytest.mark.parametrize("key", tfr.losses.KEYS)
def test_a_loss_is_made_by_its_key_and_saved(key: str) -> None:
    loss = tfr.losses.get(key, name="loss")
    assert type(loss).from_config(loss.get_config()).get_config() == loss.get_config()


@pytest.mark.parametrize("get", [tfr.losses.get, tfr.metrics.get])
def test_an_unknown_key_is_an_error_that_lists_the_keys(get) -> None:
    with pytest.raises(ValueError, match=r"Received: 'nothing'\. Accepted: "):
        get("nothing")
