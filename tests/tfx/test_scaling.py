import collections
import json

import numpy as np
import pytest

from tfrank_sel.pipelines.tfx.scaling import Totals, described

LISTS = collections.Counter({"train": 3, "eval": 1})


def totals(values, lists=LISTS):
    values = np.array(values)
    moments = np.stack([np.ones_like(values), values, np.square(values)]).sum(axis=1)
    return Totals(moments, lists)


def test_mean_and_variance_are_those_of_the_values():
    found = json.loads(described(totals([[1.0, 5.0], [3.0, 5.0]]), ["a", "b"]))
    assert (found["mean"], found["variance"]) == ([2.0, 5.0], [1.0, 0.0])


def test_the_rounding_of_a_constant_is_no_variance():
    constant = np.full([1000, 1], 0.1)
    of_sums = totals(constant)
    count, values, squares = of_sums.moments[:, 0]
    assert squares / count - np.square(values / count) > 0.0
    assert json.loads(described(of_sums, ["a"]))["variance"] == [0.0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_named(value):
    with pytest.raises(ValueError, match=r"features must be finite\. Received others in b$"):
        described(totals([[1.0, 5.0], [3.0, value]]), ["a", "b"])


def test_a_split_without_items_is_refused():
    lists = collections.Counter({"train": 3, "eval": 0})
    with pytest.raises(ValueError, match=r"Received lists: \{'train': 3, 'eval': 0\}"):
        described(totals([[1.0]], lists), ["a"])
