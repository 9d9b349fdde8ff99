"""The contracts of the metrics of the items of all lists together."""

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import CALIBRATION, Array, Case, name_of, one_per_class
from tests.contracts.test_every_formula import LENGTHS, lists
from tfrank_sel import losses

pytestmark = pytest.mark.usefixtures("eagerly")

every_metric = pytest.mark.parametrize("case", CALIBRATION, ids=name_of)


def padded(rows: list[Array], fill: float) -> Array:
    return np.array([np.pad(r, (1, 6 - len(r)), constant_values=fill) for r in rows])


def expected(case: Case) -> Any:
    return case.reference(*map(np.concatenate, lists(case)))


@every_metric
@pytest.mark.parametrize("junk", [0.0, 1e30, np.inf, np.nan])
def test_equals_its_reference_whatever_the_padding_holds(case: Case, junk: float) -> None:
    labels, scores, weights = lists(case)
    fields = padded(labels, np.nan), padded(scores, junk), padded(weights, junk)
    found = case.make(dtype="float64")(*fields)
    assert float(found) == pytest.approx(expected(case), rel=1e-12)


@every_metric
def test_batches_add_up_and_a_reset_forgets_them(case: Case) -> None:
    metric = case.make(dtype="float64")
    for _ in range(2):
        for fields in zip(*lists(case), strict=True):
            metric.update_state(*(x[np.newaxis] for x in fields))
        assert float(metric.result()) == pytest.approx(expected(case), rel=1e-12)
        metric.reset_state()
        assert float(metric.result()) == 0.0


@every_metric
def test_ragged_lists(case: Case) -> None:
    fields = (tf.ragged.constant([list(x) for x in rows]) for rows in lists(case))
    assert float(case.make()(*fields)) == pytest.approx(expected(case), rel=1e-5)


@every_metric
def test_the_weight_of_a_list_is_that_of_its_items(case: Case) -> None:
    labels, scores, _ = lists(case)
    of_lists = np.array([0.5, 2.0, 3.0])
    found = case.make(dtype="float64")(padded(labels, np.nan), padded(scores, 0.0), of_lists)
    weights = np.repeat(of_lists, LENGTHS)
    flat = np.concatenate(labels), np.concatenate(scores), weights
    assert float(found) == pytest.approx(case.reference(*flat), rel=1e-12)


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize("case", one_per_class(CALIBRATION), ids=name_of)
def test_a_model_reports_it_and_keeps_it(case: Case, tmp_path: pathlib.Path) -> None:
    features = np.random.default_rng(0).normal(size=[8, 5, 3]).astype("float32")
    labels = (features[..., 0] > 0.0).astype("float32")
    model = keras.Sequential([keras.layers.Dense(1), keras.layers.Flatten()])
    model.compile(loss=losses.SigmoidCrossEntropyLoss(), metrics=[case.make()])
    model.fit(features, labels, batch_size=3, verbose=0)
    found = model.evaluate(features, labels, batch_size=3, verbose=0, return_dict=True)
    scores = model.predict(features, verbose=0)
    wanted = float(case.make()(labels, scores))
    assert found[case.make().name] == pytest.approx(wanted, rel=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = loaded.evaluate(features, labels, batch_size=3, verbose=0, return_dict=True)
    assert again == pytest.approx(found, rel=1e-6)


def test_unfit_arguments() -> None:
    with pytest.raises(ValueError, match=r"`edges` must increase. Received: edges=\[0.5, 0.5\]"):
        CALIBRATION[-1].make.func([0.5, 0.5])
    with pytest.raises(ValueError, match=r"y_pred.shape=\(2, 3\)"):
        CALIBRATION[0].make()(np.zeros([2, 2]), np.zeros([2, 3]))
