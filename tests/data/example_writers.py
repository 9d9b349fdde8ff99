"""Writers of lists in the formats that the package only reads."""

from collections.abc import Mapping
from typing import Any

from tfrank_sel.data import ListFeatures
from tfrank_sel.data.writing import _examples, example


def example_in_example(values: Mapping[str, Any], features: ListFeatures) -> bytes:
    """A `tf.train.Example` that contains other examples (EIE)."""
    context, items = _examples(values, features)
    inner = {"serialized_context": example(context)}
    return example({**inner, "serialized_examples": [*map(example, items)]})


def one_item_example(values: Mapping[str, Any], features: ListFeatures) -> bytes:
    """A `tf.train.Example` of the features of one item and of its query."""
    context, [item] = _examples(values, features)
    return example({**context, **item})
