"""Losses keep their digits in float32, where a formula as it stands would lose them.

`digits.json` has losses, labels, scores and weights, and the loss and its gradient to 9 digits, by
mpmath; no gradient, if it is below 1e-9 of the link.
"""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, losses

EXACT = json.loads((pathlib.Path(__file__).parent / "digits.json").read_text())


MARKS = [pytest.mark.compiled, pytest.mark.long]
CASES = [
    *(pytest.param(case, id=name) for name, case in EXACT.items()),
    *(pytest.param(case, id=f"{name}, compiled", marks=MARKS) for name, case in EXACT.items()),
]


@pytest.mark.sample(8)
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("case", CASES)
def test_losses_keep_their_digits_in_float32(case: dict[str, Any]) -> None:
    loss, scores = (
        eval(case["loss"], {"links": links, "losses": losses}),
        tf.constant([case["scores"]]),
    )
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss([case["labels"]], scores, [case["weights"]])
    np.testing.assert_allclose(value, case["value"], rtol=2e-5)
    found = tape.gradient(value, scores)[0]
    expected = np.array(case.get("gradient", found))
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found / largest, expected / largest, rtol=0, atol=2e-5)
