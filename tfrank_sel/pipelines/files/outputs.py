"""Output folders of several files, on disk and in stores: atomic and resumable."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrank_sel.data import leases, stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.locks import held

STATE = "state.json"  # in the folder of an interrupted call: its inputs
SUCCESS = "_SUCCESS"  # marks a complete output in a store


@contextlib.contextmanager
def resumed(output: str, state: Mapping[str, Any]) -> Iterator[str]:
    """Provides a temporary folder beside the output, with the results of an interrupted call.

    A call resumes if `state` equals the contents of `state.json`. If there is no such file at the
    end, nothing can be resumed, and the folder is removed.

    Args:
        output: Absolute path or URL of the output.
        state: Inputs of the call, as JSON-ready values.

    Yields:
        The path or URL of the folder `work` in `.NAME.partial`.

    Raises:
        tfrank_sel.data.InputError: If the output is not new, another process writes to it, or a
            store cannot be reached.
    """
    parent, _, name = output.rpartition("/")
    folder = stores.join(parent, f".{name}.partial")
    work, is_remote = stores.join(folder, "work"), stores.is_remote(output)
    if not is_remote:
        _check_new(output, known=None)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(leases.held(folder) if is_remote else held(Path(folder)))
        except OSError as error:
            wanted = "the output folder must be writable, by one process at a time"
            raise InputError(folder, f"{wanted}. Received: {error}") from error
        try:
            if (known := _known(work)) != json.loads(json.dumps(state)):
                _check_new(output, known)
                for path in (work, *([output] if is_remote else [])):
                    stores.drop(path)
            if not is_remote:
                os.makedirs(stores.join(work, "scores"), exist_ok=True)
            yield work
        finally:
            if not stores.is_file(stores.join(work, STATE)):
                stores.drop(work if is_remote else folder)


def _known(work: str) -> Any:
    """The stored state in a folder, if any."""
    path = stores.join(work, STATE)
    try:
        return json.loads(stores.read_text(path)) if stores.is_file(path) else None
    except ValueError as error:
        wanted = "expected JSON of an interrupted call; remove the folder to start anew"
        raise InputError(path, f"{wanted}. Received: {error}") from error


def _check_new(output: str, known: Any) -> None:
    """Raises an error if the output has files other than those of an interrupted call, `known`."""
    if not stores.is_remote(output):
        is_new = not os.path.exists(output) or (os.path.isdir(output) and not os.listdir(output))
    else:
        is_complete = stores.is_file(stores.join(output, SUCCESS))
        is_new = not (stores.find(output) if known is None else is_complete)
    if not is_new:
        wanted = "the output folder must be new or empty"
        raise InputError(output, f"{wanted}. Received: a file, or a folder that is not empty")
