"""Anomalies of data: broken rules, and what their gates say of them.

Nothing here imports TensorFlow.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tfrank_sel.features import whole
from tfrank_sel.pipelines.configuration.data import FAIL, OFF, WARN, Gates

NUMBERS, TEXTS = "numbers", "texts"
# By default all gates warn.
WARN_ALL = Gates()


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """A broken rule in a split.

    Args:
        feature: Name of the feature, the label or `list_size`.
        rule: The rule, a key of `Gates`.
        expected: Description of the expected values.
        received: Description of the received values.
        count: Number of items (or lists) that break it, or that were compared.
        distance: Distance from the expected values, if the rule has a threshold.
        action: Action of the gate: `"warn"` or `"fail"`.
    """

    feature: str
    rule: str
    expected: str
    received: str
    count: int
    distance: float | None = None
    action: str = WARN

    def __str__(self) -> str:
        return f"{self.feature}: expected {self.expected}. Received: {self.received}"


def check_rule(
    gates: Gates,
    rule: str,
    feature: str,
    expected: str,
    received: str,
    count: int,
    distance: float | None = None,
    chance: float = 0.0,
) -> list[Anomaly]:
    """Returns the anomaly; none if the rule is off or the distance is within its threshold.

    Args:
        gates: The gates.
        rule: As in `Anomaly`.
        feature: Name of the feature.
        expected: Description of the expected values; `{}` is replaced by the threshold.
        received: Description of the received values.
        count: Number of items.
        distance: The distance; None if the rule is broken in any case.
        chance: Distance that may be noise; the threshold is at least this.
    """
    gate = gates.of(rule, feature)
    bound = max(gate.threshold or 0.0, chance)
    if gate.action == OFF or (distance is not None and distance <= bound):
        return []
    expected = expected.replace("{}", f"{bound:.3g}")
    return [Anomaly(feature, rule, expected, received, count, distance, gate.action)]


class GateError(Exception):
    """Data that fails the gates.

    Args:
        failures: A line for each anomaly that fails.
    """

    def __init__(self, failures: Sequence[str]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        return "\n".join(self.failures)


def failures(anomalies: Mapping[str, Sequence[Anomaly]]) -> list[str]:
    """Returns a line for each anomaly that stops a run.

    Args:
        anomalies: Anomalies by split.

    Example:
        >>> found = Anomaly("price", "zero", "a value other than 0", "0 for all 9 items", 9)
        >>> failures({"train": [found, dataclasses.replace(found, action=FAIL)]})
        ['gates.zero: train: price: expected a value other than 0. Received: 0 for all 9 items']
    """
    return [
        f"gates.{anomaly.rule}: {split}: {anomaly}"
        for split, of_split in anomalies.items()
        for anomaly in of_split
        if anomaly.action == FAIL
    ]


def compare_types(
    old: Mapping[str, str], new: Mapping[str, str], of: str, gates: Gates, items: int
) -> Iterator[Anomaly]:
    """Compares names and types of features.

    A feature whose type changes between numbers and texts is one anomaly. All other names that are
    only on one side are new or absent.

    Args:
        old: `NUMBERS`, `TEXTS` or, if unknown, an empty text, by the names of the expected features
            or columns.
        new: The same for the received features or columns.
        of: Name of `old` in messages.
        gates: Action of each rule.
        items: Number of items compared.

    Example:
        >>> old, new = {"price": NUMBERS, "age": NUMBERS}, {"price": TEXTS, "brand": TEXTS}
        >>> [(x.rule, x.feature) for x in compare_types(old, new, "training", Gates(), 9)]
        [('type', 'price'), ('new_feature', 'brand'), ('absent_feature', 'age')]
    """
    changed = {}
    for was, now in ((NUMBERS, TEXTS), (TEXTS, NUMBERS)):
        before, after = (
            {x for name, kind in side.items() if kind == wanted for x in (name, whole(name))}
            for side, wanted in ((old, was), (new, now))
        )
        changed.update(dict.fromkeys(sorted(before & after), (was, now)))
    for name, (was, now) in changed.items():
        yield from check_rule(gates, "type", name, f"{was}, as in {of}", now, items)
    for rule, one, other, expected, received in (
        ("new_feature", new, old, f"features that {of} has", "a new one"),
        ("absent_feature", old, new, f"the feature, as in {of}", "none of its name"),
    ):
        for name in one:
            if name not in other and not {name, whole(name)} & {*changed}:
                yield from check_rule(gates, rule, name, expected, received, items)
