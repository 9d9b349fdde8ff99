"""What NumPy takes and refuses as TensorFlow does, in a process of its own."""

import os
import subprocess
import sys

import pytest

ON_NUMPY = """
import numpy as np
from tfrank_sel import losses, metrics, numerics as xp
assert xp.NAME == "numpy"
loss = losses.SoftmaxLoss()
for labels in ([["1", "0"]], np.array([[1.0, None]], object), [[True, None]]):
    try:
        loss(labels, [[1.0, 2.0]])
    except ValueError as error:
        assert "must be an array of numbers" in str(error), error
    else:
        raise AssertionError(labels)
assert np.isfinite(loss([[2**40, 1]], [[1.0, 2.0]]))
scores = [np.array([1.0, 1.0 + 1e-12])]
assert metrics.MRR(dtype="float64").evaluate([[0, 1]], scores).values.tolist() == [1.0]
noisy = losses.GumbelLoss(losses.SoftmaxLoss(), sample_size=64, seed=1)
rng = np.random.default_rng(0)
lists = rng.integers(0, 2, (256, 200)).astype("f4"), rng.normal(size=(256, 200)).astype("f4")
assert all(np.isfinite(noisy(*lists)) for _ in range(4))
"""


def ran(code: str, **variables: str) -> str:
    """What a process says at its end."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERAS_BACKEND": "numpy", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() if done.returncode else ""


def test_numbers_are_those_of_tensorflow_and_other_values_are_refused() -> None:
    pytest.importorskip("numpy", minversion="2")
    assert not ran(ON_NUMPY)


def test_another_backend_is_refused() -> None:
    pytest.importorskip("numpy", minversion="2")
    blind = "import importlib.util as u; find = u.find_spec\n"
    blind += (
        "u.find_spec = lambda x, *y: None if x in ('tensorflow', 'jax', 'keras') else find(x, *y)\n"
    )
    said = ran(blind + "from tfrank_sel import losses; losses.SoftmaxLoss", KERAS_BACKEND="torch")
    assert said.endswith("Received: keras.backend.backend()='torch'"), said
