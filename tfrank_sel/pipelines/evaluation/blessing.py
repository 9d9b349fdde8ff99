"""Blessing: the decision whether an evaluated model may be served, with its reasons."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tfrank_sel.features import whole
from tfrank_sel.pipelines.analysis.gates import Anomaly
from tfrank_sel.pipelines.configuration.sections import Rules as Rules
from tfrank_sel.pipelines.evaluation.evaluation import PER_SESSION, Evaluation, MetricComparison
from tfrank_sel.pipelines.evaluation.slices import OVERALL


@dataclasses.dataclass(frozen=True)
class Check:
    """The check of a model against one rule.

    Args:
        told: The received and the allowed values, as a sentence.
        passed: Whether the model meets the rule.
        of: Name of the slice that is checked.
    """

    told: str
    passed: bool
    of: str = OVERALL


@dataclasses.dataclass(frozen=True)
class Blessing:
    """Whether a model may be served.

    Args:
        blessed: Whether the model may be served.
        rules: The rules.
        checks: The check of each rule.
    """

    blessed: bool
    rules: Rules
    checks: list[Check]

    @property
    def reasons(self) -> list[str]:
        """Reasons why the model may not be served."""
        return [check.told for check in self.checks if not check.passed]

    def figures(self) -> dict[str, Any]:
        """Returns JSON-ready values; an infinite bound is None."""
        rules = self.rules.model_dump(exclude={"champion"})
        return {
            "blessed": self.blessed,
            "rules": {name: None if x == math.inf else x for name, x in rules.items()},
            "checks": [dataclasses.asdict(check) for check in self.checks],
            "reasons": self.reasons,
        }


def bless(
    evaluation: Evaluation,
    rules: Rules,
    *,
    champion: Evaluation | None = None,
    milliseconds: float = 0.0,
    leaks: Sequence[Anomaly] = (),
) -> Blessing:
    """Checks an evaluation against the rules.

    A model must be evaluated on enough queries, reach the minimum value, give the items of most
    lists different scores, and not be significantly worse than a random order. It must not be
    significantly worse than the baseline, or than the served model if there is one, by more than
    the margin, on all queries and on each slice. If there is a log, the clicks that it lets
    expect must not be significantly fewer than those in it. No feature may leak the label, unless
    it is allowed to.

    Args:
        evaluation: Evaluation of the model.
        rules: The rules.
        champion: Evaluation of the model against the served one.
        milliseconds: Time to score a list, at the 99th percentile.
        leaks: Features of the training split that leak the label.
    """
    checks = [*_no_leaks(leaks, rules), *_checks(evaluation, rules)]
    if champion is not None:
        checks += _not_worse_than(champion, rules)
    if rules.max_milliseconds < math.inf:
        line = f"{milliseconds:.1f} ms to score a list (99th percentile)"
        allowed = rules.max_milliseconds
        checks.append(Check(f"{line}, at most {allowed:g} allowed", milliseconds <= allowed))
    return Blessing(all(check.passed for check in checks), rules, checks)


def _no_leaks(leaks: Sequence[Anomaly], rules: Rules) -> Iterator[Check]:
    for leak in leaks:
        allowed = bool({leak.feature, whole(leak.feature)} & {*rules.allow_leaks})
        way = "allowed by blessing.allow_leaks"
        if not allowed:
            way = "leave it out if it follows from the label, or name it in blessing.allow_leaks"
        yield Check(f"{leak.feature} orders the labels: {leak.received}; {way}", allowed)


def _checks(evaluation: Evaluation, rules: Rules) -> Iterator[Check]:
    metric = rules.metric
    overall, equal = evaluation.overall[metric], evaluation.equal_scores
    line = f"{overall.queries} queries, at least {rules.min_queries} required"
    yield Check(line, overall.queries >= rules.min_queries)
    if rules.min_value:
        line = f"{metric} {overall.ours:.3f}, at least {rules.min_value:g} required"
        yield Check(line, overall.ours >= rules.min_value)
    line = f"equal scores for all items in {equal:.1%} of the lists"
    allowed = rules.max_equal_scores
    yield Check(f"{line}, at most {allowed:.0%} allowed", equal <= allowed)
    yield _not_worse(metric, evaluation.chance[metric], "random order", 0.0)
    yield from _not_worse_than(evaluation, rules)
    if value := evaluation.clicks.get(PER_SESSION):
        yield _not_worse(PER_SESSION, value, "logged order", rules.clicks_margin)


def _not_worse_than(evaluation: Evaluation, rules: Rules) -> Iterator[Check]:
    metric, against = rules.metric, evaluation.against
    for name, comparisons in evaluation.slices.items():
        compared = comparisons[metric]
        if name == OVERALL:
            yield _not_worse(metric, compared, against, rules.margin)
        elif compared.queries >= rules.min_slice_queries:
            yield _not_worse(metric, compared, against, rules.slice_margin, name)


def _not_worse(
    metric: str, compared: MetricComparison, against: str, margin: float, of: str = OVERALL
) -> Check:
    named = metric if of == OVERALL else f"{metric} of {of}"
    return Check(compared.describe(named, against, margin), compared.high >= -margin, of)
