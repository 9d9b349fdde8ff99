"""Sections on data: `data`, `clicks`, `gates` and `beam`."""

import dataclasses
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, ValidationInfo, model_validator

from tfrank_sel import roads
from tfrank_sel.arguments import Count, Natural, Positive, Share
from tfrank_sel.errors import refusal
from tfrank_sel.features import whole
from tfrank_sel.pipelines.configuration.section import (
    Names,
    Path,
    Paths,
    Section,
    Values,
    choices,
    key,
    option,
)

SPLITS = ("train", "validation", "test")
OFF, WARN, FAIL = ACTIONS = ("off", "warn", "fail")
# rules of a whole split
OF_SPLITS = ("label_shares", "label_divergence", "list_sizes", "shared_queries")


class Data(Section):
    """Files and the roles of their columns."""

    train: Paths = option([], "Files or globs for training.")
    validation: Paths = option([], "Files or globs for validation (early stopping).")
    test: Paths = option([], "Files or globs for the evaluation.")
    data: Paths = option(
        [], "Files or globs to divide by `split`, instead of `train`, `validation` and `test`."
    )
    synthetic: bool = option(False, "Whether to use synthetic data, instead of files.")
    split: Annotated[list[Positive], Field(min_length=3, max_length=3)] = option(
        [80.0, 10.0, 10.0],
        "Percentages of train, validation and test, assigned by a hash of the query.",
    )
    format: str | None = option(
        None, "Format of the files; inferred from their names if unset.", examples=["parquet"]
    )
    query: str = option("query_id", "Name of the query identifier.")
    label: str = option("relevance", "Name of the relevance label.")
    doc_id: str = option("doc_id", "Name of the item identifier.")
    weight: str | None = option(None, "Name of the weight of an item.", examples=["weight"])
    list_weight: str | None = option(
        None, "Name of the weight of a list.", examples=["list_weight"]
    )
    propensity: str | None = option(
        None, "Name of the probability that the item was examined.", examples=["propensity"]
    )
    slice_by: Names = option(
        [], "Names of columns to slice the evaluation by; they may also be features."
    )
    omit: Names = option([], "Names of columns of tables that are no features.")
    adjacent: bool = option(
        False, "Whether the rows of a query are adjacent, so that no grouping is needed."
    )
    num_features: Count | None = option(
        None,
        "Number of features of LETOR files; inferred by an extra pass if unset.",
        examples=[136],
    )
    allow_bad_lines: Natural = option(
        0, "Maximum number of malformed lines, rows or records to skip."
    )
    reference: Path | None = option(
        None, "Report drift relative to this earlier run (folder).", examples=["runs/1"]
    )
    continue_from: Path | None = option(
        None,
        "Folder of an earlier run to continue, with its records, vocabularies and weights "
        "(warm start).",
        examples=["runs/1"],
    )
    memory: Natural | None = key(
        None, "Number of earlier increments of data to keep; all if unset.", examples=[6]
    )
    schema_: Path | None = key(
        None,
        "Schema to validate all splits against, such as an edited one of an earlier run; "
        "inferred from train if unset.",
        alias="schema",
        examples=["schema.pbtxt"],
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        named_splits = [x for x in SPLITS if getattr(self, x)]
        if self.data and named_splits:
            reason = "must name either `data`, or `train`, `validation` and `test`"
            raise refusal(reason, f"data, {', '.join(named_splits)}")
        if named_splits and len(named_splits) < 3:
            reason = "must name all of `train`, `validation` and `test`"
            raise refusal(reason, f"only {', '.join(named_splits)}")
        return self

    @property
    def roles(self) -> dict[str, str]:
        """The column of each role, by its key."""
        named = ("query", "label", "doc_id", "weight", "list_weight", "propensity")
        columns = {f"data.{x}": getattr(self, x) for x in named if getattr(self, x) is not None}
        return {**columns, **{f"data.slice_by[{i}]": x for i, x in enumerate(self.slice_by)}}


class Clicks(Section):
    """Correction of position bias, if the data are a log: rows of items that were shown, with a
    click as label. The run learns from one label for each query and item.
    """

    position: str | None = key(
        None,
        "Name of the position, from 1, in a log of clicks to correct; no log if unset.",
        examples=["position"],
    )
    session: str | None = key(
        None,
        "Name of the session, for models of what users read, and for the value of the new order.",
        examples=["session"],
    )
    shown: str | None = key(
        None,
        "Name of the number of impressions, in a log of counts; each row is one if unset.",
        examples=["shown"],
    )
    method: Literal["auto", "none", "pbm", "additive", "ubm", "cascade", "dcm", "dbn"] = key(
        "auto",
        "Method that estimates the propensities of positions; auto takes the one that predicts "
        "held-out clicks best, which may be none.",
    )
    correction: Literal["ips", "pooled", "doubly_robust"] = key(
        "pooled", "Correction of the labels."
    )
    least: Share = key(0.0, "Least propensity that divides clicks.")

    @property
    def roles(self) -> dict[str, str]:
        """The column of each role, by its key."""
        names = ("position", "session", "shown")
        named = {f"clicks.{x}": getattr(self, x) for x in names}
        return {key: name for key, name in named.items() if name is not None}

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, values: Any) -> Any:
        """Reads what runs of versions before 0.1.0 wrote: their default, and two names of pbm."""
        if not isinstance(values, dict):
            return values
        kept = {x: y for x, y in values.items() if (x, y) != ("unconnected", "nearest")}
        return kept | {"method": "pbm"} if kept.get("method") == "all_pairs" else kept

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name in ("session", "shown"):
            if getattr(self, name) is not None and self.position is None:
                raise refusal(f"needs `position`, if `{name}` is named", "no position")
        if self.position is None and self.method == "auto":
            return self
        if not roads.exists("clicks"):
            raise refusal("needs tfrank_sel.clicks", "an installation that leaves it out")
        models = roads.load("clicks", "the section `clicks`", "models")
        if self.method in models.OF_SESSIONS and self.session is None:
            raise refusal(f"`session` must be named for {self.method}", "no session")
        return self


@dataclasses.dataclass(frozen=True)
class Gate:
    """The gate of a rule.

    Args:
        action: Action if a split breaks the rule: `"off"` does nothing, `"warn"` prints a line and
            adds an entry to the report, `"fail"` stops the run.
        threshold: Maximum allowed distance, in [0, 1]; None if the rule has none.
    """

    action: str
    threshold: float | None = None


def _table(gate: str | dict[str, Any]) -> dict[str, Any]:
    """Returns the table that an action by itself stands for."""
    return {"action": gate} if isinstance(gate, str) else gate


def _gate(rule: str, value: Any, default: dict[str, Any] | None = None) -> str | dict[str, Any]:
    """Returns the checked gate of a rule, completed by another: its action, or a table."""
    threshold = _table(Gates.model_fields[rule].default).get("threshold")
    gate = _table(value)
    reason = 'must be "off", "warn" or "fail"'
    accepted = {"action"} if threshold is None else {"action", "threshold"}
    if not isinstance(gate, dict) or not gate or not {*gate} <= accepted:
        example = f'{{action = "fail", threshold = {threshold}}}'
        has_none = ", and has no threshold"
        reason += has_none if threshold is None else f", or a table such as {example}"
        raise refusal(reason, repr(value))
    if gate.get("action", WARN) not in ACTIONS:
        raise refusal(reason, repr(gate["action"]))
    bound = gate.get("threshold", 0.0)
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0.0 <= bound <= 1.0:
        raise refusal("must have a threshold from 0 to 1", repr(bound))
    gate = {**(default or {}), **gate}
    return gate["action"] if {*gate} == {"action"} else gate


def _of_all(value: Any, info: ValidationInfo) -> str | dict[str, Any]:
    rule = str(info.field_name)
    return _gate(rule, value, _table(Gates.model_fields[rule].default))


def _of_feature(value: Any) -> dict[str, Any]:
    """Returns the gates of a feature; absent rules are those of all features."""
    if not isinstance(value, dict):
        example = '{missing = {action = "fail", threshold = 0.3}}'
        raise refusal(f"must be a table of rules such as {example}", repr(value))
    rules = [x for x in Gates.model_fields if x not in (*OF_SPLITS, "features")]
    gates = {}
    for rule, gate in value.items():
        if rule not in rules:
            raise ValueError(f"has no such rule. Accepted: {choices(rule, rules)}")
        try:
            gates[rule] = _gate(rule, gate)
        except ValueError as error:
            raise ValueError(f"`{rule}` {error}") from error
    return gates


Rule = Annotated[str | dict[str, Any], PlainValidator(_of_all)]
OfFeature = Annotated[dict[str, Any], PlainValidator(_of_feature)]


def _warn(threshold: float | None, description: str) -> Any:
    return key(WARN if threshold is None else {"action": WARN, "threshold": threshold}, description)


class Gates(Section):
    """Actions if the data breaks a rule: "off" does nothing, "warn" prints a line, "fail" stops the
    run before training. Validation and test are compared with train, and train with the
    `reference`.

    Example:
        >>> missing = {"action": "fail", "threshold": 0.3}
        >>> gates = Gates(zero="fail", features={"price": {"missing": missing}})
        >>> gates.of("missing", "price")
        Gate(action='fail', threshold=0.3)
        >>> gates.of("missing", "brand")
        Gate(action='warn', threshold=0.1)
    """

    range: Rule = _warn(0.0, "Maximum share of items outside the range of the schema.")
    domain: Rule = _warn(
        0.0, "Maximum share of items with a text outside the domain of the schema."
    )
    label_shares: Rule = _warn(0.1, "Maximum difference in the share of a label.")
    label_divergence: Rule = _warn(0.1, "Maximum Jensen-Shannon divergence of the labels, in bits.")
    list_sizes: Rule = _warn(
        0.2, "Maximum difference in the cumulative distribution of list sizes."
    )
    shared_queries: Rule = _warn(
        0.0, "Maximum share of the lists of a split whose query is also in train."
    )
    numbers: Rule = _warn(0.2, "Maximum difference in the cumulative distribution of a number.")
    texts: Rule = _warn(0.1, "Maximum difference in the share of items with a text.")
    missing: Rule = _warn(0.1, "Maximum difference in the share of missing values.")
    leak: Rule = _warn(
        0.98, "Maximum rank correlation (Somers' D) of one feature alone with the label."
    )
    zero: Rule = _warn(None, "A number that is now always 0.")
    new_feature: Rule = _warn(None, "A new feature.")
    absent_feature: Rule = _warn(None, "A feature that is now absent.")
    type: Rule = _warn(None, "A feature whose type changed between number and text.")
    features: dict[str, OfFeature] = key(
        {},
        "Gates of single features by name, which replace those above, such as "
        '{price = {missing = {action = "fail", threshold = 0.3}}}.',
    )

    def of(self, rule: str, feature: str = "") -> Gate:
        """Returns the gate of a rule, with action and threshold.

        Args:
            rule: The rule.
            feature: Name of the feature, or of one of its columns, such as `"embedding[2]"`.
        """
        named = (self.features.get(name, {}).get(rule, {}) for name in (whole(feature), feature))
        gates = map(_table, (getattr(self, rule), *named))
        return Gate(**{name: value for gate in gates for name, value in gate.items()})


class Beam(Section):
    """Beam runner of the data and evaluation steps, which run in this process if unset."""

    runner: str | None = option(
        None,
        "DirectRunner, FlinkRunner, SparkRunner, DataflowRunner or PortableRunner: needs "
        "`tfrank_sel[beam]`.",
        examples=["FlinkRunner"],
    )
    options: Values = key([], "Options of Beam and the runner.")
    shard_bytes: Count = key(128 << 20, "Target size of the files of records.")
