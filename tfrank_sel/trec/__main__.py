"""The command line: `tfrank-sel-metrics`, or `python -m tfrank_sel.trec`."""

import collections
import enum
import pathlib
import statistics
import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

from tfrank_sel.errors import refusal, require_extra

with require_extra("tfrank-sel-metrics", "metrics"):
    import typer
    import typer.core

from tfrank_sel.commandline import Application, Version, log_warnings
from tfrank_sel.data.trec import read_qrels, read_run

if TYPE_CHECKING:
    from tfrank_sel.trec.comparison import Comparison

OFFICIAL = ("map", "Rprec", "bpref", "recip_rank", "ndcg", "ndcg_cut.10", "P.10")
COMPARED = ("ndcg_cut.10", "map")


class _Commands(typer.core.TyperGroup):
    """Commands of which `evaluate` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name for option in self.get_params(ctx) for name in option.opts}
        if args and args[0].startswith("-") and args[0] not in own:
            args = ["evaluate", *args]
        return list(super().parse_args(ctx, args))


class Form(enum.StrEnum):
    """Form of the output of `compare`."""

    MARKDOWN = "markdown"
    JSON = "json"


class Method(enum.StrEnum):
    """Method of fusion."""

    RRF = "rrf"
    COMBSUM = "combsum"


Qrels = Annotated[pathlib.Path, typer.Option(help="File of judgements.")]
Runs = Annotated[list[pathlib.Path], typer.Argument(help="Files of two runs or more.")]
Measures = Annotated[
    list[str] | None,
    typer.Option("-m", "--measure", help="Measure, such as map or P.5,10; may be repeated."),
]
Level = Annotated[
    int,
    typer.Option(
        "-l", "--relevance-level", min=1, help="Minimum relevance of a relevant document."
    ),
]

app = Application(cls=_Commands, no_args_is_help=True)


@app.callback()
def _commands(version: Version = False) -> None:
    """Evaluate, compare and fuse TREC runs. `evaluate` may be left out."""


@app.command()
def evaluate(
    qrels: Qrels,
    run: Annotated[pathlib.Path, typer.Option(help="File of the run.")],
    measure: Measures = None,
    per_query: Annotated[
        bool, typer.Option("-q", "--per-query", help="Also show each query.")
    ] = False,
    complete: Annotated[
        bool,
        typer.Option("-c", "--complete", help="Count queries that are missing in the run as 0."),
    ] = False,
    relevance_level: Level = 1,
) -> None:
    """Evaluate a TREC run against judgements, as trec_eval does.

    Measures: map, Rprec, bpref, recip_rank, ndcg, ERR, RBP, and with cut-offs after a dot: P,
    recall, ndcg_cut, map_cut, success, ERR. Ties, gains and queries are those of trec_eval; scores
    are compared in float32.
    """
    from tfrank_sel import trec

    metrics = trec.measures(measure or OFFICIAL, relevance_level)
    values = trec.evaluate(read_qrels(qrels), read_run(run), metrics, complete)
    queries = next(iter(values.values()))
    if not queries:
        raise refusal(f"Expected a query of {qrels} in {run}", "no such query")
    for query in queries if per_query else []:
        for name, by_query in values.items():
            _print(name, query, f"{by_query[query]:.4f}")
    _print("num_q", "all", str(len(queries)))
    for name, by_query in values.items():
        _print(name, "all", f"{statistics.fmean(by_query.values()):.4f}")


@app.command()
def compare(
    runs: Runs,
    qrels: Qrels,
    measure: Measures = None,
    relevance_level: Level = 1,
    queries: Annotated[
        pathlib.Path | None,
        typer.Option(help="Table with a column query_id, such as CSV, for --slice-by."),
    ] = None,
    slice_by: Annotated[
        str | None, typer.Option(help="Column of --queries; also compare each of its values.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="Form of the output.")] = Form.MARKDOWN,
    show: Annotated[
        int, typer.Option(min=0, help="Number of queries to show, those that differ most.")
    ] = 5,
    picture: Annotated[
        pathlib.Path | None, typer.Option(help="File to draw the intervals in, such as a.png.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=1, help="Number of resamples.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
) -> None:
    """Compare TREC runs query by query: intervals, tests with Holm's correction, wins and losses.

    By default, the measures are ndcg_cut.10 and map. A query that is missing in a run counts as one
    without results.
    """
    from tfrank_sel import trec

    judged = read_qrels(qrels)
    compared = trec.compare(
        dict(zip(_names(runs), runs, strict=True)),
        judged,
        trec.measures(measure or COMPARED, relevance_level),
        slices=_slices(queries, slice_by, judged),
        resamples=resamples,
        seed=seed,
    )
    if form is Form.MARKDOWN:
        print(compared.markdown() + _most_different(compared, show))
    else:
        print(compared.json(show))
    if picture:
        _draw(compared, picture)


@app.command()
def fuse(
    runs: Runs,
    method: Annotated[Method, typer.Option(help="Method.")] = Method.RRF,
    k: Annotated[float, typer.Option(min=0.0, help="Constant of rrf.")] = 60.0,
    weights: Annotated[
        list[float] | None,
        typer.Option("-w", "--weight", min=0.0, help="Weight for combsum; one for each run."),
    ] = None,
) -> None:
    """Fuse TREC runs into one run, which is printed."""
    from tfrank_sel import trec

    if len(runs) < 2:
        raise refusal("Expected two runs or more", runs[0])
    if weights and method is Method.RRF:
        raise refusal("`--weight` is for combsum", weights, "for rrf")
    if method is Method.RRF:
        fused = trec.reciprocal_rank_fusion(runs, k)
    else:
        fused = trec.comb_sum(runs, weights or None)
    for query, scores in fused.items():
        best = sorted(scores, key=lambda x: (-scores[x], x))
        for rank, document in enumerate(best, start=1):
            print(f"{query} Q0 {document} {rank} {scores[document]:.9g} {method}")


def _names(runs: list[pathlib.Path]) -> list[str]:
    """The stems of the files, or the paths if two are equal."""
    stems = [run.stem for run in runs]
    names = stems if len(set(stems)) == len(stems) else [str(run) for run in runs]
    if twice := [name for name, count in collections.Counter(names).items() if count > 1]:
        raise ValueError(f"Expected different runs. Received twice: {', '.join(twice)}")
    return names


def _slices(
    path: pathlib.Path | None, column: str | None, judged: Collection[str]
) -> dict[str, str]:
    """The value of a column for each query; tells the judged queries without one."""
    if path is None or column is None:
        if path or column:
            raise refusal("`--queries` and `--slice-by` require each other", "one of them")
        return {}
    from tfrank_sel.data import formats, table

    tables = [x for x in formats.FORMATS.values() if issubclass(x, formats.TableReader)]
    suffixes = tuple(suffix for x in tables for suffix in x.suffixes)
    is_named = path.is_dir() or path.name.lower().endswith(suffixes)
    form = None if is_named else "csv"
    listed = formats.table(path, {"query": "query_id"}, format=form)["query"].tolist()
    [(query, count)] = collections.Counter(listed).most_common(1) or [("", 0)]
    if count > 1:
        raise refusal(f"{path} must have a row for each query", f"{count} of query {query}")
    # those whose only fault is the slice
    rows = formats.table(path, {"query": "query_id", "slice": column}, format=form, rejected=[])
    slices = dict(zip(rows["query"].tolist(), rows["slice"].tolist(), strict=True))
    queries = {*listed}
    has_row = [x in queries for x in judged]
    if 2 * sum(has_row) < len(judged):
        table.tell_partners("queries", has_row, f"those of {path}", [*judged])
    if lacking := [x for x in judged if x not in slices]:
        of = f"{len(lacking)} of {len(judged)} queries, such as {lacking[0]!r},"
        with log_warnings():
            warnings.warn(f"{of} have no slice in {path}", stacklevel=2)
    return slices


def _most_different(compared: "Comparison", count: int) -> str:
    """A table for each metric and pair of runs."""
    from tfrank_sel.trec.comparison import ALL

    text = ""
    for difference in compared.differences:
        most = compared.most_different(difference.metric, difference.a, difference.b, count)
        if difference.slice == ALL and most:
            text += f"\n\n| {difference.metric} of query | {difference.a} | {difference.b} |"
            text += "\n| --- | --- | --- |"
            text += "".join(f"\n| {x.query} | {x.a:.4f} | {x.b:.4f} |" for x in most)
    return text


def _draw(compared: "Comparison", path: pathlib.Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError("--picture needs matplotlib: pip install 'tfrank_sel[plots]'") from error
    size = 1.0 + 0.35 * len(compared.differences)
    figure = Figure(figsize=(7.0, size), layout="constrained")
    compared.draw(figure.subplots())
    figure.savefig(path, dpi=150)


def _print(name: str, query: str, value: str) -> None:
    print(f"{name:<22}\t{query}\t{value}")


def main() -> None:
    """Runs the command line; a wrong file or name ends it with a message and status 2."""
    app()


if __name__ == "__main__":
    main()
