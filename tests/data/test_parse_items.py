import numpy as np
import pytest
import tensorflow as tf

from tests.golden.tfr_data_extra import example
from tfrank_sel.data import parsing, writing

NAMES = ["price", "clicks", "a_much_longer_name_than_the_others", "b"]
FEATURES = {name: tf.io.FixedLenFeature([1], tf.float32, [0.25]) for name in NAMES}
FEATURES["b"] = tf.io.FixedLenFeature([], tf.float32)
NUMBERS = np.random.default_rng(0).normal(size=[200, 4]).astype(np.float32)
BEFORE_FLOAT = b"\x12\x08\x12\x06\x0a\x04"


def item(numbers, order=range(4), **others):
    """An item with its features in the given order."""
    entries = b"".join(
        parsing._before_float(NAMES[i]) + np.float32(numbers[i]).tobytes() for i in order
    )
    more = example(others)
    return writing.field(1, entries) + (more if others else b"")


def items(**changed):
    found = [item(row) for row in NUMBERS]
    for place, value in changed.items():
        found[int(place.removeprefix("at"))] = value
    return found


def with_bytes_for_a_float(numbers, end):
    """An item of the same length, with bytes in place of the third feature."""
    entries = item(numbers, [0, 1, 3])[2:]
    for size in range(len(end), 64):
        value = end.rjust(size, b"_")
        serialized = writing.field(1, example({"z": [value]})[2:] + entries)
        if len(serialized) == len(item(numbers)):
            return serialized
    raise AssertionError("no such bytes")


ALIKE = {
    "the order of names": items(),
    "another order": [item(row, [2, 0, 3, 1]) for row in NUMBERS],
    "nan, infinity, and bytes that look like what stands before": items(
        at0=item(np.frombuffer(b"\x00\x00\xc0\x7f\x12\x08\x12\x06\x0a\x04" + bytes(6), np.float32)),
        at150=item([np.nan, -np.inf, -0.0, 1e-45]),
    ),
    "all equal": [item(NUMBERS[0])] * 200,
}
OTHERWISE = {
    "few items": items()[:20],
    "no items": [],
    "another order in the first items": items(at3=item(NUMBERS[3], [1, 0, 2, 3])),
    "another order in the last item": items(at199=item(NUMBERS[3], [1, 0, 2, 3])),
    "one feature missing": items(at7=example({"b": [0.5]})),
    "one more feature": [item(row, id=[b"x"]) for row in NUMBERS],
    "a feature twice": [item(row, [0, 1, 2, 3, 0]) for row in NUMBERS],
    "a feature twice, for another": [item(row, [0, 0, 1, 3]) for row in NUMBERS],
    "bytes of the length of a feature, that end as what stands before a float": [
        with_bytes_for_a_float(row, BEFORE_FLOAT) for row in NUMBERS
    ],
    "bytes of the length of a feature, that end as a float": [
        with_bytes_for_a_float(row, BEFORE_FLOAT + bytes(4)) for row in NUMBERS
    ],
}


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("serialized", "is_alike"),
    [
        *(pytest.param(x, True, id=name) for name, x in ALIKE.items()),
        *(pytest.param(x, False, id=name) for name, x in OTHERWISE.items()),
    ],
)
def test_it_is_what_the_parser_of_tensorflow_reads(serialized, is_alike):
    serialized = tf.constant(serialized, tf.string)
    expected = tf.io.parse_example(serialized, FEATURES)
    found = tf.function(parsing.parse_items)(serialized, FEATURES)

    assert bool(parsing.by_place(serialized, NAMES)[0]) == is_alike
    for name in NAMES:
        assert found[name].shape == expected[name].shape
        np.testing.assert_array_equal(
            tf.bitcast(found[name], tf.int32), tf.bitcast(expected[name], tf.int32)
        )


def test_what_is_no_example_is_not_read_by_place():
    others = [writing.field(2, item(row)[2:]) for row in NUMBERS]

    assert len(others[0]) == len(item(NUMBERS[0]))
    assert not parsing.by_place(tf.constant(others), NAMES)[0]
