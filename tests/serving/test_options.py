"""What the options of a server and a client refuse."""

import pathlib
from typing import Any

import pytest

from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import Latest, ModelConfig, Specific
from tfrank_sel.serving.options import Limits


@pytest.mark.parametrize(
    ("options", "needed", "name", "value"),
    [
        (Latest, {}, "num_versions", "all"),
        (Limits, {}, "requests", 1.5),
        (Limits, {}, "send_seconds", 0.0),
        (ModelConfig, {"name": "m", "base_path": pathlib.Path("/m")}, "base_path", "/m"),
        (ModelConfig, {"name": "m", "base_path": pathlib.Path("/m")}, "policy", Latest),
        (Ranker, {"address": "localhost:8500"}, "timeout", "ten"),
        (Specific, {"versions": [1]}, "versions", 3),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(
    options: Any, needed: dict[str, Any], name: str, value: Any
) -> None:
    options(**needed)
    with pytest.raises((TypeError, ValueError), match=f"`{name}`"):
        options(**{**needed, name: value})
