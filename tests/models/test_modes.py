"""Models in every mode that users run: the same output and gradient of weights in each."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contracts.test_modes import known, of_any_batch, of_any_lists
from tfrank_sel import models

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=[3, 5, 2]).astype(np.float32)
MASK = np.arange(5) < np.array([[5], [3], [1]])
LISTS = {"features": FEATURES, "mask": MASK}
PAIRS = {"user": np.array([0, 2, 1]), "item": RNG.integers(0, 4, [3, 5])}
MOMENTS = {"mean": [0.0, 0.5], "variance": [1.0, 2.0]}

MODELS: list[tuple[Callable[[], Any], Any]] = [
    (lambda: models.Scorer(**MOMENTS, hidden_units=[4]), FEATURES),
    (lambda: models.ListScorer(**MOMENTS, hidden_units=[4]), LISTS),
    (lambda: models.ListScorer(**MOMENTS, hidden_units=[4], num_heads=2), LISTS),
    (lambda: models.Ensemble([models.ListScorer(**MOMENTS, hidden_units=[4])]), LISTS),
    (lambda: models.TwoTower(3, 4, 2), PAIRS),
    (lambda: models.CosineClassifier(3), FEATURES),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("make", "inputs"), MODELS, ids=[type(m()).__name__ for m, _ in MODELS])
def test_every_mode_has_the_same_output_and_gradient(make: Callable[[], Any], inputs: Any) -> None:
    keras.utils.set_random_seed(1)
    model, inputs = make(), tf.nest.map_structure(tf.constant, inputs)

    def run(inputs: Any) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            output = model(inputs)
            total = tf.reduce_sum(tf.sin(output))
        gradients = tape.gradient(total, variables)
        return output, [tf.convert_to_tensor(g) for g in gradients]

    model(inputs)
    variables = [v if isinstance(v, tf.Variable) else v.value for v in model.trainable_variables]
    expected = run(inputs)
    assert expected[1]
    for shape, jit_compile in (
        (of_any_batch, False),
        (of_any_lists, False),
        (known, True),
        (of_any_lists, True),
    ):
        signature = tf.nest.map_structure(lambda x, s=shape: tf.TensorSpec(s(x), x.dtype), inputs)
        traced = tf.function(run, [signature], jit_compile=jit_compile, autograph=False)
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            traced(inputs),
            expected,
        )
