"""Leases: places in an object store, each locked for one process on any machine."""

import contextlib
import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrank_sel.data import stores

_log = logging.getLogger(__name__)
FOLDER = ".lease"
_NAME = re.compile(r"/[0-9]{8}\.json$")
_RENEWED = 10.0  # seconds between signs of life
_EXPIRED = 45.0  # seconds without one after which another process may take over


class LeaseError(RuntimeError):
    """A lease that another process has taken over, as there was no sign of life for too long."""


@contextlib.contextmanager
def hold(
    folder: str, patience: float = 0.0, *, renewed: float = _RENEWED, expired: float = _EXPIRED
) -> Iterator[None]:
    """Holds a folder of a store for this process alone, until the end.

    The lease is a file in `.lease/` of the folder, made on the condition that there is none, and
    written again every few seconds as a sign of life. A process that was killed gives none: the
    next one waits until it is sure, and takes over with a file of the next number, which only one
    process can make. No clock is compared with another.

    Args:
        folder: URL of the folder.
        patience: Seconds to wait for a process that lives.
        renewed: Seconds between signs of life.
        expired: Seconds without one after which a lease is taken over.

    Raises:
        FileExistsError: If another process that lives holds the folder.
        LeaseError: At the end, if another process has taken over meanwhile: this one was stopped,
            or out of reach of the store, for longer than `expired`.
        tfrank_sel.data.InputError: If the store cannot be reached or refuses.
    """
    until = time.monotonic() + patience
    while True:
        try:
            mine = 1 + _expired_lease(folder, expired)
            _write(folder, mine, 0, "create")
            break
        except FileExistsError:
            if time.monotonic() >= until:
                raise
    # Not before: with no file there, a third process would make number 1 beside this one.
    for old in range(1, mine):
        stores.remove(_place(folder, old))
    over, lost = threading.Event(), threading.Event()
    arguments = (folder, mine, renewed, over, lost)
    signs = threading.Thread(target=_renew, args=arguments, daemon=True)
    signs.start()
    try:
        yield
        if lost.is_set() or _latest(folder)[0] != mine:
            raise LeaseError(f"another process has taken {folder} over")
    finally:
        over.set()
        signs.join()
        with contextlib.suppress(Exception):  # of any client of a store; the lease expires
            stores.remove(_place(folder, mine))


def _place(folder: str, number: int) -> str:
    return stores.join(folder, FOLDER, f"{number:08d}.json")


def _latest(folder: str) -> tuple[int, bytes | None]:
    """The number of the latest lease and what it says; 0 and None if there is none."""
    files = [x for x in stores.glob(stores.join(folder, FOLDER, "*.json")) if _NAME.search(x)]
    if not files:
        return 0, None
    number = int(files[-1].rpartition("/")[2].removesuffix(".json"))
    try:
        with stores.open_filesystem(files[-1]) as (store, path):
            return number, store.cat_file(path)
    except FileNotFoundError:  # it ended between the two
        return number, None


def _expired_lease(folder: str, expired: float) -> int:
    """The number of the latest lease, once it is sure that its holder does not live; or else 0."""
    number, content = _latest(folder)
    if content is None:
        return number
    owner = _owner(content)
    # A run that was killed and is started again on its machine need not wait for `expired`.
    is_here = owner.get("processes") == _processes() != ""
    if is_here and not _lives(owner["process"]):
        return number
    end = time.monotonic() + expired
    while time.monotonic() < end:
        time.sleep(min(1.0, expired / 10))
        latest, now = _latest(folder)
        if now is None:
            return _expired_lease(folder, expired)
        if (latest, now) != (number, content):
            raise _held_error(folder, now)
    return number


def _processes() -> str:
    """The boot of this machine and the space of process ids in it; empty if not known.

    Containers may share the name of the host, but not the space of process ids.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is of another user
        pass
    return True


def _held_error(folder: str, content: bytes) -> FileExistsError:
    owner = _owner(content)
    who = f", process {owner['process']} of {owner['host']}" if owner else ""
    return FileExistsError(f"{folder} is held by another process{who}")


def _owner(content: bytes) -> dict[str, Any]:
    """What a lease says of its holder; nothing if it is no lease, such as an empty file."""
    with contextlib.suppress(ValueError):
        owner = json.loads(content)
        if isinstance(owner, dict) and {"host", "process"} <= owner.keys():
            return owner
    return {}


def _write(folder: str, number: int, sign: int, mode: str) -> None:
    # `sign` differs each time, so that a process that waits sees a change, and compares no clocks.
    owner: dict[str, Any] = {"host": socket.gethostname(), "process": os.getpid(), "sign": sign}
    owner["processes"] = _processes()
    url = _place(folder, number)
    with stores.open_filesystem(url) as (store, path):
        try:
            store.pipe_file(path, json.dumps(owner).encode(), mode=mode)
        except FileExistsError as error:
            raise FileExistsError(f"{folder} is held by another process") from error


def _renew(
    folder: str, number: int, renewed: float, over: threading.Event, lost: threading.Event
) -> None:
    """Gives signs of life, as far as the store can be reached, until another process takes over."""
    sign, is_logged = 0, False
    while not over.wait(renewed):
        sign += 1
        # A store may be out of reach for less than `expired`; the end of `hold` finds a longer gap.
        try:
            if _latest(folder)[0] == number:
                _write(folder, number, sign, "overwrite")
            # Another may take over between the two: then the file was made again.
            if _latest(folder)[0] != number:
                lost.set()
                stores.remove(_place(folder, number))
                return
        except Exception as error:  # of any client of a store
            if not is_logged:
                _log.warning(
                    "%s: no sign of life could be given, next try follows: %r", folder, error
                )
                is_logged = True
