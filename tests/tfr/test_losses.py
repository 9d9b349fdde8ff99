"""Differences of losses that no recorded vector shows: tensorflow-ranking is asked itself."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import differences, tfr_counterparts
from tests.golden.vectors import Case

losses_impl = pytest.importorskip("tensorflow_ranking.python.losses_impl")


@pytest.mark.parametrize("case", differences.MORE_LOSSES, ids=lambda case: case["id"])
def test_the_losses_differ(case: Case) -> None:
    theirs: Any = getattr(losses_impl, case["loss"].removeprefix("losses_impl."))(name="loss")
    labels, scores = tf.constant(case["y_true"]), tf.constant(case["y_pred"])
    value, weight = theirs.compute_per_list(labels, theirs.get_logits(scores), None)
    ours = tfr_counterparts.of(case).make(reduction="none")(labels, scores)
    assert not np.allclose(value * weight, ours, rtol=1e-3)
