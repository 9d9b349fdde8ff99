"""The command line: `tfrank-sel-metrics`, or `python -m tfrank_sel.metrics`."""

import pathlib
import statistics
import sys
from typing import Annotated

try:
    import typer
except ModuleNotFoundError as error:
    raise ImportError(
        f"tfrank-sel-metrics needs {error.name}: pip install 'tfrank_sel[metrics]'"
    ) from error

from tfrank_sel.metrics import trec

app = typer.Typer()

OFFICIAL = ("map", "Rprec", "bpref", "recip_rank", "ndcg", "ndcg_cut.10", "P.10")


@app.command()
def evaluate(
    qrels: Annotated[pathlib.Path, typer.Option(help="File of judgements.")],
    run: Annotated[pathlib.Path, typer.Option(help="File of the run.")],
    measure: Annotated[
        list[str] | None,
        typer.Option("-m", "--measure", help="Measure, such as map or P.5,10; may be repeated."),
    ] = None,
    per_query: Annotated[
        bool, typer.Option("-q", "--per-query", help="Also show each query.")
    ] = False,
    complete: Annotated[
        bool,
        typer.Option("-c", "--complete", help="Count queries that are missing in the run as 0."),
    ] = False,
    relevance_level: Annotated[
        int,
        typer.Option(
            "-l", "--relevance-level", min=1, help="Minimum relevance of a relevant document."
        ),
    ] = 1,
) -> None:
    """Evaluate a TREC run against judgements, as trec_eval does.

    Measures: map, Rprec, bpref, recip_rank, ndcg, ERR, RBP, and with cut-offs after a dot: P,
    recall, ndcg_cut, map_cut, success, ERR. Ties, gains and queries are those of trec_eval; scores
    are compared in float32.
    """
    try:
        metrics = trec.measures(measure or OFFICIAL, relevance_level)
        values = trec.evaluate(trec.read_qrels(qrels), trec.read_run(run), metrics, complete)
    except ValueError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    queries = next(iter(values.values()))
    if not queries:
        print(f"Expected a query of {qrels} in {run}. Received: no such query", file=sys.stderr)
        raise typer.Exit(2)
    for query in queries if per_query else []:
        for name, found in values.items():
            _print(name, query, f"{found[query]:.4f}")
    _print("num_q", "all", str(len(queries)))
    for name, found in values.items():
        _print(name, "all", f"{statistics.fmean(found.values()):.4f}")


def _print(name: str, query: str, value: str) -> None:
    print(f"{name:<22}\t{query}\t{value}")


def main() -> None:
    """Runs the command line; a wrong file or name ends it with a message and status 2."""
    app()


if __name__ == "__main__":
    main()
