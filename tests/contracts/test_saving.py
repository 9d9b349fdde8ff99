"""Losses and metrics of other inputs than scores of items are saved and loaded equal."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from tests.cases import (
    CALIBRATION,
    DIVERSITY,
    EVERY_LOSS,
    EVERY_METRIC,
    IN_BATCH,
    N_WAY,
    SAMPLED,
    SCORE_VECTORS,
    Case,
    name_of,
)
from tests.contracts import test_diversity, test_every_formula, test_other_inputs
from tfrank_sel import metrics
from tfrank_sel.keras_versions import IS_KERAS_3

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


@pytest.mark.sample(2)
@pytest.mark.parametrize(("case", "batch"), CASES)
def test_a_saved_formula_is_equal(case: Case, batch: Callable[[Case], Any]) -> None:
    saved = json.dumps(keras.saving.serialize_keras_object(case.make()))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert loaded.get_config() == case.make().get_config()
    np.testing.assert_allclose(loaded(*batch(case)), case.make()(*batch(case)))


@pytest.mark.parametrize("case", EVERY_LOSS + EVERY_METRIC, ids=name_of)
def test_a_subclass_keeps_what_it_passes_on(case: Case) -> None:
    original = case.make()
    cls: Any = type(original)

    class Own(cls):  # type: ignore[misc]
        def __init__(self, own: float = 0.0, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.own = own

    options = case.make.keywords  # type: ignore[attr-defined]
    made = Own(2.0, *case.make.args, **options)  # type: ignore[attr-defined]
    loaded = Own.from_config(json.loads(json.dumps(made.get_config())))
    assert loaded.get_config() == made.get_config()
    assert loaded.own == 2.0
    for name, value in original.arguments().items():
        assert name == "name" or repr(getattr(loaded, name)) == repr(value)
    with pytest.raises(TypeError, match="`own`"):
        Own(nothing_of_this_name=1.0, own="text")


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", EVERY_LOSS + EVERY_METRIC, ids=name_of)
def test_the_state_of_a_copy_has_no_graph_of_the_original(case: Case) -> None:
    made = case.make()
    for name in ("shared_formula", "_evaluator"):
        getattr(made, name, None)
    assert vars(made).keys() & {"shared_formula", "_evaluator"} or case in CALIBRATION
    assert not made.__getstate__().keys() & {"shared_formula", "_evaluator"}


def test_the_copy_of_an_evaluator_is_equal() -> None:
    evaluate = metrics.Evaluator([metrics.MRR(), metrics.NDCG(2)])
    copied = pickle.loads(pickle.dumps(evaluate)) if IS_KERAS_3 else copy.deepcopy(evaluate)
    for name, values in evaluate([[0.0, 1.0]], [[2.0, 1.0]]).items():
        np.testing.assert_equal(copied([[0.0, 1.0]], [[2.0, 1.0]])[name], values)
