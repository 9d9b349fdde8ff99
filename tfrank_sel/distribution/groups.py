"""Groups of processes that train or factorise together."""

import abc
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.arguments import Checked
from tfrank_sel.errors import refusal

if TYPE_CHECKING:
    import keras

Array: TypeAlias = NDArray[Any]
Indices: TypeAlias = NDArray[np.int64] | slice

ALL = slice(None)


class Group(Checked, abc.ABC):
    """Processes that solve one problem; each calls the same methods in the same order.

    Attributes:
        rank: Index of this process, from 0.
        size: Number of processes.
    """

    rank: int
    size: int

    @property
    def is_chief(self) -> bool:
        """Whether this process is the first one, which writes the results."""
        return self.rank == 0

    @abc.abstractmethod
    def total(self, values: Array) -> Array:
        """Returns the sum of the arrays of all processes, which have the same shape.

        The sum is bitwise equal in all processes.
        """

    @abc.abstractmethod
    def gather_rows(self, rows: Array, needed: Indices = ALL) -> Array:
        """Returns rows of all processes in their order, at the given increasing indices."""

    @abc.abstractmethod
    def pieces(self, rows: Array) -> Iterator[tuple[int, list[Array]]]:
        """Yields the start of a piece in the rows of each process, and the piece of each."""

    @abc.abstractmethod
    def in_step(self, optimizer: "keras.optimizers.Optimizer") -> "keras.optimizers.Optimizer":
        """Makes an optimizer use the mean gradient of all processes in each step.

        Each process calls `fit` of Keras with its share of every batch. With `n` processes and
        shares of equal size, a step takes the gradient

        ```
        g = 1 / n * sum_r g_r
        ```

        of the mean losses of the shares, which equals that of one process on the whole batch. All
        processes have bitwise equal weights. Clipping and weight averaging are applied after the
        mean, as in one process.

        Args:
            optimizer: Optimizer of a model compiled with `jit_compile=False`, because XLA cannot
                compile the exchange. It is saved under its own class.

        Returns:
            The same optimizer.
        """

    def wait(self) -> None:
        """Waits until all processes have called it."""
        self.total(np.zeros([1]))

    def first(self, values: Array) -> Array:
        """Returns the array of the first process."""
        return self.total(values if self.rank == 0 else np.zeros_like(values))

    def block(self, count: int) -> slice:
        """Returns the rows of this process if rows are distributed evenly."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)


class SingleProcess(Group):
    """A single process."""

    rank = 0
    size = 1

    def total(self, values: Array) -> Array:
        return values

    def gather_rows(self, rows: Array, needed: Indices = ALL) -> Array:
        return rows[needed]

    def pieces(self, rows: Array) -> Iterator[tuple[int, list[Array]]]:
        yield 0, [rows]

    def in_step(self, optimizer: "keras.optimizers.Optimizer") -> "keras.optimizers.Optimizer":
        return optimizer


VARIABLE = "TF_CONFIG"
ACCEPTED = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The addresses of the processes of a group.

    Args:
        addresses: Address of each process, `host:port`, starting with the chief.
        index: Index of this process among them.

    Raises:
        ValueError: If an address is malformed.
    """

    addresses: Sequence[str] = ("localhost:0",)
    index: int = 0

    def __post_init__(self) -> None:
        for address in self.addresses:
            host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
            if not (host and port.isdigit()):
                raise refusal("addresses must be `host:port`", repr(address))

    @property
    def is_of_one_machine(self) -> bool:
        """Whether all processes have the same host."""
        return len({address.rpartition(":")[0] for address in self.addresses}) == 1

    @classmethod
    def of_environment(cls) -> Self:
        """Returns the cluster described by `TF_CONFIG`; only this process if it is unset.

        Raises:
            ValueError: If it is malformed, or has tasks other than `chief` and `worker`.
        """
        text = os.environ.get(VARIABLE)
        if not text:
            return cls()
        try:
            parsed = json.loads(text)
            jobs, task = parsed["cluster"], parsed["task"]
            if jobs.keys() - {"chief", "worker"}:
                raise ValueError(f"unknown tasks {sorted(jobs.keys() - {'chief', 'worker'})}")
            first = len(jobs.get("chief", ())) if task["type"] == "worker" else 0
            if task["type"] not in jobs or not 0 <= task["index"] < len(jobs[task["type"]]):
                raise ValueError(f"the cluster has no task {task}")
            return cls([*jobs.get("chief", ()), *jobs.get("worker", ())], first + task["index"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            received = f"{text!r}, {type(error).__name__}: {error}"
            raise refusal(f"`{VARIABLE}` must be {ACCEPTED}", received) from error
