"""Handling of Ctrl-C and SIGTERM, even if the interrupted code swallows the exception.

TensorFlow and Keras catch all exceptions in some places, including `KeyboardInterrupt`, mostly
while they trace a model.
"""

import signal
from types import FrameType

_told: list[int] = []  # received signals


def listen() -> None:
    """Raises `KeyboardInterrupt` on SIGTERM and on SIGINT, unless that is ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def check() -> None:
    """Raises `KeyboardInterrupt` if a signal was received, repeatedly if necessary."""
    if _told:
        raise KeyboardInterrupt


def _stop(number: int, frame: FrameType | None) -> None:
    _told.append(number)
    raise KeyboardInterrupt
