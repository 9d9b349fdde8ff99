"""Losses and metrics that ignore a constant in all scores of a list, at scores far from 0."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import (
    EVERY_LOSS,
    IN_BATCH,
    METRICS,
    N_WAY,
    SCORE_VECTORS,
    Array,
    Case,
    name_of,
    one_per_class,
)
from tests.contracts.test_modes import with_gradient
from tfrank_sel.losses import ListwiseLoss

pytestmark = pytest.mark.usefixtures("eagerly")

FAR = 8192.0  # float32 holds the scores exactly there
TEMPERATURE = 0.3  # a quotient that float32 does not hold


def lists(case: Case) -> tuple[Array, Array]:
    """Labels, and scores of few binary digits; one list has padding."""
    rng = np.random.default_rng(5)
    shape = (4, 4) if case in IN_BATCH else (2, 3, 3) if case in N_WAY else (2, 9)
    labels = np.arange(4.0) % 3.0 if case in IN_BATCH else case.labels(rng, shape)
    if case not in IN_BATCH + N_WAY:
        labels[0, 7:] = np.nan
    vectors = (case.make().num_scores or 2,) if case in SCORE_VECTORS else ()
    return labels, np.round(rng.normal(size=(*shape, *vectors)) * 64.0) / 64.0


def made(case: Case, dtype: str) -> ListwiseLoss:
    """The loss, at a temperature that is no power of 2."""
    loss = case.make(dtype=dtype, reduction="none")
    config = loss.get_config()
    return type(loss).from_config(config | {x: TEMPERATURE for x in config if x == "temperature"})


def results(case: Case, dtype: str, level: float) -> tuple[Array, Array]:
    labels, scores = (tf.constant(x, dtype) for x in lists(case))
    value, gradient = with_gradient(made(case, dtype), labels, scores + level)
    return value.numpy(), gradient.numpy().reshape([len(value), -1])


def gap(case: Case, dtype: str) -> float:
    """How far values and gradients are off at another level, relative to the largest of a list."""
    near, far = (results(case, dtype, level) for level in (0.0, FAR))
    sizes = [np.abs(near[0]), np.abs(near[1]).max(axis=1, keepdims=True)]
    gaps = (
        np.abs(x - y) / np.where(z > 0.0, z, 1.0) for x, y, z in zip(near, far, sizes, strict=True)
    )
    return max(float(np.max(x)) for x in gaps)


@pytest.mark.sample(len(EVERY_LOSS) / len(one_per_class(EVERY_LOSS)))
@pytest.mark.parametrize("case", EVERY_LOSS, ids=name_of)
def test_a_loss_that_ignores_a_constant_keeps_its_digits(case: Case) -> None:
    ignores_level = gap(case, "float64") < 1e-8
    assert ignores_level or not made(case, "float64").ignores_level
    if ignores_level:
        assert gap(case, "float32") < 5e-6


def values(case: Case, dtype: str, level: float) -> Any:
    labels, scores = (tf.constant(x, dtype) for x in lists(case))
    return case.make(dtype=dtype).evaluate(labels, scores + level).values.numpy()


@pytest.mark.sample(len(METRICS) / len(one_per_class(METRICS)))
@pytest.mark.parametrize("case", METRICS, ids=name_of)
def test_a_metric_that_ignores_a_constant_keeps_its_digits(case: Case) -> None:
    if np.allclose(values(case, "float64", 0.0), values(case, "float64", FAR), rtol=1e-8):
        near, far = values(case, "float32", 0.0), values(case, "float32", FAR)
        np.testing.assert_allclose(far, near, rtol=5e-6)
