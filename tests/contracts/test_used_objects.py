"""A call of a loss or metric depends on its arguments alone: a used object equals a fresh one."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import (
    DIVERSITY,
    EVERY_LOSS,
    EVERY_METRIC,
    IN_BATCH,
    N_WAY,
    SAMPLED,
    SCORE_VECTORS,
    Case,
    name_of,
    one_per_class,
)
from tfrank_sel import losses, metrics
from tfrank_sel.arguments import OF_KERAS

pytestmark = pytest.mark.filterwarnings("ignore:.*compares the items", "ignore:.*is 0 for lists")

# the noise of a call is new
STEADY = [case for case in one_per_class(EVERY_LOSS) if case not in SAMPLED]
FORMULAS = [*STEADY, *one_per_class(EVERY_METRIC)]
Call = tuple[Any, Any, Any]
VARIABLE = getattr(keras, "Variable", tf.Variable)  # Keras 2 has none of its own


def forms(case: Case, batch_size: int, size: int, rng: np.random.Generator) -> dict[str, Call]:
    """Arguments of one size: labels in each form that a formula takes, with and without weights."""
    if case in IN_BATCH:
        return {"graded": (np.arange(float(size)), rng.normal(size=[size, size]), None)}
    shape = batch_size, size
    classes = (3,) if case in N_WAY else ()
    vectors = (case.make().num_scores or 2,) if case in SCORE_VECTORS else ()
    labels = case.labels(rng, (*shape, *classes))
    scores = rng.normal(size=[*shape, *classes, *vectors]).astype(np.float32)
    made = {
        "graded": (labels, scores, None),
        "of lists": (labels, scores, rng.uniform(0.5, 2.0, batch_size)),
    }
    if case in (*N_WAY, *DIVERSITY):
        return made
    weights = rng.uniform(0.5, 2.0, shape)
    lengths = [max(size - i, 0) for i in range(batch_size)]
    rows = [tf.RaggedTensor.from_tensor(x, lengths=lengths) for x in (labels, scores, weights)]
    made |= {"ragged": tuple(rows), "of items": (labels, scores, weights)}
    if not getattr(case.make(), "takes_classes", False):
        return made
    indices = rng.integers(0, size, batch_size)
    at_positions = rng.normal(size=[batch_size, 2, size]).astype(np.float32)
    return made | {
        "one-hot": (np.eye(size)[indices], scores, None),
        "index": (indices, scores, None),
        "column": (indices[:, np.newaxis], scores, weights),
        "sequence": (rng.integers(-1, size, [batch_size, 2]), at_positions, None),
    }


def calls(case: Case) -> list[Call]:
    """All forms of one size, then some of others, and the first again."""
    rng = np.random.default_rng(4)
    every = forms(case, 3, 4, rng)
    some = [
        made[form]
        for size in ((2, 6), (1, 1))
        for made in [forms(case, *size, rng)]
        for form in ("index", "graded", "of items")
        if form in made
    ]
    return [*every.values(), *some, every["graded"]]


def result(formula: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> list[tf.Tensor]:
    """The value of a metric; of a loss also the gradient."""
    if not isinstance(formula, keras.losses.Loss):
        formula.reset_state()
        return [formula(y_true, y_pred, sample_weight)]
    is_ragged = isinstance(y_pred, tf.RaggedTensor)
    flat = tf.convert_to_tensor(y_pred.values if is_ragged else y_pred)
    with tf.GradientTape() as tape:
        tape.watch(flat)
        scores = y_pred.with_values(flat) if is_ragged else flat
        value = formula(y_true, scores, sample_weight)
    return [value, tf.convert_to_tensor(tape.gradient(value, flat))]


@pytest.mark.sample(27)
@pytest.mark.parametrize("case", FORMULAS, ids=name_of)
def test_a_used_object_equals_a_fresh_one_without_graphs(case: Case) -> None:
    used = case.make()
    given = calls(case)
    found = [result(used, *call) for call in given]
    tf.config.run_functions_eagerly(True)
    try:
        for call, values in zip(given, found, strict=True):
            for x, y in zip(values, result(case.make(), *call), strict=True):
                np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-6)
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.mark.long
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("case", FORMULAS, ids=name_of)
def test_a_used_object_equals_a_fresh_one_in_graphs(case: Case, jit_compile: bool) -> None:
    used = case.make()
    for call in calls(case):
        if jit_compile and any(isinstance(x, tf.RaggedTensor) for x in call):
            continue  # XLA takes none
        expected = result(case.make(), *call)
        run = tf.function(functools.partial(result, used), jit_compile=jit_compile, autograph=False)
        for x, y in zip(run(*call), expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-6)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", one_per_class([*EVERY_LOSS, *EVERY_METRIC]), ids=name_of)
def test_no_attribute_can_be_set_later(case: Case) -> None:
    formula = case.make()
    for name in (*formula.arguments(), "other"):
        if name != "name":
            with pytest.raises(
                AttributeError, match=f"`{name}` of {type(formula).__name__}|setter"
            ):
                setattr(formula, name, getattr(formula, name, 1))
    for name in formula.arguments().keys() - set(OF_KERAS):
        with pytest.raises(AttributeError):
            delattr(formula, name)


class _Scaled(losses.ListwiseLoss):
    """A loss whose values are those of an attribute."""

    factor: Any

    def __post_init__(self) -> None:
        self.factors = [self.factor]

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        factor = self.factors[0]
        number = factor["x"] if isinstance(factor, dict) else factor
        return tf.cast(number, scores.dtype) * tf.reduce_sum(scores, axis=1)


@pytest.mark.parametrize(
    "make", [tf.Variable, VARIABLE, tf.constant, lambda x: {"x": x}, float, np.float32]
)
def test_equal_objects_share_a_graph_but_not_what_may_change(make: Any) -> None:
    y_true, y_pred = [[0.0, 1.0]], [[1.0, 2.0]]
    first, second = _Scaled(make(2.0)), _Scaled(make(5.0))
    assert [float(x(y_true, y_pred)) for x in (first, second, first)] == [6.0, 15.0, 6.0]
    if hasattr(first.factor, "assign"):
        first.factor.assign(3.0)
        assert [float(x(y_true, y_pred)) for x in (first, second)] == [9.0, 15.0]
    if isinstance(first.factor, dict):
        first.factor["x"] = 3.0
        assert [float(x(y_true, y_pred)) for x in (first, second)] == [9.0, 15.0]


def test_equal_objects_share_a_graph_and_others_none() -> None:
    y_true, y_pred = [[0.0, 1.0]], [[1.0, 2.0]]
    assert losses.SoftmaxLoss(0.5).equality_key == losses.SoftmaxLoss(0.5, name="x").equality_key
    assert losses.SoftmaxLoss(0.5).equality_key != losses.SoftmaxLoss().equality_key
    assert losses.TopKCrossEntropyLoss(np.array([1, 2])).equality_key is not None
    assert _Scaled({"x": 1.0}).equality_key is None
    for k in (1, 2):
        assert metrics.DCG(k)(y_true, y_pred) == metrics.DCG(k, name="other")(y_true, y_pred)
