"""Handling of Ctrl-C and SIGTERM, even if the interrupted code swallows the exception.

TensorFlow and Keras catch all exceptions in some places, including `KeyboardInterrupt`, mostly
while they trace a model. In other places, an exception passes through C++ code that is not made for
it, which can end the process by a damaged heap.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

# The signals that were received so far.
_told: list[int] = []
_deferring: list[bool] = []  # one per block of `defer`


def listen() -> None:
    """Raises `KeyboardInterrupt` on SIGTERM and on SIGINT, unless that is ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def check() -> None:
    """Raises `KeyboardInterrupt` if a signal was received, repeatedly if necessary."""
    if _told:
        raise KeyboardInterrupt


@contextlib.contextmanager
def defer() -> Iterator[None]:
    """Defers the first signal to the next `check`, or to the end of the block.

    A second signal interrupts at once.
    """
    _deferring.append(True)
    try:
        yield
    finally:
        _deferring.pop()
    check()


def _stop(number: int, frame: FrameType | None) -> None:
    _told.append(number)
    if len(_told) > 1 or not _deferring:
        raise KeyboardInterrupt
