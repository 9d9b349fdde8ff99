"""Outputs that an interrupted call continues, from a folder beside them."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrank_sel.data import leases, stores
from tfrank_sel.data.rejections import rejection
from tfrank_sel.errors import received
from tfrank_sel.locks import hold, remove_empty

SUCCESS = "_SUCCESS"  # marks a complete output in a store
_STATE = "state.json"  # in the folder of an interrupted call: its inputs


@contextlib.contextmanager
def resume(output: str, state: Mapping[str, Any]) -> Iterator[str]:
    """Provides a temporary folder next to the output, with the results of an interrupted call.

    A call resumes if its `state` equals that of `save`; other results are removed. Without a state
    at the end, nothing can be resumed, and the folder is removed.

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
        _check_new(output, None)
    with contextlib.ExitStack() as stack:
        if not is_remote:  # after the lock in it
            stack.callback(remove_empty, Path(folder))
        try:
            stack.enter_context(leases.hold(folder) if is_remote else hold(Path(folder)))
        except OSError as error:
            raise rejection(
                folder, "the output folder must be writable, by one process at a time", error
            ) from error
        try:
            if (before := _read_state(work)) != json.loads(json.dumps(state)):
                _check_new(output, before)
                for path in (work, *([output] if is_remote else [])):
                    stores.drop(path)
            if not is_remote:
                os.makedirs(work, exist_ok=True)
            yield work
        finally:
            if not can_resume(work):
                stores.drop(work)


def can_resume(work: str) -> bool:
    """Whether a folder of `resume` has a state."""
    return stores.is_file(stores.join(work, _STATE))


def save(work: str, state: Mapping[str, Any]) -> None:
    """Writes the state, from which on a call can be resumed."""
    stores.write_text(stores.join(work, _STATE), json.dumps(state, indent=2) + "\n")


def finish(work: str, result: str, output: str) -> None:
    """Moves a result in the folder to a local output, or marks that in a store; drops the state.

    Raises:
        FileExistsError: If a local output became a file meanwhile, which a move would replace.
    """
    if stores.is_remote(output):
        stores.write_text(stores.join(output, SUCCESS), "")
    elif os.path.isfile(output):
        raise FileExistsError(received("the output must not exist", output))
    else:
        os.rename(result, output)
    stores.remove(stores.join(work, _STATE))


def _read_state(work: str) -> Any:
    """The stored state in a folder, if any."""
    path = stores.join(work, _STATE)
    try:
        return json.loads(stores.read_text(path)) if stores.is_file(path) else None
    except ValueError as error:
        reason = "expected JSON of an interrupted call; remove the folder to start again"
        raise rejection(path, reason, error) from error


def _check_new(output: str, before: Any) -> None:
    """Raises an error if the output has files other than those of an interrupted call, `before`."""
    if not stores.is_remote(output):
        is_new = not os.path.exists(output) or (os.path.isdir(output) and not os.listdir(output))
    else:
        is_complete = stores.is_file(stores.join(output, SUCCESS))
        is_new = not (stores.find(output) if before is None else is_complete)
    if not is_new:
        reason = "the output folder must be new or empty"
        raise rejection(output, reason, "a file, or a folder that is not empty")
