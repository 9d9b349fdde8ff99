"""The migration guide holds the tables of intended differences, each of which has a case."""

import pathlib

import pytest

from tests.golden import (
    differences,
    test_tfr_data,
    test_tfr_losses,
    test_tfr_metrics,
    tfr_data_extra,
    vectors,
)

GUIDE = pathlib.Path(__file__).parent.parent.parent / "docs" / "parity.md"
CASES = {
    "losses": test_tfr_losses.CASES,
    "metrics": test_tfr_metrics.CASES,
    "data": [*test_tfr_data.CASES, *tfr_data_extra.CASES],
}


@pytest.mark.parametrize("kind", CASES)
def test_the_guide_lists_the_intended_differences(kind) -> None:
    assert differences.table(kind) in GUIDE.read_text()


@vectors.of_our_files
@pytest.mark.parametrize("kind", CASES)
def test_the_cases_of_a_difference_are_replayed(kind) -> None:
    replayed = {case["id"] for case in CASES[kind]}
    assert all(replayed.issuperset(d["cases"]) for d in differences.DIFFERENCES[kind])
