"""Section `gates`: action and threshold of each rule on the data."""

from typing import Annotated, Any

from pydantic import Field, PlainValidator, ValidationInfo

from tfrank_sel.pipelines.analysis.gates import ACTIONS, OF_FEATURES, RULES, WARN
from tfrank_sel.pipelines.configuration.errors import choices
from tfrank_sel.pipelines.configuration.section import Section


def _default(rule: str) -> dict[str, Any]:
    threshold = RULES[rule]
    return {"action": WARN, **({} if threshold is None else {"threshold": threshold})}


def _gate(value: Any, info: ValidationInfo) -> str | dict[str, Any]:
    """Returns the gate of a rule; only its action if it has no threshold."""
    rule = str(info.field_name)
    gate = {**_default(rule), **_checked(rule, value)}
    return gate if "threshold" in gate else gate["action"]


def _checked(rule: str, value: Any) -> dict[str, Any]:
    """Returns a gate as a table of its action, threshold or both."""
    default = _default(rule)
    gate = {"action": value} if isinstance(value, str) else value
    wanted = 'must be "off", "warn" or "fail"'
    if not isinstance(gate, dict) or not gate or not {*gate} <= {*default}:
        is_bounded = "threshold" in default
        example = f'{{action = "fail", threshold = {default["threshold"]}}}' if is_bounded else ""
        wanted += f", or a table such as {example}" if is_bounded else ", and has no threshold"
        raise ValueError(f"{wanted}. Received: {value!r}")
    if gate.get("action", WARN) not in ACTIONS:
        raise ValueError(f"{wanted}. Received: {gate['action']!r}")
    bound = gate.get("threshold", 0.0)
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0.0 <= bound <= 1.0:
        raise ValueError(f"must have a threshold from 0 to 1. Received: {bound!r}")
    return gate


def _of_feature(value: Any) -> dict[str, Any]:
    """Checks the gates of a feature; absent rules are those of all features."""
    if not isinstance(value, dict):
        example = '{missing = {action = "fail", threshold = 0.3}}'
        raise ValueError(f"must be a table of rules such as {example}. Received: {value!r}")
    for rule, gate in value.items():
        if rule not in OF_FEATURES:
            raise ValueError(f"has no such rule. Accepted: {choices(rule, OF_FEATURES)}")
        try:
            _checked(rule, gate)
        except ValueError as error:
            raise ValueError(f"`{rule}` {error}") from error
    return value


Gate = Annotated[str | dict[str, Any], PlainValidator(_gate)]
OfFeature = Annotated[dict[str, Any], PlainValidator(_of_feature)]


def _rule(rule: str, description: str) -> Any:
    default = _default(rule)
    return Field(default=default if "threshold" in default else WARN, description=description)


class Gates(Section):
    """Actions if the data breaks a rule: "off" does nothing, "warn" prints a line, "fail" stops the
    run before training. Validation and test are compared with train, and train with the
    `reference`.
    """

    range: Gate = _rule("range", "Maximum share of items outside the range of the schema.")
    domain: Gate = _rule(
        "domain", "Maximum share of items with a text outside the domain of the schema."
    )
    label_shares: Gate = _rule("label_shares", "Maximum difference in the share of a label.")
    label_divergence: Gate = _rule(
        "label_divergence", "Maximum Jensen-Shannon divergence of the labels, in bits."
    )
    list_sizes: Gate = _rule(
        "list_sizes", "Maximum difference in the cumulative distribution of list sizes."
    )
    shared_queries: Gate = _rule(
        "shared_queries", "Maximum share of the lists of a split whose query is also in train."
    )
    numbers: Gate = _rule(
        "numbers", "Maximum difference in the cumulative distribution of a number."
    )
    texts: Gate = _rule("texts", "Maximum difference in the share of items with a text.")
    missing: Gate = _rule("missing", "Maximum difference in the share of missing values.")
    leak: Gate = _rule(
        "leak",
        "Maximum rank correlation (Somers' D) of one feature alone with the label.",
    )
    zero: Gate = _rule("zero", "A number that is now always 0.")
    new_feature: Gate = _rule("new_feature", "A new feature.")
    absent_feature: Gate = _rule("absent_feature", "A feature that is now absent.")
    type: Gate = _rule("type", "A feature whose type changed between number and text.")
    features: dict[str, OfFeature] = Field(
        default={},
        description="Gates of single features by name, which replace those above, such as "
        '{price = {missing = {action = "fail", threshold = 0.3}}}.',
    )
