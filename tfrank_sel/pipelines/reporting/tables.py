"""Tables of a run on a console."""

from typing import TYPE_CHECKING

from rich.table import Column, Table

from tfrank_sel.pipelines.evaluation.evaluation import Comparisons, Evaluation, MetricComparison

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run


def tables(run: "Run") -> list[Table]:
    """Returns the tables of a finished run."""
    metric = run.configuration.blessing.metric
    seconds = Table("step", "seconds")
    for name, value in (*run.seconds.items(), ("in all", sum(run.seconds.values()))):
        seconds.add_row(name, f"{value:.1f}")
    loss = Column("loss", no_wrap=True)  # others give way on a narrow terminal
    speed = Table("training", loss, "epochs, trees", "adds", "ms per step", "lists/s")
    for name, trained in run.trained_models.items():
        for fit in trained.fits:
            speed.add_row(
                name,
                fit.loss,
                str(fit.epochs),
                "" if fit.adds is None else f"{fit.adds:+.4f}",
                f"{1000 * fit.seconds_per_step:.2f}",
                f"{fit.lists_per_second:,.0f}",
            )
    return [
        seconds,
        speed,
        slices_table(run.evaluation, metric),
        comparison_table(run.evaluation.overall, run.evaluation.against),
    ]


def comparison_table(comparisons: Comparisons, against: str, ours: str = "ours") -> Table:
    """Returns the table of metrics: baseline, ours, and the interval of the difference."""
    table = Table("metric", against, ours, f"{ours} - {against} (95 % interval)")
    for name, value in comparisons.items():
        table.add_row(name, f"{value.baseline:.4f}", f"{value.ours:.4f}", _difference(value))
    return table


def slices_table(evaluation: Evaluation, metric: str, ours: str = "ours") -> Table:
    """Returns the table of a metric by slice."""
    table = Table("slice", "queries", metric, f"{ours} - {evaluation.against} (95 % interval)")
    for name, compared in evaluation.slices.items():
        value = compared[metric]
        table.add_row(name, str(value.queries), f"{value.ours:.4f}", _difference(value))
    return table


def _difference(value: MetricComparison) -> str:
    return f"{value.difference:+.4f} ({value.low:+.4f} to {value.high:+.4f})"
