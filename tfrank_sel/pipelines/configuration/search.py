"""Section `search`: the keys to vary, and their ranges."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from tfrank_sel.pipelines.configuration.section import Section

_EXAMPLE = "{low = 1e-4, high = 1e-2, log = true}, or {choices = [[64, 32], [128, 64]]}"
_WANTED = f"must be a range such as {_EXAMPLE}"


def _range(value: Any) -> dict[str, Any]:
    """Checks a range: `choices`, or `low` and `high` with `log` or `step`."""
    if isinstance(value, Mapping) and {*value} == {"choices"}:
        _check_choices(value["choices"])
    elif isinstance(value, Mapping) and {"low", "high"} <= {*value} <= {"low", "high", "log"}:
        _check_numbers(value, "low", "high")
        if not isinstance(value.get("log", False), bool):
            raise ValueError(f"must have true or false as `log`. Received: {value['log']!r}")
        if value.get("log") and value["low"] <= 0:
            raise ValueError(f"must have a positive `low` if `log` is true. Received: {value!r}")
    elif isinstance(value, Mapping) and {*value} == {"low", "high", "step"}:
        _check_numbers(value, "low", "high", "step")
        if not 0 < value["step"] <= value["high"] - value["low"]:
            wanted = "must have a `step` that is positive and at most `high` - `low`"
            raise ValueError(f"{wanted}. Received: {value!r}")
    else:
        raise ValueError(f"{_WANTED}. Received: {value!r}")
    return dict(value)


def _check_choices(choices: Any) -> None:
    if not isinstance(choices, list) or not choices:
        raise ValueError(
            f"must have a list of at least one value as `choices`. Received: {choices!r}"
        )
    if any(one in choices[:number] for number, one in enumerate(choices)):
        raise ValueError(f"must have distinct `choices`. Received: {choices!r}")


def _check_numbers(value: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if isinstance(value[name], bool) or not isinstance(value[name], int | float):
            raise ValueError(f"must have a number as `{name}`. Received: {value[name]!r}")
    if not value["low"] < value["high"]:
        raise ValueError(f"must have a `low` that is less than `high`. Received: {value!r}")


Range = Annotated[dict[str, Any], PlainValidator(_range)]


class Search(Section):
    """Ranges for `tune`."""

    trials: int = Field(default=20, ge=1, description="Number of trials.")
    keys: dict[str, Range] = Field(
        default={},
        description='Range of each key that varies, such as {"training.learning_rate" = '
        '{low = 1e-4, high = 1e-2, log = true}, "training.batch_size" = {low = 8, high = 64, '
        'step = 8}, "model.hidden_units" = {choices = [[64, 32], [128, 64]]}}.',
    )
