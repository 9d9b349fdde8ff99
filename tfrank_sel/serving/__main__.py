"""The command line: `tfrank-sel-serving`, or `python -m tfrank_sel.serving`."""

import dataclasses
import gc
import json
import logging
import os
import pathlib
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import rich.table
import typer

from tfrank_sel.commandline import Application, Version, log_warnings, tell
from tfrank_sel.data import stores
from tfrank_sel.errors import refusal
from tfrank_sel.launch import quiet
from tfrank_sel.serving.options import Limits, PollingOptions, with_options
from tfrank_sel.serving.output import drain_output
from tfrank_sel.serving.status import ServingError
from tfrank_sel.terminal import Terminal

if TYPE_CHECKING:
    from tfrank_sel.export.releases import Releases
    from tfrank_sel.serving.endpoint import Endpoint

# of the server that receives the requests
Address = Annotated[str, typer.Option(help="HOST:PORT for gRPC, or http://HOST:PORT for REST.")]
ModelName = Annotated[str, typer.Option(help="Name of the model on the server.")]
# The folder and the name of a release.
Folder = Annotated[
    str, typer.Option(help="Folder or URL of all served models, which holds models.config.")
]
ReleasedName = Annotated[str, typer.Option(help="Name of the model in the folder and in requests.")]

app = Application(ImportError, OSError, ValueError, ServingError, no_args_is_help=True)


@app.callback()
def _commands(version: Version = False) -> None:
    """Serve a ranker on this machine, and send requests to it."""


@app.command()
@with_options
def serve(
    *,
    model_base_path: Annotated[
        str | None,
        typer.Option(help="Folder or URL of one model, with a subfolder for each version."),
    ] = None,
    model_name: Annotated[
        str, typer.Option(help="Name of the model in requests; the name of its folder if unset.")
    ] = "",
    following: PollingOptions,
    ssl_config_file: Annotated[
        pathlib.Path | None, typer.Option(help="`SSLConfig` that encrypts gRPC, but not REST.")
    ] = None,
    tensorflow_session_config_file: Annotated[
        pathlib.Path | None,
        typer.Option(help="`ConfigProto` with the threads and memory of a model."),
    ] = None,
    limits: Limits,
    rest_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for REST; 0 for any free port.")
    ] = 8501,
    grpc_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for gRPC; 0 for any free port.")
    ] = 8500,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    interleave: Annotated[
        str | None,
        typer.Option(
            help="Two versions whose rankings are mixed, such as 3,4 or, of one of several models, "
            "ranker:3,4, for requests with a session in the header `x-session`; the first one "
            "answers others."
        ),
    ] = None,
    interleave_method: Annotated[
        Literal["team_draft", "optimised"], typer.Option(help="Method that mixes the rankings.")
    ] = "team_draft",
    interleave_log: Annotated[
        pathlib.Path,
        typer.Option(
            help="File to which the items of each session are appended, with teams or credits."
        ),
    ] = pathlib.Path("interleaved.jsonl"),
) -> None:
    """Answer TensorFlow Serving's gRPC and REST requests until interrupted.

    New versions in the folders replace old ones without a failed request. The warm-up requests of a
    version run first.
    """
    if (model_base_path is None) == (following.config_file is None):
        raise refusal("Expected one of --model-base-path and --model-config-file", "both or none")
    is_there = stores.is_remote(model_base_path or "") or os.path.isdir(model_base_path or "")
    if model_base_path and not is_there:
        raise refusal(f"{model_base_path} must be a folder of versions", "no such folder")
    with quiet():
        from tensorflow.core.protobuf.config_pb2 import ConfigProto

        from tfrank_sel.serving.deployment import config, model_config
        from tfrank_sel.serving.deployment.config import SSLConfig
        from tfrank_sel.serving.endpoint import Endpoint
        from tfrank_sel.serving.engine.interleaving import Interleaving

    def read(path: pathlib.Path | None, kind: Callable[[], Any]) -> Any:
        return config.read(path, kind) if path else None

    # The event loop waits so long for a thread that runs Python, several times a request.
    sys.setswitchinterval(5e-4)
    if following.config_file:
        models = model_config.read(following.config_file)
    else:
        base_path = model_config.locate(model_base_path or ".")
        if isinstance(base_path, pathlib.Path):
            base_path = base_path.resolve()
        models = [model_config.ModelConfig(model_name or pathlib.Path(base_path).name, base_path)]
    mixed = None
    if interleave is not None:
        name, versions = _parse_interleave(interleave, [model.name for model in models])
        mixed = Interleaving(name, versions, interleave_log, interleave_method)
        if not following.config_file:
            models = [dataclasses.replace(models[0], policy=model_config.Specific(versions))]
    encryption = read(ssl_config_file, SSLConfig)
    endpoint = Endpoint(
        models,
        host=host,
        grpc_port=grpc_port,
        rest_port=rest_port,
        tls=config.credentials(encryption) if encryption else None,
        limits=limits,
        session=read(tensorflow_session_config_file, ConfigProto),
        interleaving=mixed,
        **vars(following),
    )
    gc.freeze()  # TensorFlow's objects stay: a collection that looks at them stops all threads
    with drain_output():
        has_ended = _serve(endpoint, [model.name for model in models])
    if not has_ended:
        os._exit(0)  # what does not end would keep the process


@app.command()
def check(
    folder: Annotated[
        pathlib.Path, typer.Argument(help="Deployment folder, which holds models.config.")
    ],
    root: Annotated[
        pathlib.Path,
        typer.Option(help="Folder that will be `/` on the server, with the models in it."),
    ] = pathlib.Path("/"),
) -> None:
    """Check a deployment folder, and report each fault with its file, field and rule."""
    if not folder.is_dir():
        raise refusal(f"{folder} must be a deployment folder", "no such folder")
    with quiet():
        from tfrank_sel.serving.deployment.check import check as faults_of

        faults = list(faults_of(folder, root))
    for fault in faults:
        tell(fault)
    if faults:
        raise typer.Exit(2)
    tell(f"{folder} has no faults", sys.stdout)


@app.command()
def deployment(
    output: Annotated[pathlib.Path, typer.Option(help="Folder to write; it must not exist.")],
    model_name: Annotated[str, typer.Option(help="Name of the model in requests.")],
    saved_model_base: Annotated[
        str, typer.Option(help="Folder or URL of the model, with a subfolder for each version.")
    ],
    copy_models: Annotated[
        bool, typer.Option(help="Copy all versions into the image, instead of polling the folder.")
    ] = False,
) -> None:
    """Write a production folder of a model: image, proxy, monitoring, Kubernetes, KServe."""
    with quiet():
        from tfrank_sel.serving.deployment.folder import write
        from tfrank_sel.serving.deployment.model_config import locate

        write(output, model_name, locate(saved_model_base), copy_models=copy_models)
    tell(f"{output} holds the deployment of {model_name}", sys.stdout)


@app.command()
@log_warnings()
def publish(
    saved_model: Annotated[str, typer.Argument(help="Folder or URL of the SavedModel.")],
    folder: Folder,
    model_name: ReleasedName = "ranker",
    version: Annotated[
        int | None, typer.Option(help="Version; one more than the latest if unset.")
    ] = None,
    canary: Annotated[
        bool, typer.Option(help="Publish with the label `canary`, next to the stable version.")
    ] = False,
) -> None:
    """Publish a SavedModel as a version that servers of the folder load."""
    target = _releases(folder, model_name).publish(saved_model, version, canary=canary)
    tell(f"{target} is {'the canary' if canary else 'served'}", sys.stdout)


@app.command()
@log_warnings()
def promote(folder: Folder, model_name: ReleasedName = "ranker") -> None:
    """Make the canary the stable version; the one before is still served, as `previous`."""
    version = _releases(folder, model_name).promote()
    print(f"version {version} is stable")


@app.command()
@log_warnings()
def roll_back(folder: Folder, model_name: ReleasedName = "ranker") -> None:
    """Withdraw the canary or, if there is none, return to the previous version."""
    version = _releases(folder, model_name).roll_back()
    print(f"version {version} is served")


@app.command()
def remove_old(
    folder: Folder,
    keep: Annotated[int, typer.Option(min=1, help="Number of latest versions to keep.")],
    model_name: ReleasedName = "ranker",
) -> None:
    """Remove all versions but the latest ones and those with a label."""
    removed = _releases(folder, model_name).remove_old(keep)
    print(f"removed: {', '.join(map(str, removed)) or 'none'}")


@app.command()
def rank(
    file: Annotated[
        pathlib.Path | None,
        typer.Option(
            help="Items of one query: LETOR or SVMLight for packed features; Parquet, Arrow, CSV, "
            "TSV or JSON lines for named ones; the other columns of a training table are shown "
            "with the scores."
        ),
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="JSON array with an object for each item, instead of a file.")
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Named features of the query, as a JSON object.")
    ] = None,
    manifest: Annotated[
        pathlib.Path | None,
        typer.Option(help="Manifest of the model, or its SavedModel: adds types of features."),
    ] = None,
    address: Address = "127.0.0.1:8500",
    model_name: ModelName = "ranker",
) -> None:
    """Rank the items of one query, and print them with their scores."""
    if (file is None) == (items is None):
        raise refusal("Expected one of --file and --items", "both or none")
    if file and not file.is_file():
        raise refusal(f"{file} must be a file with one query", "no such file")
    with quiet():
        from tfrank_sel.data import formats, requests
        from tfrank_sel.serving.client import Ranker
    title, ids, documents = None, None, None
    shown = dict[str, list[object]]()  # columns that are no features
    of_query = None if query is None else _json("--query", query)
    with Ranker(address, model_name, manifest=manifest) as ranker:
        if file and formats.reader([str(file)]).name == "letor":
            asked = _letor(file, ranker.num_features())
            title = f"query {asked.query_id}"
            ranked = ranker.rank(asked.features, asked.doc_ids, query=of_query)
        else:
            named = requests.read(file) if file else _json("--items", items or "")
            features, doc_id = ranker.takes.types, ranker.takes.doc_id
            has_others = file and doc_id not in features
            if has_others and {*features} <= {*named.column_names, *(of_query or ())}:
                others = [name for name in named.column_names if name not in features]
                shown = {name: named[name].to_pylist() for name in others}
                named = named.drop_columns(others)
                ids = [str(row) for row in range(named.num_rows)]
            ranked = ranker.rank(named, ids, query=of_query)
            documents = shown.pop(doc_id, None)
    table = rich.table.Table("rank", "document", "score", *shown, title=title)
    for item in ranked:
        document = documents[int(item.doc_id)] if documents else item.doc_id
        others = [str(values[int(item.doc_id)]) for values in shown.values()]
        table.add_row(str(item.rank), str(document), f"{item.score:.6g}", *others)
    Terminal().print(table)


def _parse_interleave(option: str, models: Sequence[str]) -> tuple[str, list[int]]:
    """The model and its two versions."""
    name, _, pair = option.rpartition(":")
    versions = [int(x) if x.isdecimal() else -1 for x in pair.split(",")]
    if len({*versions} - {-1}) != 2 or len(versions) != 2:
        raise refusal("--interleave must be two versions, such as 3,4", option)
    if not name and len(models) == 1:
        name = models[0]
    if name not in models:
        served = ", ".join(f"{model}:{pair}" for model in models) or "none"
        raise refusal(f"--interleave must name a served model: {served}", option)
    return name, versions


def _serve(endpoint: "Endpoint", names: Sequence[str]) -> bool:
    """Serves until a signal, and returns whether all has ended."""
    from tfrank_sel.serving.endpoint import host_and_port

    events: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: events.put(None))
    is_ready = threading.Event()

    def start() -> None:
        try:
            with quiet():
                endpoint.start()
            is_ready.set()
            address = f"http://{host_and_port(endpoint.host, endpoint.rest_port)}/v1/models/"
            rest = ", ".join(address + name for name in names)
            grpc = host_and_port(endpoint.host, endpoint.grpc_port)
            print(f"Serving {', '.join(names)}: gRPC {grpc}, REST {rest}", flush=True)
            form = "%(asctime)s %(message)s"
            logging.basicConfig(level=logging.INFO, format=form, stream=sys.stdout)
        except Exception as error:
            events.put(error)

    # A signal is handled while this thread runs Python; a model may load for long, or for ever.
    threading.Thread(target=start, name="start", daemon=True).start()
    error = events.get()
    if error is not None:
        raise error
    return is_ready.is_set() and endpoint.stop()


def main() -> None:
    """Runs the command line; bad input ends with one line on stderr and status 2."""
    app()


def _releases(folder: str, model_name: str) -> "Releases":
    """Imports what a release needs."""
    with quiet():
        from tfrank_sel.export.releases import Releases

    return Releases(folder, model_name)


def _letor(file: pathlib.Path, num_features: int) -> Any:
    """Returns the only list of a file."""
    from tfrank_sel.data import letor
    from tfrank_sel.data.rejections import rejection

    lists = list(letor.read(file, num_features))
    if len(lists) != 1:
        raise rejection(str(file), "expected one query", len(lists))
    return lists[0]


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise refusal(f"{option} must be JSON: {error}", text) from error


if __name__ == "__main__":
    main()
