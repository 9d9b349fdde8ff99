"""Our reading of lists beside that of tensorflow-ranking, in one process, on the same bytes."""

from typing import Any

import pytest
import tensorflow as tf

from tests.golden import test_tfr_data, tfr_data_extra
from tests.golden.vectors import Case

tfr = pytest.importorskip("tensorflow_ranking")

READERS: dict[str, Any] = {
    "ELWC": tfr.data.parse_from_example_list,
    "EIE": tfr.data.parse_from_example_in_example,
    "SEQ": tfr.data.parse_from_sequence_example,
    "TF_EXAMPLE": tfr.data.parse_from_tf_example,
}


def recorded(case: Case) -> Case:
    """The case, with what tensorflow-ranking reads."""
    try:
        found = READERS[case["format"]](
            tf.constant(test_tfr_data.records(case)),
            context_feature_spec=test_tfr_data.specs(case, "context_feature_spec"),
            example_feature_spec=test_tfr_data.specs(case, "example_feature_spec"),
            **case["options"],
        )
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
        return {**case, "error": str(error)}
    names = test_tfr_data.recorded_names(case).values()
    return {**case, "expected": {n: test_tfr_data.recorded_form(found[n]) for n in names}}


@pytest.mark.parametrize("case", tfr_data_extra.CASES, ids=lambda case: case["id"])
def test_the_same_bytes_are_read_alike(case: Case) -> None:
    test_tfr_data.check(recorded(case))
