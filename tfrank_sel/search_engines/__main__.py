"""The command line: `tfrank-sel-engine`, or `python -m tfrank_sel.search_engines`."""

import json
import math
import pathlib
import sys
from typing import Annotated, Any, Literal

import numpy as np

from tfrank_sel.errors import received, refusal, require_extra

with require_extra("tfrank-sel-engine", "engine"):
    import typer
    from pyarrow import parquet

from tfrank_sel import artefacts
from tfrank_sel.commandline import Application, Version, log_warnings, tell
from tfrank_sel.data import formats, stores
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.data.table import tell_partners
from tfrank_sel.features import Bool, Category, Feature, Hash, Number
from tfrank_sel.launch import quiet
from tfrank_sel.locks import atomic_path
from tfrank_sel.search_engines import judgments as judged_by, logged
from tfrank_sel.search_engines.elastic import Elasticsearch
from tfrank_sel.search_engines.engine import Engine, Fields
from tfrank_sel.search_engines.plugin import Plugin
from tfrank_sel.search_engines.solr import Solr

# These are the names of `export.search_engine`.
Name = Literal["opensearch", "o19s", "elasticsearch", "solr"]
Ranks = Literal["opensearch", "o19s", "elasticsearch", "solr", "vespa"]
ENGINES: dict[Name, type[Engine]] = {
    "opensearch": Plugin,
    "o19s": Plugin,
    "elasticsearch": Elasticsearch,
    "solr": Solr,
}
Of = Annotated[Name, typer.Option("--engine", help="The engine.")]
Url = Annotated[
    str,
    typer.Option(help="URL of the index, the core or the collection: http://localhost:9200/items."),
]
Set = Annotated[
    str,
    typer.Option(
        help="Name of the set of features in the engine; for Elasticsearch, the file of `features`."
    ),
]
Parameter = Annotated[
    str, typer.Option(help="Name of the text of the query in the templates of features.")
]
Tables = Annotated[
    list[str],
    typer.Argument(help="Table of queries and documents: Parquet, Arrow, CSV, TSV or JSON lines."),
]
Query = Annotated[str, typer.Option(help="Column of the text of the query.")]
Document = Annotated[str, typer.Option(help="Column of the identifier of the document.")]
Missing = Annotated[
    float, typer.Option(help="Value of a feature that a document lacks, as in training.")
]
app = Application(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _commands(version: Version = False) -> None:
    """Log features in a search engine, add a model to it, and check that it scores as the model.

    TFRANK_SEL_ENGINE_AUTHORIZATION is the value of the header Authorization, if it is set.
    """


@app.command()
def features(
    output: Annotated[pathlib.Path, typer.Option(help="JSON file to write.")],
    engine: Of,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Field whose match with the query is a feature; may be repeated."),
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option(help="Field whose value, of 0 or more, is a feature; may be repeated."),
    ] = None,
    schema: Annotated[
        pathlib.Path | None,
        typer.Option(help="File of a Schema, such as that of a run, whose features are fields."),
    ] = None,
    parameter: Parameter = "query",
    version: Annotated[
        str | None,
        typer.Option(help="Version of Solr: from 9.2 on, absent features are NaN."),
    ] = None,
) -> None:
    """Write the features of fields as the engine computes them: match scores and numbers."""
    types = Schema.read(schema).features if schema else {}
    reasons = {name: _not_computed(feature) for name, feature in types.items()}
    ours = [name for name, reason in reasons.items() if not reason]
    numbers = [x for x in ours if isinstance(types[x], Number | Bool)]
    texts = [x for x in ours if x not in numbers]
    fields = Fields([*texts, *(text or ())], [*numbers, *(number or ())])
    fields.check()
    keeps_absent = False
    if version is not None:
        # This import takes seconds, as it loads TensorFlow.
        from tfrank_sel.search_engines.trees import Absent, ways_of

        keeps_absent = ways_of(engine, version) == {Absent.GOES_AS_NAMED}
    made = ENGINES[engine].features(fields, parameter, keeps_absent=keeps_absent)
    with atomic_path(output) as written:
        written.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    print(f"{len(fields.texts)} match scores and {len(fields.numbers)} numbers in {output}")
    for name, reason in reasons.items():
        if reason:
            print(f"left out: {name}: {reason}")


def _not_computed(feature: Feature) -> str:
    """Why an engine cannot compute a feature; empty if it can."""
    if feature.of == "query":
        return "a value of the query, which no document has"
    if isinstance(feature, Category | Hash) and feature.dtype == "string":
        return ""
    if isinstance(feature, Number | Bool):
        return ""
    return f"no score and no number of a document: {feature.type}"


@app.command()
def judgments(
    files: Annotated[
        list[str],
        typer.Argument(
            help="CSV or JSON of Quepid, JSON of the Search Relevance Workbench, lines of RankLib, "
            "or TREC qrels."
        ),
    ],
    output: Annotated[pathlib.Path, typer.Option(help="Parquet file to write.")],
) -> None:
    """Make a table of judgments: the mean rating of each query and document."""
    judged = judged_by.read(stores.expand(files))
    table = judged_by.table(judged)
    with atomic_path(output) as written:
        parquet.write_table(table, written)
    alpha, several = judged_by.agreement(judged), sum(len(x.ratings) > 1 for x in judged)
    agree = "" if math.isnan(alpha) else f" (Krippendorff's alpha {alpha:.2f})"
    queries = len(table["query_id"].unique())
    print(
        f"{table.num_rows} documents of {queries} queries in {output}, "
        f"{several} judged more than once{agree}"
    )
    if len(judges := dict.fromkeys(judge for x in judged for judge in x.judges)) > 1:
        print(f"judges: {', '.join(judges)}")


@app.command()
def collect(
    table: Tables,
    output: Annotated[pathlib.Path, typer.Option(help="Parquet file to write.")],
    engine: Of,
    url: Url,
    features: Set,
    query: Query = Columns.query,
    doc_id: Document = Columns.doc_id,
    label: Annotated[str, typer.Option(help="Column of the label.")] = "relevance",
    parameter: Parameter = "query",
    missing: Missing = math.nan,
) -> None:
    """Make a training table of judgments or corrected clicks, with the features of the engine."""
    roles = {"query": query, "item": doc_id, "relevance": label}
    judged = formats.table(stores.expand(table), roles)
    index = ENGINES[engine](url, parameter)
    with atomic_path(output) as written:
        found = _ask_features(index, judged, missing, features=features)
        parquet.write_table(logged.table(judged, roles, found), written)
    print(f"{len(found.rows)} documents with {len(found.names)} features in {output}")


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="Folder or URL of a run of tfrank-sel-pipelines.")],
    output: Annotated[pathlib.Path, typer.Option(help="File to write.")],
    engine: Annotated[Ranks, typer.Option(help="The engine.")],
    version: Annotated[
        str | None,
        typer.Option(help="Version of the engine or of o19s' plugin; all versions if unset."),
    ] = None,
    features: Annotated[
        str, typer.Option(help="For Elasticsearch: the file of `features`.")
    ] = "features.json",
    missing: Missing = math.nan,
) -> None:
    """Write the ranker of a run as a file for `push`: trees that learn the ranker's scores.

    It prints NDCG@10 of the trees on the test split, the ranker's, and that of trees that learn the
    labels. The trees are also written as a Keras model, OUTPUT with the suffix .keras, for
    `verify`. For Vespa, the file is the ranker itself, as ONNX.
    """
    # Imported late, since only this command needs TensorFlow.
    with quiet():
        from tfrank_sel.search_engines import distilled

    with log_warnings():
        distilled.export(run, output, engine, version, missing, features)
    print(output)


@app.command()
def push(
    file: Annotated[pathlib.Path, typer.Argument(help="File of `features` or of `export`.")],
    engine: Of,
    url: Url,
    name: Annotated[
        str, typer.Option(help="Name of the model, to which the next version is added.")
    ] = "ranker",
    features: Annotated[
        str, typer.Option(help="Name of the set of features in the engine.")
    ] = "features",
    parameter: Parameter = "query",
) -> None:
    """Add features or a model to the engine, and print how to rank with the model."""
    index = ENGINES[engine](url, parameter)
    with artefacts.name_file_in_errors(file, "a JSON file"):
        body: Any = json.loads(file.read_text(encoding="utf-8"))
    if pushed := index.push(str(file), body, name, features):
        print(json.dumps(index.rescore(pushed, "red shoes", 100), indent=2))
    tell(f"added {pushed or features} to {index.base}")


@app.command()
def verify(
    table: Tables,
    engine: Of,
    url: Url,
    name: Annotated[str, typer.Option(help="Name of the model in the engine, as `push` told.")],
    model: Annotated[
        str,
        typer.Option(
            help="The trained model: LightGBM (.txt), XGBoost (.json, .ubj) or Keras (.keras)."
        ),
    ],
    query: Query = Columns.query,
    doc_id: Document = Columns.doc_id,
    parameter: Parameter = "query",
    missing: Missing = math.nan,
    least: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Minimum share of the documents that the index has."),
    ] = 0.95,
) -> None:
    """Compare the engine's scores with the model's; status 2 if they are not equal.

    The status is 1 if the index has too few of the documents.
    """
    judged = formats.table(stores.expand(table), {"query": query, "item": doc_id})
    index = ENGINES[engine](url, parameter)
    found = _ask_features(index, judged, missing, model=name)
    ours = logged.scores(model, found.names, found.features)
    queries = judged["query"][found.rows]
    correlation, difference, tolerance = logged.agreement(queries, found.scores, ours)
    compared = f"rank correlation {correlation:.6f}, largest difference {difference:.2g}"
    print(f"{len(found.rows)} documents: {compared}")
    # NaN fails both comparisons.
    if not (correlation == 1.0 and difference <= tolerance):
        expected = f"rank correlation 1 and a difference of at most {tolerance:.2g}"
        raise refusal(f"{name} must score as {model}: {expected}", compared)
    if len(found.rows) < least * len(judged):
        expected = f"{index.place} must have a share of {least:g} of the documents, as --least says"
        share = f"{len(found.rows)} of {len(judged)}, {len(found.rows) / len(judged):.2g}"
        tell(received(expected, share))
        raise typer.Exit(1)


def _ask_features(
    index: Engine, judged: formats.Table, missing: float, **ranker: str
) -> logged.LoggedFeatures:
    """Asks for the features of documents, shows the progress, and tells what the index lacks."""
    count = len(judged)
    with typer.progressbar(length=count, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        found = logged.ask(index, judged, missing, bar.update, **ranker)
    is_found = np.isin(np.arange(count), found.rows)
    with log_warnings(print):
        tell_partners("documents", is_found, f"those of {index.place}", judged["item"])
    return found


def main() -> None:
    """Runs the command line; what is refused ends it with a message and status 2."""
    app()


if __name__ == "__main__":
    main()
