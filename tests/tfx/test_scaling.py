import json

import numpy as np
import pytest
import tensorflow as tf

from tests.tfx.conftest import layout_of
from tfrank_sel import data
from tfrank_sel.data import writing
from tfrank_sel.pipelines.analysis.statistics import Summary
from tfrank_sel.pipelines.tfx import lists
from tfrank_sel.pipelines.tfx.scaling import described

LAYOUT = layout_of({"a": "float_list", "b": "float_list"})


def statistics(*batches):
    """Statistics of batches of lists, each of which is `[items, 2]` features."""
    kinds = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("a", "b", lists.LABEL)}
    known = data.ListFeatures(kinds)
    summary = Summary(LAYOUT.inputs, LAYOUT.features)
    total = summary.create_accumulator()
    for batch in batches:
        made = [
            writing.serialize_sequence_example(
                {"a": [x for x, _ in one], "b": [x for _, x in one], lists.LABEL: [1.0] * len(one)},
                known,
            )
            for one in batch
        ]
        total = summary.add_input(total, made)
    return summary.extract_output(total)


def test_mean_and_variance_are_those_of_the_compressed_values():
    lists_of_two = [[(np.e - 1.0, 5.0), (np.e**3 - 1.0, 5.0)]], [[], [(np.e**2 - 1.0, 5.0)]]
    found = json.loads(described("train", LAYOUT, statistics(*lists_of_two)))
    np.testing.assert_allclose(found["mean"], [2.0, np.log(6.0)], rtol=1e-6)
    np.testing.assert_allclose(found["variance"], [2.0 / 3.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_named(value):
    with pytest.raises(tf.errors.InvalidArgumentError, match="`b` must be finite"):
        statistics([[(1.0, 5.0), (3.0, value)]])


def test_a_split_without_items_is_refused():
    for found in (statistics(), statistics([[]])):
        with pytest.raises(ValueError, match="'eval' must hold a list with items"):
            described("eval", LAYOUT, found)
