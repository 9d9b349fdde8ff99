"""Losses and metrics of other inputs than scores of items are saved and loaded equal."""

import json
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from tests.cases import DIVERSITY, IN_BATCH, N_WAY, SAMPLED, SCORE_VECTORS, Case, name_of
from tests.contracts import test_diversity, test_every_formula, test_other_inputs

pytestmark = pytest.mark.usefixtures("eagerly")

CASES = [
    pytest.param(case, batch, id=name_of(case))
    for cases, batch in (
        (SCORE_VECTORS + N_WAY + IN_BATCH, test_other_inputs.batch),
        (SAMPLED, test_every_formula.batch),
        (DIVERSITY, test_diversity.batch),
    )
    for case in cases
]


@pytest.mark.parametrize(("case", "batch"), CASES)
def test_a_saved_formula_is_equal(case: Case, batch: Callable[[Case], Any]) -> None:
    saved = json.dumps(keras.saving.serialize_keras_object(case.make()))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert loaded.get_config() == case.make().get_config()
    np.testing.assert_allclose(loaded(*batch(case)), case.make()(*batch(case)))
