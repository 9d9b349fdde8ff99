"""Clusters: the addresses of the processes of a group."""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Self

from tfrank_sel.refusals import refusal

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
