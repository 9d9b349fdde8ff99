"""Interleaved timing of functions, for ratios that are robust to drift of the machine's speed.

Times are CPU seconds of the process on one core: another program on that core does not count.
"""

import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Call = Callable[[], object]
Name = TypeVar("Name", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a function took.

    Args:
        first: Seconds (CPU seconds by default) of the first call, which compiles.
        seconds: Median seconds of the calls after it.
    """

    first: float
    seconds: float


def timings(
    functions: Mapping[Name, Call],
    rounds: int = 30,
    clock: Callable[[], float] = time.process_time,
) -> dict[Name, Timing]:
    """Calls each function once, then all of them in turn, `rounds` times; `clock` returns seconds.

    A turn is two calls, the second of which counts: the first finds caches and heap as another
    function left them, which can double its time.
    """
    first = {name: _seconds(function, clock) for name, function in functions.items()}
    calls: dict[Name, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            function()
            calls[name].append(_seconds(function, clock))
    return {name: Timing(first[name], statistics.median(calls[name])) for name in functions}


def use_one_core() -> None:
    """Keeps the process on one core; call it before TensorFlow starts its threads."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def processor() -> str:
    """Names the processor and the number of its cores."""
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "CPU")
    return f"{model}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """The versions of what every benchmark stands on."""
    names = ("TensorFlow", "Keras", "NumPy")
    installed = {name: importlib.metadata.version(name) for name in names}
    return {"Python": platform.python_version(), **installed}


def machine() -> str:
    """Names the processor and the versions, for the head of a table."""
    return ", ".join([processor(), *(f"{name} {version}" for name, version in versions().items())])


def _seconds(function: Call, clock: Callable[[], float]) -> float:
    began = clock()
    function()
    return clock() - began
