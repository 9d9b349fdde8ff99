"""The command line: `tfrank-sel-recommend`, or `python -m tfrank_sel.recommend`."""

import contextlib
import json
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from tfrank_sel.errors import refusal, require_extra

with require_extra("tfrank-sel-recommend", "recommend"):
    import typer

from tfrank_sel import artefacts
from tfrank_sel.commandline import Application, Version, log_warnings, shell, tell
from tfrank_sel.data import Sequences, stores
from tfrank_sel.errors import received
from tfrank_sel.launch import quiet
from tfrank_sel.locks import atomic_path
from tfrank_sel.recommend.recommender import Recommender
from tfrank_sel.terminal import Terminal

SAVED, MODEL = "recommender", "items"  # the folder of a recommender, and the name of its SavedModel

app = Application(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _commands(version: Version = False) -> None:
    """Recommend items to users by what they took, in two stages."""


@app.command()
def fit(
    data: Annotated[
        list[str],
        typer.Argument(
            help="Interactions: files, folders or patterns; CSV, TSV, Parquet, Arrow or JSON lines."
        ),
    ],
    output: Annotated[pathlib.Path, typer.Option(help="Folder to write; it must not exist.")],
    user: Annotated[str, typer.Option(help="Column of the users' ids.")] = "user",
    item: Annotated[str, typer.Option(help="Column of the items' ids.")] = "item",
    time: Annotated[str, typer.Option(help="Column of the times.")] = "time",
    items: Annotated[
        str | None, typer.Option(help="Table of further columns of items, by the same id.")
    ] = None,
    users: Annotated[
        str | None, typer.Option(help="Table of further columns of users, by the same id.")
    ] = None,
    repeats: Annotated[
        bool, typer.Option("--repeats", help="Recommend items again that a user has.")
    ] = False,
    held_out: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of the interactions, the latest, for the test."),
    ] = 0.1,
    k: Annotated[int, typer.Option(min=1, help="Number of items of each user.")] = 10,
    format: Annotated[
        str | None,
        typer.Option(help="Format of the files, such as tsv; inferred from their names if unset."),
    ] = None,
) -> None:
    """Fit a recommender to interactions, test it on the latest, and write it with its SavedModel.

    The test compares it with popular items and with each retriever alone. If it is significantly
    worse than one (95 % interval), there is no SavedModel, and the exit status is 3. What is
    written learned of all interactions.
    """
    if output.exists():
        raise FileExistsError(received("--output must not exist", output))
    with quiet():
        from tfrank_sel import export  # before the fit: TensorFlow may be missing
    with log_warnings():
        files = stores.expand(data)
        whole = Sequences.read(files, user=user, item=item, time=time, format=format)
        before, later = whole.split(float(np.quantile(whole.times, 1.0 - held_out)))
        if not (held_out and len(before.users) and len(later.users)):
            raise refusal("--held-out must leave interactions to fit and to test", held_out)
        tables: Any = {"user": user, "item": item, "items": items, "users": users, "format": format}
        with _step("test"):
            recommender = Recommender(later=held_out, repeats=repeats)  # taught as it is tested
            evaluation = recommender.fit(before, **tables).evaluate(later, k)
        print(evaluation)
        with _step("fit"):
            recommender.fit(whole, **tables)
    gain, best = evaluation.gain
    is_held_back = gain.high < 0.0
    level = "not significantly different from"
    outcome = "worse than" if is_held_back else "better than" if gain.low > 0.0 else level
    interval = "{:+.4f} ({:+.4f} to {:+.4f})".format(*gain)
    verdict = f"{outcome} {best}, the best alone: NDCG@{k} {interval}"
    record = {**evaluation.record(), "verdict": verdict, "held_back": is_held_back}
    with atomic_path(output) as written:
        written.mkdir()
        recommender.save(written / SAVED)
        artefacts.write_json(written / "evaluation.json", record)
        if not is_held_back:
            with _step("export"), quiet():
                recommender.export(written / MODEL, k, metadata={"evaluation": record})
                export.publish(written / MODEL, written / "serving" / MODEL, 1)
                shutil.rmtree(written / MODEL)
    tell(verdict)
    if is_held_back:
        tell(f"held back: {output} has no SavedModel")
        raise typer.Exit(3)
    request = json.dumps({"instances": whole.user_ids[:1].tolist()})
    served = output / "serving" / MODEL
    tell("serve it, and ask for the items of a user:")
    tell(f"  {shell('tfrank-sel-serving', 'serve', '--model-base-path', served)}")
    tell(f"  {shell('curl', '-d', request, f'localhost:8501/v1/models/{MODEL}:predict')}")


@app.command()
def recommend(
    folder: Annotated[pathlib.Path, typer.Argument(help="Folder that `fit` wrote.")],
    output: Annotated[pathlib.Path, typer.Option(help="Parquet file to write; it must not exist.")],
    k: Annotated[int, typer.Option(min=1, help="Number of items of each user.")] = 10,
) -> None:
    """Write the best items of all users into a file, or go on where that was interrupted."""
    Recommender.load(folder / SAVED).write(output, k, verbose=True)


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    """Shows a step, and how long it took."""
    began = time.perf_counter()
    terminal = Terminal(stderr=True)
    with terminal.status(name):
        yield
    terminal.print(f"done {name:8} {time.perf_counter() - began:7.1f} s")


def main() -> None:
    """Runs the command line; a wrong file or column ends it with a message and status 2."""
    app()


if __name__ == "__main__":
    main()
