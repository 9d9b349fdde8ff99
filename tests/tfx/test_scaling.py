import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.tfx.conftest import layout_of
from tfrank_sel import data
from tfrank_sel.data import writing
from tfrank_sel.features import Category, Number
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.analysis.statistics import Summary
from tfrank_sel.pipelines.configuration.data import Gates
from tfrank_sel.pipelines.tfx import sequences
from tfrank_sel.pipelines.tfx.scaling import check, items, trainer_inputs

LAYOUT = layout_of({"a": "float_list", "b": "float_list"})
KNOWN = data.ListFeatures(
    {
        "price": tf.io.FixedLenFeature([], tf.float32),
        "brand": tf.io.FixedLenFeature([], tf.string),
        sequences.LABEL: tf.io.FixedLenFeature([], tf.float32),
    }
)
DAYS = layout_of(
    {"price": "float_list", "brand": "bytes_list"}, {"price": Number(), "brand": Category()}
)


def statistics(*batches):
    """Statistics of batches of lists, each of which is `[items, 2]` features."""
    kinds = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("a", "b", sequences.LABEL)}
    known = data.ListFeatures(kinds)
    summary = Summary(functools.partial(items, layout=LAYOUT), LAYOUT.features)
    total = summary.create_accumulator()
    for batch in batches:
        made = [
            writing.serialize_sequence_example(
                {
                    "a": [x for x, _ in one],
                    "b": [x for _, x in one],
                    sequences.LABEL: [1.0] * len(one),
                },
                known,
            )
            for one in batch
        ]
        total = summary.add_input(total, made)
    return summary.extract_output(total)


def test_mean_and_variance_are_those_of_the_compressed_values():
    lists_of_two = [[(np.e - 1.0, 5.0), (np.e**3 - 1.0, 5.0)]], [[], [(np.e**2 - 1.0, 5.0)]]
    found = trainer_inputs({"train": statistics(*lists_of_two)}, LAYOUT)["preparation"]
    np.testing.assert_allclose(found["mean"], [2.0, np.log(6.0)], rtol=1e-6)
    np.testing.assert_allclose(found["variance"], [2.0 / 3.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_named(value):
    with pytest.raises(tf.errors.InvalidArgumentError, match="`b` must be finite"):
        statistics([[(1.0, 5.0), (3.0, value)]])


def test_a_split_without_items_is_refused():
    for found in (statistics(), statistics([[]])):
        with pytest.raises(ValueError, match="'eval' must hold a list with items"):
            trainer_inputs({"eval": found}, LAYOUT)


def a_day(price, brand):
    """Statistics of lists of two items."""
    summary = Summary(functools.partial(items, layout=DAYS), DAYS.features)
    made = [
        writing.serialize_sequence_example(
            {"price": [price, price + 1.0], "brand": ["a", brand], sequences.LABEL: [0.0, 1.0]},
            KNOWN,
        )
        for _ in range(40)
    ]
    total = summary.add_input(summary.create_accumulator(), made)
    return summary.extract_output(total)


def test_the_vocabulary_is_of_the_training_split_alone():
    splits = {"train": a_day(1.0, "b"), "eval": a_day(1.0, "a")}  # where all brands are the same
    assert trainer_inputs(splits, DAYS)["preparation"]["vocabularies"] == {"brand": ["a", "b"]}


def test_gates_hold_eval_and_test_against_train_and_train_against_the_champion(caplog):
    caplog.set_level("INFO")
    known, dearer, other = a_day(1.0, "b"), a_day(90.0, "b"), a_day(1.0, "c")
    fails = Gates(numbers="fail", texts="fail")
    check({"train": known, "eval": known, "test": known}, known, sequences.LABEL, fails)
    assert not caplog.messages
    with pytest.raises(GateError, match=r"^gates\.numbers: test: price: .* of training\. Received"):
        check({"train": known, "eval": known, "test": dearer}, None, sequences.LABEL, fails)
    everywhere = {"train": known, "eval": known, "test": known}
    with pytest.raises(GateError, match=r"^gates\.texts: train: brand: .* the champion's training"):
        check(everywhere, other, sequences.LABEL, fails)
    caplog.clear()
    check(everywhere, other, sequences.LABEL, Gates())
    [told] = caplog.messages
    assert told.startswith("train: brand: expected shares within")
    with pytest.raises(data.InputError, match="prize"):
        check(everywhere, None, sequences.LABEL, Gates(features={"prize": {"zero": "fail"}}))
