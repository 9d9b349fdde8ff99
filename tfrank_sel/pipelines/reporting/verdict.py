"""Verdict of a run: what its model gains or loses, and what to do next."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import tomlkit

from tfrank_sel.commandline import shell
from tfrank_sel.features import whole
from tfrank_sel.pipelines.analysis import leakage
from tfrank_sel.pipelines.configuration.files import assignment
from tfrank_sel.pipelines.configuration.section import join
from tfrank_sel.pipelines.evaluation.evaluation import (
    ERROR,
    PER_SESSION,
    Comparisons,
    Evaluation,
    MetricComparison,
)
from tfrank_sel.pipelines.evaluation.slices import OVERALL
from tfrank_sel.pipelines.reporting import card

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

MOST = 3  # lines, and slices in a line


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A verdict of a run.

    Args:
        headline: The relative difference, with its 95 % interval; of a model that is not published,
            the first reason.
        difference: The difference, if it is no headline; empty if a feature leaks the label.
        losses: The slices that are significantly worse; empty if none is.
        next: What to do, from what the run found; at most `MOST` lines.
    """

    headline: str
    difference: str
    losses: str
    next: list[str]

    @classmethod
    def of(cls, run: "Run") -> "Verdict":
        """Returns the verdict of a run whose model is pushed, or refused."""
        rules = run.configuration.blessing
        least = rules.min_slice_queries
        steps = [*_steps(run, dict(_worse(run.evaluation, least)))][:MOST]
        first, difference = headline(run.evaluation, rules.metric), ""
        outcome = run.push_outcome
        if outcome and outcome.reasons:
            difference = "" if _leaks(run) else first
            first = f"Not published: {outcome.reasons[0]}"
        return cls(first, difference, losses(run.evaluation, least), steps)


def headline(evaluation: Evaluation, metric: str) -> str:
    """Returns what the model gains: clicks per session if there is a log, or else the metric.

    Args:
        evaluation: The evaluation of the model.
        metric: Name of the metric.
    """
    return relative(*_first(evaluation, metric))


def _first(evaluation: Evaluation, metric: str) -> tuple[MetricComparison, str, str]:
    if compared := evaluation.clicks.get(PER_SESSION):
        return compared, PER_SESSION, "logged order"
    return evaluation.overall[metric], metric, evaluation.against


def relative(compared: MetricComparison, metric: str, against: str) -> str:
    """Describes a difference as a share of the other model's value.

    Args:
        compared: The comparison.
        metric: Name of the metric.
        against: Name of the other model.

    Example:
        >>> relative(MetricComparison(0.93, 1.116, 0.16, 0.22, 75), PER_SESSION, "logged order")
        '+20 % clicks per session, compared with the logged order (+17 to +24)'
        >>> relative(MetricComparison(0.5, 0.49, -0.03, 0.01, 75), "NDCG@10", "baseline")
        '-2.0 % NDCG@10, compared with the baseline (-6.0 to +2.0): no significant difference'
    """
    values = [compared.difference, compared.low, compared.high]
    unit = ""
    if compared.baseline > 0.0:
        unit, values = " %", [100.0 * x / compared.baseline for x in values]
    digits = 0 if unit and max(map(abs, values)) >= 10.0 else 1 if unit else 3
    change, low, high = (f"{x:+.{digits}f}" for x in values)
    named = f"a {against}" if against == "random order" else f"the {against}"
    told = f"{change}{unit} {metric}, compared with {named} ({low} to {high})"
    is_sure = compared.low > 0.0 or compared.high < 0.0
    return told if is_sure else f"{told}: no significant difference"


def losses(evaluation: Evaluation, least: int) -> str:
    """Returns the slices that are significantly worse, as a sentence; empty if none is.

    Args:
        evaluation: The evaluation of the model.
        least: Minimum number of queries of a slice.
    """
    worse = [*_worse(evaluation, least)]
    tried = sum(x.queries >= least for of in _beside(evaluation).values() for x in of.values())
    first = [
        f"{name}: {relative(compared, metric, evaluation.against)}"
        for (name, metric), compared in worse[:MOST]
    ]
    more = [f"{len(worse) - MOST} more"] if len(worse) > MOST else []
    named = "; ".join([*first, *more])
    return f"Worse on {len(worse)} of {tried} values of slices: {named}" if worse else ""


def _worse(
    evaluation: Evaluation, least: int
) -> Iterator[tuple[tuple[str, str], MetricComparison]]:
    """The slices and metrics of which the model is significantly worse, the worst first."""
    found = []
    for name, comparisons in _beside(evaluation).items():
        for metric, compared in comparisons.items():
            is_worse = compared.low > 0.0 if metric == ERROR else compared.high < 0.0
            if compared.queries >= least and is_worse:
                share = compared.difference / (compared.baseline or 1.0)
                found.append((abs(share), (name, metric), compared))
    found.sort(key=lambda x: -x[0])
    yield from ((key, compared) for _, key, compared in found)


def _better(evaluation: Evaluation, metric: str) -> tuple[str, str]:
    """The best ranking than which the model is significantly worse, and by how much, if any is."""
    others = {evaluation.against: evaluation.overall, **evaluation.simple}
    better = {name: x[metric] for name, x in others.items() if x[metric].high < 0.0}
    if not better:
        return "", ""
    name = max(better, key=lambda x: better[x].baseline)
    return name, better[name].describe(metric, name)


def _beside(evaluation: Evaluation) -> dict[str, Comparisons]:
    """What the headline does not tell: the slices of some queries, and all if it is of clicks."""
    all_ = max((x.queries for x in evaluation.overall.values()), default=0)
    is_told = PER_SESSION not in evaluation.clicks
    return {
        name: comparisons
        for name, comparisons in evaluation.slices.items()
        if (not is_told if name == OVERALL else any(x.queries < all_ for x in comparisons.values()))
    }


def _leaks(run: "Run") -> list[str]:
    """The features that are known after the label only, and are not allowed to be."""
    leaks = leakage.read(run.output / "analyze" / "anomalies" / "train.json")
    late = dict.fromkeys(whole(x.feature) for x in leaks)
    return [x for x in late if x not in run.configuration.blessing.allow_leaks]


def _steps(run: "Run", worse: Mapping[tuple[str, str], MetricComparison]) -> Iterator[str]:
    configuration, evaluation = run.configuration, run.evaluation
    rules = configuration.blessing
    better, by = _better(evaluation, rules.metric)
    if better == "baseline":  # a network of one loss on the same features
        is_alone = not configuration.model.trees
        way = "with the loss of the baseline" if is_alone else "networks alone, by --no-ensemble,"
        yield f"train {way} before you serve the model: {by}"
    elif better:
        yield f"add features that matter before you serve the model: {by}"
    if names := _leaks(run):
        allowed = shell("--allow-leaks", join(names))
        yield f"delete {', '.join(names)} from [features], or, if known before: {allowed}"
    for name, is_feature in card.positions(run):
        yield (
            f"delete {name} from [features]"
            if is_feature
            else "correct clicks for position: "
            + shell("--set", assignment("clicks.position", name))
        )
    if configuration.clicks.position and PER_SESSION not in evaluation.clicks:
        yield "name the session, to learn what the new order earns: --set clicks.session=COLUMN"
    for column in configuration.data.slice_by:
        is_known = column in configuration.features
        if not is_known and any(x.startswith(f"{column} ") for x, _ in worse):
            key = tomlkit.key(column).as_string()
            yield f'let the model know {column}: {key} = {{type = "category", of = "query"}}'
    for worst, metric in [x for x in worse if x[0] != OVERALL][:1]:
        yield f"compare queries of {worst} with others: {metric} is worse there"
    first, _, _ = _first(evaluation, rules.metric)
    # a leak, or two models that rank alike, leave nothing that more queries would show
    if not names and first.low <= 0.0 <= first.high and first.low < first.high:
        yield f"evaluate on more than {first.queries} queries, or add features that matter"
