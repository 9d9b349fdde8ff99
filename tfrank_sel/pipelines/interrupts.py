"""Ctrl-C and SIGTERM, also where the code that they interrupt swallows the exception.

TensorFlow and Keras catch every exception in places, `KeyboardInterrupt` among them, most of all
while they trace a model.
"""

import signal
from types import FrameType

_told: list[int] = []  # signals that came


def listen() -> None:
    """Raises `KeyboardInterrupt` on SIGTERM and on SIGINT, unless that is ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def check() -> None:
    """Raises `KeyboardInterrupt` if a signal has come, again if need be."""
    if _told:
        raise KeyboardInterrupt


def _stop(number: int, frame: FrameType | None) -> None:
    _told.append(number)
    raise KeyboardInterrupt
