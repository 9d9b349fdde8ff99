"""Replays run eagerly: that compiled formulas agree with eager ones is a contract of its own."""

import pytest


@pytest.fixture(autouse=True)
def _eagerly(eagerly: None) -> None:
    pass
