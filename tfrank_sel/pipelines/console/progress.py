"""Console output of a run: progress and final tables."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.text import Text

from tfrank_sel.commandline import printable
from tfrank_sel.pipelines.console import interrupts

if TYPE_CHECKING:
    from tfrank_sel.training.callbacks import Epoch


class Activity:
    """A part of a step, in progress."""

    def __init__(self, name: str, on_epoch: "Callable[[Epoch], None] | None" = None) -> None:
        self.name = name
        self._on_epoch = on_epoch
        self._doing = ""
        self._began = time.perf_counter()
        self._to_read, self._had_read = 0, 0
        self._end: float | None = None
        self.told: list[str] = []

    def show_activity(self, what: object) -> None:
        """Shows the current activity of the step, until the next one."""
        self._doing = str(what)

    def epoch(self, epoch: "Epoch") -> None:
        """Shows a finished epoch."""
        self.show_activity(epoch)
        self._end = time.perf_counter() + epoch.seconds_left
        if self._on_epoch is not None:
            self._on_epoch(epoch)

    def reads(self, files: Iterable[str], times: int = 1) -> None:
        """Estimates the remaining time from the bytes that this process reads, as counted by Linux.

        Args:
            files: The files that the step reads.
            times: Number of times that it reads them.
        """
        self._to_read = times * sum(os.path.getsize(file) for file in files if os.path.isfile(file))
        self._had_read, self._began = _octets_read(), time.perf_counter()

    def tell(self, what: str) -> None:
        """Stores a line to print at the end of the step."""
        self.told.append(what)

    @property
    def seconds(self) -> float:
        """Seconds since it began, or since it reads."""
        return time.perf_counter() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Seconds to its end by its last epoch; None without one."""
        return None if self._end is None else max(0.0, self._end - time.perf_counter())

    def __str__(self) -> str:
        seconds = self.seconds
        parts = [self._doing] if self._doing else []
        share = (_octets_read() - self._had_read) / self._to_read if self._to_read else 0.0
        if 0.02 < share < 1.0:
            left = seconds * (1.0 - share) / share
            parts.append(f"{share:.0%}, about {left:.0f} s left")
        return f"{self.name}: {', '.join([*parts, f'{seconds:.0f} s so far'])}"


def _octets_read() -> int:
    """Bytes that this process has read; 0 if the system does not count them."""
    try:
        with open("/proc/self/io", encoding="utf-8") as file:
            return int(file.readline().split()[1])
    except OSError:
        return 0


class Progress:
    """Shows the steps of a run and keeps their durations.

    Args:
        console: Console to write to: a terminal shows a line that is updated each second, other
            outputs get a new line after each `interval`.
        interval: Seconds between lines of a step.
        on_epoch: Called after each epoch of a training, if given.
    """

    def __init__(
        self,
        console: Console,
        interval: float = 30.0,
        on_epoch: "Callable[[Epoch], None] | None" = None,
    ) -> None:
        self.console, self.on_epoch = console, on_epoch
        self.interval = interval
        self.seconds: dict[str, float] = {}
        self._expected: dict[str, float] = {}

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Tells from now on the time that is left.

        Args:
            seconds: Duration of each step on a machine of reference, in order. The last ones that
                are shown, of a second or more, tell how fast this machine is.
        """
        self._expected = dict(seconds)
        if left := self._remaining_seconds():
            parts = ", ".join(f"{name} {_duration(x)}" for name, x in left.items())
            self.note(f"     about {_duration(sum(left.values()))} left: {parts}")

    def _remaining_seconds(self, step: Activity | None = None) -> dict[str, float]:
        """The seconds that each of the steps to come takes on this machine, and the rest of one."""
        left, pace = dict[str, float](), 1.0
        for name, seconds in self._expected.items():
            if name in self.seconds:
                left.clear()  # others before it are left out
                if seconds >= 1.0:
                    pace = 0.5 * (pace + self.seconds[name] / seconds)
            elif step is not None and name == step.name:
                rest = step.seconds_left
                left = {name: seconds - step.seconds / pace if rest is None else rest / pace}
            else:
                left[name] = seconds
        return {name: max(0.0, pace * seconds) for name, seconds in left.items()}

    def _told_left(self, step: Activity | None = None) -> str:
        """How long that takes in all; empty if it is unknown."""
        if left := self._remaining_seconds(step):
            return f", about {_duration(sum(left.values()))} left in all"
        rest = None if step is None else step.seconds_left
        return "" if rest is None else f", about {_duration(rest)} left"

    def skip(self, name: str) -> None:
        """Prints that a step is up to date."""
        self._print_step("kept", name, "up to date")

    def _print_step(self, state: str, name: str, how: str) -> None:
        self.console.print(Text.assemble((state, "green"), f" {name:18} {how}"))

    def note(self, what: str) -> None:
        """Prints a line."""
        self.console.out(what, highlight=False)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Activity]:
        """Shows a part of a step during the block, then its outcome and duration if it succeeds."""
        interrupts.check()
        began, ended = time.perf_counter(), threading.Event()
        step = Activity(name, self.on_epoch)
        with self.console.status(name) as status:
            watch = threading.Thread(target=self._watch, args=(step, status, ended), daemon=True)
            watch.start()
            try:
                yield step
            finally:
                ended.set()
                watch.join()
        self.seconds[name] = time.perf_counter() - began
        self._print_step("done", name, f"{self.seconds[name]:7.1f} s{self._told_left()}")
        for line in step.told:
            self.console.out(f"     {line}", style="dim", highlight=False)

    def _watch(self, step: Activity, status: Status, ended: threading.Event) -> None:
        """Updates the display of a step until it ends."""
        is_terminal = self.console.is_terminal
        while not ended.wait(1.0 if is_terminal else self.interval):
            if is_terminal:
                status.update(Text(printable(f"{step}{self._told_left(step)}")))
            else:
                self.console.out(f"     {step}{self._told_left(step)}", highlight=False)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600.0 else f"{seconds / 60.0:.0f} min"
