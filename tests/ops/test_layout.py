"""The layout for a GPU: equal to that for a CPU, without loops."""

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses
from tfrank_sel.losses import lambdas
from tfrank_sel.ops import layout

pytestmark = pytest.mark.usefixtures("eagerly")

SIZE = 70  # more than a block of a CPU has
LOSSES = {
    "LambdaLoss": losses.LambdaLoss,
    "LambdaLoss, k=3": lambda: losses.LambdaLoss(lambdas.NDCGLambdaWeight(k=3)),
    "ListMLELoss": losses.ListMLELoss,
    "CircleLoss": losses.CircleLoss,
    "SmoothTopKLoss(3)": lambda: losses.SmoothTopKLoss(3),
    "SmoothTopKLoss(20)": lambda: losses.SmoothTopKLoss(20, tau=0.1),
}


def lists() -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores; far apart in one list, equal in one, all padding in the last."""
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 3, [5, SIZE]).astype("float32")
    scores = rng.normal(size=[5, SIZE]).astype("float32")
    scores[1] *= 1e4
    scores[2], labels[4] = 0.0, -1.0
    return labels, scores


def derivatives(loss, labels: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
    """The value of each list, its gradient, and the gradient of a sum of squares of that."""
    x = tf.constant(scores)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            values = loss(labels, x)
        slopes = inner.gradient(values, x)
        bent = tf.reduce_sum(slopes**2)
    return [y.numpy() for y in (values, slopes, outer.gradient(bent, x))]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", LOSSES)
def test_both_layouts_agree(name: str) -> None:
    found = {}
    for device in ("CPU", "GPU"):
        with layout.traced_for(device):
            found[device] = derivatives(LOSSES[name](), *lists())
    for actual, expected in zip(found["GPU"], found["CPU"], strict=True):
        atol = 2e-6 * np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=atol)


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize("name", LOSSES)
def test_the_layout_for_a_gpu_has_no_loop(name: str) -> None:
    pytest.importorskip("numba")  # which the second stack lacks
    from benchmarks.speed.gpu import counts

    labels, scores = map(tf.constant, lists())
    spec, loss = tf.TensorSpec([None, SIZE]), LOSSES[name]()  # as Keras gives it

    @tf.function(jit_compile=True, autograph=False, input_signature=[spec, spec])
    def gradient(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        return tf.gradients(loss(labels, scores), scores)[0]

    with layout.traced_for("GPU"):
        hlo = gradient.experimental_get_compiler_ir(labels, scores)(stage="optimized_hlo")
    found = counts.counted(hlo)
    assert (found.loops, found.conditionals) == (0, 0)
    assert found.steps > 10


def test_the_layout_is_that_of_the_device_that_tensorflow_has() -> None:
    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    assert layout.is_wide() == has_gpu
    with layout.traced_for("CPU" if has_gpu else "GPU"):
        assert layout.is_wide() != has_gpu
    assert layout.is_wide() == has_gpu
