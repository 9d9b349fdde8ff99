"""Ranges of configuration keys: validation, and sampling of values by Optuna."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from optuna.trial import FrozenTrial, Trial

from tfrank_sel.pipelines.configuration import Configuration, Override, replaced
from tfrank_sel.pipelines.learning import instantiate

Ranges: TypeAlias = Mapping[str, Mapping[str, Any]]


def check(configuration: Configuration) -> None:
    """Checks that each end and choice of a range is valid, with the first values of the others.

    Args:
        configuration: The configuration, with the ranges in section `search`.

    Raises:
        ConfigurationError: If a value is invalid or there is no range; the error names the key.
    """
    found = configuration.search.keys
    if not found:
        example = '{"training.learning_rate" = {low = 1e-4, high = 1e-2, log = true}}'
        raise configuration.error(
            "search.keys", f"must name a key that varies, such as {example}. Received: {{}}"
        )
    ends = {key: x.get("choices") or [x["low"], x["high"]] for key, x in found.items()}
    for key, own in ends.items():
        for value in own:
            tried = {**{other: x[0] for other, x in ends.items()}, key: value}
            overrides = [Override(x, y, f'search.keys."{x}"') for x, y in tried.items()]
            instantiate.candidate(replaced(configuration, overrides))


def suggest(ranges: Ranges, trial: Trial) -> None:
    """Chooses a value for each key of a trial that has none."""
    for key, found in ranges.items():
        if "choices" in found:  # any JSON; Optuna accepts only texts and numbers
            trial.suggest_categorical(key, [json.dumps(one) for one in found["choices"]])
            continue
        low, high, log = found["low"], found["high"], found.get("log", False)
        step = found.get("step")
        if all(isinstance(x, int) for x in (low, high, step or 0)):
            trial.suggest_int(key, low, high, step=step or 1, log=log)
        else:
            trial.suggest_float(key, low, high, step=step, log=log)


def values(ranges: Ranges, trial: FrozenTrial | Trial) -> dict[str, Any]:
    """Returns the value of each key that a trial has."""
    return {
        key: json.loads(trial.params[key]) if "choices" in found else trial.params[key]
        for key, found in ranges.items()
        if key in trial.params
    }


def shown(value: Any) -> str:
    """Returns a short form of the value of a key.

    Example:
        >>> shown([{"class": "LambdaLoss", "temperature": 2.0}, {"class": "RGCrossLoss"}])
        '[LambdaLoss(temperature=2), RGCrossLoss]'
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping) and "class" in value:
        others = [f"{name}={shown(x)}" for name, x in value.items() if name != "class"]
        return f"{value['class']}({', '.join(others)})" if others else str(value["class"])
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)
