"""Losses keep their digits in float32, where a formula as it stands would lose them."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, losses

# loss, labels, scores, weights, and the loss and its gradient to 9 digits, by mpmath
EXACT = {
    "the target of the top outweighs the others": (
        (losses.SoftmaxLoss(), [1, 0, 2], [20.0, -60.0, 0.0], [1e12, 1, 1]),
        (700.384537, [-686.384537, 0.0, 686.384537]),
    ),
    "an item has nearly all the probability": (
        (losses.PolyOneSoftmaxLoss(), [0, 1], [-20.0, 20.0], [1, 1]),
        (8.49670851e-18, [8.49670851e-18, -8.49670851e-18]),
    ),
    "near each other at a height": (
        (losses.InfoNCELoss(), [0, 0, 1], [-9999.00195, -9999.0, -9998.9004], [1, 1, 1]),
        (1.03269171, [0.321661924, 0.322290783, -0.643952707]),
    ),
    "weights and scores at a height": (
        (losses.ZLPRLoss(), [1, 1], [-4696.83789, -4696.83887], [1.875, 1.0775]),
        (4697.9209, [-0.634828683, -0.365171317]),
    ),
    "an item has nearly all the base weight": (
        (losses.RGCrossLoss(), [1, 0], [0.5, -0.25], [2**40, 1]),
        (27.7258872, [-2.27373675e-13, 2.27373675e-13]),
    ),
    "at a height, of little spread": (
        (losses.RGCrossLoss(), [1, 0, 0], [5000.0, 5000.00049, 5000.00098], [0.75, 0.125, 0.125]),
        (0.000183163211, [-0.250137329, 0.125038147, 0.125099182]),
    ),
    "saturated": (
        (losses.SigmoidCrossEntropyLoss(), [1, 1], [20.0, 22.0], [1, 1]),
        (1.17005021e-9, [-1.03057681e-9, -1.39473405e-10]),
    ),
    "from end to end of a domain": (
        (losses.MatchingLoss(links.Tan()), [1.5707], [-1.57075], [1]),
        (32629.8865, [-31971.5454]),
    ),
    "far below the first": (
        (losses.ListMLELoss(), [3, 2, 1, 0], [0.0, -9999.99902, -1e4, -10000.001], [1, 1, 1, 1]),
        (1.79029506, [0.0, -0.666341093, -0.166422632, 0.832763725]),
    ),
}


@pytest.mark.parametrize(("given", "expected"), EXACT.values(), ids=list(EXACT))
def test_losses_keep_their_digits_in_float32(given: Any, expected: Any) -> None:
    loss, labels, scores, weights = given
    scores = tf.constant([scores])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss([labels], scores, [weights])
    np.testing.assert_allclose(value, expected[0], rtol=2e-5)
    largest = np.abs(expected[1]).max()
    found = tape.gradient(value, scores)[0]
    np.testing.assert_allclose(found / largest, expected[1] / largest, rtol=0, atol=2e-5)
