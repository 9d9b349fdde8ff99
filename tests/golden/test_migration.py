"""The migration guide holds the tables of the tests."""

import pathlib

import pytest

from tests.golden import tfr_data_differences, tfr_differences, tfr_metric_differences

GUIDE = pathlib.Path(__file__).parent.parent.parent / "docs" / "migration.md"


@pytest.mark.parametrize(
    "differences", [tfr_differences, tfr_metric_differences, tfr_data_differences]
)
def test_the_guide_lists_the_intended_differences(differences) -> None:
    assert differences.table() in GUIDE.read_text()
