"""Gates: rules on the data, their actions, and anomalies.

Nothing here imports TensorFlow.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from tfrank_sel.arguments import Checked

NUMBERS, TEXTS = "numbers", "texts"
OFF, WARN, FAIL = ACTIONS = ("off", "warn", "fail")

# the threshold of each rule; None for a rule without a threshold
OF_SPLITS = {"label_shares": 0.1, "label_divergence": 0.1, "list_sizes": 0.2, "shared_queries": 0.0}
OF_FEATURES: dict[str, float | None] = {
    "range": 0.0,
    "domain": 0.0,
    "numbers": 0.2,
    "texts": 0.1,
    "missing": 0.1,
    "leak": 0.98,
    "zero": None,
    "new_feature": None,
    "absent_feature": None,
    "type": None,
}
RULES = {**OF_SPLITS, **OF_FEATURES}


@dataclasses.dataclass(frozen=True)
class Gate(Checked):
    """Action and threshold of a rule.

    Args:
        action: Action if a split breaks the rule: `"off"` does nothing, `"warn"` prints a line and
            adds an entry to the report, `"fail"` stops the run. None for the default of the rule.
        threshold: Maximum allowed distance, in [0, 1]; None for the default of the rule.

    Raises:
        ValueError: If there is no such action, or `threshold` is not in [0, 1].
    """

    action: str | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.action not in (None, *ACTIONS):
            wanted = "`action` must be 'off', 'warn' or 'fail'"
            raise ValueError(f"{wanted}. Received: {self.action!r}")
        if self.threshold is not None and not 0.0 <= self.threshold <= 1.0:
            raise ValueError(f"`threshold` must be in [0, 1]. Received: {self.threshold}")


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """A broken rule in a split.

    Args:
        feature: Name of the feature, the label or `list_size`.
        rule: The rule, one of `RULES`.
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


@dataclasses.dataclass(frozen=True)
class Gates(Checked):
    """The gates of a run: one for each of `RULES`, and overrides for single features.

    Args:
        rules: Gates by rule. By default a rule warns above its threshold in `RULES`.
        features: Gates by rule of `OF_FEATURES`, for features by name.

    Raises:
        ValueError: If there is no such rule, or it has no threshold.

    Example:
        >>> gates = Gates({"zero": Gate("fail")}, {"price": {"missing": Gate("fail", 0.3)}})
        >>> gates.of("missing", "price")
        Gate(action='fail', threshold=0.3)
        >>> gates.of("missing", "brand")
        Gate(action='warn', threshold=0.1)
    """

    rules: Mapping[str, Gate] = dataclasses.field(default_factory=dict)
    features: Mapping[str, Mapping[str, Gate]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.rules, RULES)
        for rules in self.features.values():
            _check(rules, OF_FEATURES)

    @classmethod
    def from_config(cls, config: Mapping[str, Mapping[str, Any]]) -> Self:
        """Makes gates from JSON-ready values, such as those of `dataclasses.asdict`.

        Args:
            config: `rules` and `features`, each gate a dict of its arguments or only its action.

        Example:
            >>> gates = Gates.from_config({"rules": {"zero": "fail"}, "features": {}})
            >>> Gates.from_config(dataclasses.asdict(gates)) == gates
            True
        """
        features = {name: _gates(rules) for name, rules in config["features"].items()}
        return cls(_gates(config["rules"]), features)

    def of(self, rule: str, feature: str = "") -> Gate:
        """Returns the gate of a rule, with action and threshold.

        Args:
            rule: The rule.
            feature: Name of the feature, or of one of its columns, such as `"embedding[2]"`.
        """
        named = (self.features.get(name, {}).get(rule) for name in (feature, whole(feature)))
        found = [gate for gate in (*named, self.rules.get(rule), Gate(WARN, RULES[rule])) if gate]
        return Gate(
            next(gate.action for gate in found if gate.action is not None),
            next((gate.threshold for gate in found if gate.threshold is not None), None),
        )

    def held(
        self,
        rule: str,
        feature: str,
        expected: str,
        received: str,
        count: int,
        distance: float | None = None,
        chance: float = 0.0,
    ) -> list[Anomaly]:
        """Returns the anomaly, or None if the rule is off or the distance is within its threshold.

        Args:
            rule: As in `Anomaly`.
            feature: Name of the feature.
            expected: Description of the expected values; `{}` is replaced by the threshold.
            received: Description of the received values.
            count: Number of items.
            distance: The distance; None if the rule is broken in any case.
            chance: Distance that may be noise; the threshold is at least this.
        """
        gate = self.of(rule, feature)
        bound = max(gate.threshold or 0.0, chance)
        if gate.action == OFF or (distance is not None and distance <= bound):
            return []
        expected = expected.replace("{}", f"{bound:.3g}")
        return [Anomaly(feature, rule, expected, received, count, distance, str(gate.action))]


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
        for split, found in anomalies.items()
        for anomaly in found
        if anomaly.action == FAIL
    ]


def compared(
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
        >>> [(x.rule, x.feature) for x in compared(old, new, "training", Gates(), 9)]
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
        yield from gates.held("type", name, f"{was}, as in {of}", now, items)
    for rule, one, other, expected, received in (
        ("new_feature", new, old, f"features that {of} has", "a new one"),
        ("absent_feature", old, new, f"the feature, as in {of}", "none of its name"),
    ):
        for name in one:
            if name not in other and not {name, whole(name)} & {*changed}:
                yield from gates.held(rule, name, expected, received, items)


def whole(column: str) -> str:
    """Returns the feature of a column, such as `embedding` of `embedding[2]`."""
    return column.rpartition("[")[0] or column


def _gates(rules: Mapping[str, str | Mapping[str, Any]]) -> dict[str, Gate]:
    return {rule: Gate(x) if isinstance(x, str) else Gate(**x) for rule, x in rules.items()}


def _check(given: Mapping[str, Gate], known: Mapping[str, float | None]) -> None:
    for rule, gate in given.items():
        if rule not in known:
            raise ValueError(f"rules must be of {', '.join(known)}. Received: {rule!r}")
        if gate.threshold is not None and known[rule] is None:
            raise ValueError(f"{rule!r} must have no threshold. Received: {gate.threshold}")


WARN_ALL = Gates()  # the default
