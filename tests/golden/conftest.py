"""Replays run eagerly, which takes minutes less; the first of each kind runs compiled, too."""

import pytest


@pytest.fixture(autouse=True)
def _eagerly(eagerly: None) -> None:
    pass
