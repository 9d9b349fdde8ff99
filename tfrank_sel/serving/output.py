"""Output of a server, which never waits for the process that should read it."""

import contextlib
import fcntl
import os
import queue
import sys
import threading
from collections.abc import Iterator

_WAITING = 2**10  # pieces that wait to be read
_PIECE = 2**12
_PIPE = 2**20  # bytes that are held while no thread of Python runs
_END_SECONDS = 1.0


@contextlib.contextmanager
def drain_output() -> Iterator[None]:
    """Lets this process write to stdout and stderr without waiting for their reader.

    Whatever writes there, in Python or below it, writes to a pipe. A thread passes it on. If the
    reader is slow, up to 4 MiB wait; what follows is dropped, and counted in a line.
    """
    passed = [_Passed(number) for number in (1, 2)]
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for output in passed:
            output.end()


class _Passed:
    """A file descriptor whose output is passed on by threads.

    Args:
        number: Number of the descriptor.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._reader = os.dup(number)
        self._ours, pipe = os.pipe()
        with contextlib.suppress(OSError):  # more than this machine allows
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
        os.dup2(pipe, number)
        os.close(pipe)
        self._waiting: queue.Queue[bytes] = queue.Queue(_WAITING)
        self._writer = threading.Thread(target=self._write, name="output", daemon=True)
        self._writer.start()
        threading.Thread(target=self._take, name="output-pipe", daemon=True).start()

    def _take(self) -> None:
        dropped = 0
        while piece := os.read(self._ours, _PIECE):
            notice = f"{dropped} bytes of output were dropped: they were not read in time\n"
            try:
                self._waiting.put_nowait((notice.encode() if dropped else b"") + piece)
                dropped = 0
            except queue.Full:
                dropped += len(piece)
        self._waiting.put(b"")

    def _write(self) -> None:
        while piece := self._waiting.get():
            # Nobody reads the output any more.
            with contextlib.suppress(OSError):
                while piece:
                    piece = piece[os.write(self._reader, piece) :]

    def end(self) -> None:
        """Writes what waits, if it is read in time; otherwise all later output is lost."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._number)
        os.close(nowhere)
        self._writer.join(_END_SECONDS)
        if not self._writer.is_alive():
            os.dup2(self._reader, self._number)
