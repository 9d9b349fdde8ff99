"""Verdict of a run: what its model gains or loses, and what to do next."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfrank_sel import artefacts
from tfrank_sel.commandline import shell
from tfrank_sel.data.formats import TableReader
from tfrank_sel.features import whole
from tfrank_sel.pipelines.analysis import leakage
from tfrank_sel.pipelines.configuration.files import assignment
from tfrank_sel.pipelines.configuration.section import join
from tfrank_sel.pipelines.configuration.sections import Rules
from tfrank_sel.pipelines.evaluation.evaluation import (
    ERROR,
    PER_SESSION,
    Comparisons,
    Evaluation,
    MetricComparison,
)
from tfrank_sel.pipelines.evaluation.slices import OVERALL
from tfrank_sel.pipelines.ingestion.inputs import find_session
from tfrank_sel.pipelines.reporting import card
from tfrank_sel.training.candidates import BOOSTED

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

MOST = 3  # lines, and slices in a line
LARGEST = 50  # percentage of a test split


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A verdict of a run.

    Args:
        headline: The relative difference, with its 95 % interval; of a model that is not published,
            the first reason.
        difference: The difference, if it is no headline; empty if a feature leaks the label.
        losses: The rankings than which the model is significantly worse, and the slices on which it
            is; empty if there is none.
        next: What to do, each with its command, from what the run found; at most `MOST` lines.
    """

    headline: str
    difference: str
    losses: str
    next: list[str]

    @classmethod
    def of(cls, run: "Run") -> "Verdict":
        """Returns the verdict of a run whose model is pushed, or refused."""
        rules, evaluation = run.configuration.blessing, run.evaluation
        late = _leaks(run)
        steps = [*_steps_of_leaks(run, late), *_steps(run, dict(_worse(evaluation, rules)))]
        # a leak leaves nothing that fewer members or more queries would show
        steps += [] if late else [*_steps_of_members(run), *_steps_of_queries(run)]
        first, difference = headline(evaluation, rules.metric), ""
        lost = losses(evaluation, rules)
        outcome = run.push_outcome
        if outcome and outcome.reasons:
            difference, lost = ("", "") if late else (first, lost)
            first = f"Not published: {outcome.reasons[0]}"
        return cls(first, difference, lost, steps[:MOST])


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


def losses(evaluation: Evaluation, rules: Rules) -> str:
    """Returns what the model loses significantly, as a sentence; empty if nothing.

    Args:
        evaluation: The evaluation of the model.
        rules: The rules: the metric, its margin, and the minimum number of queries of a slice.
    """
    metric, margins = rules.metric, {evaluation.against: rules.margin}
    others = {evaluation.against: evaluation.overall, **evaluation.simple}
    better = [
        x[metric].describe(metric, name, margins.get(name, 0.0))
        for name, x in others.items()
        if x[metric].high < 0.0
    ]
    worse = [*_worse(evaluation, rules)]
    slices = [x for of in _beside(evaluation).values() for x in of.values()]
    tried = sum(x.queries >= rules.min_slice_queries for x in slices)
    first = [
        f"{name}: {relative(compared, measure, evaluation.against)}"
        for (name, measure), compared in worse[:MOST]
    ]
    more = [f"{len(worse) - MOST} more"] if len(worse) > MOST else []
    named = "; ".join([*first, *more])
    if worse:
        better.append(f"Worse on {len(worse)} of {tried} values of slices: {named}")
    return ". ".join(better)


def _worse(
    evaluation: Evaluation, rules: Rules
) -> Iterator[tuple[tuple[str, str], MetricComparison]]:
    """The slices and metrics of which the model is significantly worse, the worst first."""
    found = []
    for name, comparisons in _beside(evaluation).items():
        for metric, compared in comparisons.items():
            is_worse = compared.low > 0.0 if metric == ERROR else compared.high < 0.0
            if compared.queries >= rules.min_slice_queries and is_worse:
                share = compared.difference / (compared.baseline or 1.0)
                found.append((abs(share), (name, metric), compared))
    found.sort(key=lambda x: -x[0])
    yield from ((key, compared) for _, key, compared in found)


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
    late = dict.fromkeys(whole(x.feature, run.configuration.features) for x in leaks)
    return [x for x in late if x not in run.configuration.blessing.allow_leaks]


def _line(run: "Run", what: str, *options: object) -> str:
    """What to do, with the command that does it."""
    output = artefacts.address(str(run.job.output))
    return f"{what}: {shell('tfrank-sel-pipelines', 'run', '--output', output, *options)}"


def _without(run: "Run", *names: str) -> tuple[str, ...]:
    """The options that leave columns out."""
    omit = "--omit", join([*run.configuration.data.omit, *names])
    is_published = run.push_outcome is None or not run.push_outcome.reasons
    # the model of this run is then served, and cannot be compared without a feature
    return (*omit, *_set(False, "blessing", "champion")) if is_published else omit


def _set(value: Any, *key: str) -> tuple[str, str]:
    return "--set", assignment(value, *key)


def _steps_of_leaks(run: "Run", names: Sequence[str]) -> Iterator[str]:
    if names:
        listed = ", ".join(names)
        if run.job.inputs and isinstance(run.job.inputs.reader, TableReader):
            yield _line(run, f"leave {listed} out", *_without(run, *names))
        allowed = join([*run.configuration.blessing.allow_leaks, *names])
        yield _line(run, f"if {listed} is known before the label", "--allow-leaks", allowed)


def _steps(run: "Run", worse: Mapping[tuple[str, str], MetricComparison]) -> Iterator[str]:
    configuration = run.configuration
    for name, is_feature in card.positions(run):
        if is_feature:
            yield _line(run, f"leave {name} out", *_without(run, name))
        else:
            of_log = _set(name, "clicks", "position")
            yield _line(run, "correct clicks for position", *of_log)
    lacks_session = configuration.clicks.position and configuration.clicks.session is None
    files = run.job.inputs if lacks_session else None
    if files is not None and (session := find_session(configuration, files)):
        unless = _without(run, session) if session in configuration.features else ()
        options = *_set(session, "clicks", "session"), *unless
        yield _line(run, "learn what the new order earns", *options)
    for column in configuration.data.slice_by:
        is_known = column in configuration.features
        if not is_known and any(x.startswith(f"{column} ") for x, _ in worse):
            kind = "number" if run.records.layout.context[column] else "category"
            feature = _set({"type": kind, "of": "query"}, "features", column)
            yield _line(run, f"let the model know {column}", *feature)


def _steps_of_members(run: "Run") -> Iterator[str]:
    """Names a smaller ensemble that is better by validation, or else the better baseline."""
    ours, configuration = run.trained_models["ours"], run.configuration
    table, trees = configuration.training.loss, configuration.model.trees
    networks, options, what = len(table), list[str](), ""
    if ours.better:
        members = [i for i in range(len(ours.fits)) if i not in ours.better]
        table = [table[i] for i in ours.better if i < networks]
        of_trees = [i - networks for i in ours.better if i >= networks]
        if of_trees:
            own = trees if isinstance(trees, dict) else {}
            every = own.get("loss", [{"class": x} for x in BOOSTED])
            options += _set({**own, "loss": [every[i] for i in of_trees]}, "model", "trees")
        elif len(ours.fits) > networks:
            options += ["--no-ensemble"]
        left_out = ", ".join(ours.fits[i].loss for i in members)
        what = f"leave {left_out} out, without which validation NDCG@10 is significantly better"
    elif run.evaluation.overall[configuration.blessing.metric].high < 0.0 and (
        configuration.evaluation.baseline
    ):
        table = [configuration.evaluation.baseline]
        options += ["--no-ensemble"] if len(ours.fits) > networks else []
        what = "train the loss of the baseline alone, which is significantly better"
    if table != configuration.training.loss:
        options += _set(table, "training", "loss")
    if options:
        yield _line(run, what, *options)


def _steps_of_queries(run: "Run") -> Iterator[str]:
    """Asks for a larger test split if the difference that was found would then be significant."""
    data = run.configuration.data
    compared, _, _ = _first(run.evaluation, run.configuration.blessing.metric)
    half = (compared.high - compared.low) / 2.0
    if not data.data or not compared.low <= 0.0 <= compared.high or not compared.difference:
        return
    *others, share = (x / sum(data.split) for x in data.split)
    needed = math.ceil(100.0 * share * (half / compared.difference) ** 2)
    if 100.0 * share < needed <= LARGEST:
        rest = 100 - needed
        train = min(round(rest * others[0] / sum(others)), rest - 1)
        shares = f"{train},{rest - train},{needed}"
        yield _line(run, "evaluate on more queries", "--split", shares)
