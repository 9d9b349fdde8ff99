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
    "a target next to an end of the domain": (
        (losses.FenchelYoungLoss(links.Tan()), [536585.125], [1.5707944631576538], [1]),
        (2.61961374e-16, [-0.0122820893]),
    ),
    "a target that its score holds to few digits": (
        (losses.FenchelYoungLoss(links.Logit()), [14.150625], [0.9999992847442627], [1]),
        (2.42663014e-20, [-2.60487142e-7]),
    ),
    "differences of errors": (
        (
            losses.ContrastiveMatchingLoss(links.SignedLog1p()),
            [0.5, 0.5, 0.0],
            [1e-7, 0.0, -0.5],
            [1, 1, 1],
        ),
        (2.77777776e-15, [5.55555538e-8, -3.33333321e-8, -2.22222217e-8]),
    ),
    "on both sides of a mirror": (
        (
            losses.SelectiveSigmoidCrossEntropyLoss(
                links.Capped(links.Logit(), 0.125, 0.875), 10.0
            ),
            [-49.2281227],
            [49.9999466],
            [1],
        ),
        (0.00740393866, [-6.18971903e-6]),
    ),
    "on two sides of a kink": (
        (
            losses.SelectiveSoftmaxCrossEntropyLoss(links.Step(), 0.1),
            [0.001, 1e-7],
            [0.001, -0.001],
            [1, 1],
        ),
        (0.0693134683, [2.49993754e-7, 0.0]),
    ),
    "on two sides of a minimum of the potential": (
        (
            losses.SelectiveSoftmaxCrossEntropyLoss(
                links.PiecewiseLinear(
                    knots=(-1, 1, 2), values=(0, 1, 1), slope_below=2, slope_above=0
                ),
                0.1,
            ),
            [-2.0, 1.0],
            [-2.0000059604644775, 1.0000027418136597],
            [1, 1],
        ),
        (0.0693147182, [-4.58960276e-5, -2.2947877e-5]),
    ),
    "the prior of the top item is near 1": (
        (
            losses.SelectiveSoftmaxCrossEntropyLoss(links.Exp(), 0.1),
            [1.5, -6.0],
            [1.25, -8.0],
            [0.9997, 1],
        ),
        (-3.00035183e-5, [-2.43257631e-15, 2.33798928e-19]),
    ),
    "on both sides of a mirror, of which one is finer": (
        (
            losses.SelectiveSigmoidCrossEntropyLoss(links.Inverse(links.Sigmoid())),
            [2.1189758e-05],
            [0.9999976],
            [1],
        ),
        (0.693147179, [0.000699061349]),
    ),
    "the steep item stays": (
        (
            losses.SelectiveSoftmaxLoss(links.Tan()),
            [1.57077205, 0.3079314],
            [1.57077205, 0.3079056],
            [1, 2e8],
        ),
        (3.65822961e-10, [6.62672528e-5, -2.83813829e-5]),
    ),
    "a ratio of potentials' exponentials, to a power": (
        (
            losses.SelectiveSoftmaxLoss(links.Tan(), 0.1),
            [1.5706716, 1.5707942],
            [1.4609826, 1.5707942],
            [1, 1],
        ),
        (1.61958927e-15, [-1.47669644e-14, 8.7649944e-13]),
    ),
    "a prior beyond float32": (
        (
            losses.SelectiveSoftmaxLoss(links.Identity(), 0.1, [0.0, -12.0]),
            [4.0, 5.0],
            [4.0, 6.5],
            [1, 1],
        ),
        (1.1250013, [-3.99994797, 6.49991545]),
    ),
    "ties at the top": (
        (losses.PolyOneSoftmaxLoss(), [0, 0, 1, 1], [0.0, 0.0, 9.0, 9.0], [1, 1, 1, 1]),
        (1.19333228, [9.25421254e-5, 9.25421254e-5, -9.25421254e-5, -9.25421254e-5]),
    ),
    "softly, ties at the top": (
        (losses.SoftmaxLoss(), [0, 0, 1, 1, 1], [0.0, 0.0, 9.0, 9.0, 9.0], [1, 1, 1, 1, 1]),
        (
            1.09869456,
            [4.11332172e-5, 4.11332172e-5, -2.74221448e-5, -2.74221448e-5, -2.74221448e-5],
        ),
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
