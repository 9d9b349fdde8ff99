"""Clusters: the addresses of the workers of a training, their connections, and local workers."""

import contextlib
import dataclasses
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from tfrank_sel.distribution.workers import LostWorkerError, Workers

VARIABLE = "TF_CONFIG"
ACCEPTED = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
INDEX = struct.Struct("!I")
PAUSE = 0.5  # seconds between attempts to connect
GREETING = 10.0  # seconds for a worker to send its index


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a training.

    Args:
        addresses: Address of each worker, `host:port`, starting with the chief, to which the others
            connect.
        index: Number of this process among them.

    Raises:
        ValueError: If an address or `index` is malformed.
    """

    addresses: Sequence[str] = ("localhost:0",)
    index: int = 0

    def __post_init__(self) -> None:
        for address in self.addresses:
            host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
            if not (host and port.isdigit()):
                raise ValueError(f"addresses must be `host:port`. Received: {address!r}")
        if not 0 <= self.index < len(self.addresses):
            raise ValueError(
                f"the index of a task must be less than the number of workers, "
                f"{len(self.addresses)}, and at least 0. Received: {self.index}"
            )

    @property
    def is_of_one_machine(self) -> bool:
        """Whether all workers have the same host."""
        return len({address.rpartition(":")[0] for address in self.addresses}) == 1

    @classmethod
    def of_environment(cls) -> Self:
        """Returns the cluster described by `TF_CONFIG`; only this process if it is unset.

        Raises:
            ValueError: If it is malformed, or has tasks other than `chief` and `worker`.

        Example:
            >>> import os
            >>> os.environ["TF_CONFIG"] = '''{"cluster": {"worker": ["10.0.0.1:2222",
            ...     "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 1}}'''
            >>> distribution.Cluster.of_environment().index
            1
            >>> del os.environ["TF_CONFIG"]
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
            raise ValueError(f"`{VARIABLE}` must be {ACCEPTED}. Received: {received}") from error

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that describe this cluster for `of_environment`."""
        task = {"type": "worker", "index": self.index}
        value = {"cluster": {"worker": list(self.addresses)}, "task": task}
        return {VARIABLE: json.dumps(value)}

    @contextlib.contextmanager
    def join(self, keep_waiting: Callable[[], object] = lambda: None) -> Iterator[Workers]:
        """Waits for the other workers, and provides them during the block.

        The chief waits for all others to connect, and each of the others for the chief.

        Args:
            keep_waiting: Called periodically while waiting. If it raises an exception, the waiting
                ends.

        Raises:
            LostWorkerError: If the block fails because another worker ended. All workers must then
                start again.
        """
        host, _, port = self.addresses[0].rpartition(":")
        if len(self.addresses) == 1:
            yield Workers()
        elif self.index:
            chief = self._connected((host, int(port)), keep_waiting)
            with Workers.connected(self.index, len(self.addresses), [chief]) as workers:
                yield workers
        else:
            with socket.create_server(("", int(port))) as door:
                peers = greeted(door, len(self.addresses), keep_waiting)
            with Workers.connected(0, len(self.addresses), peers) as workers:
                yield workers

    def _connected(self, chief: Any, keep_waiting: Callable[[], object]) -> socket.socket:
        while True:
            try:
                connection = socket.create_connection(chief, timeout=GREETING)
                connection.sendall(INDEX.pack(self.index))
                connection.settimeout(None)
                return connection
            except OSError:
                keep_waiting()
                time.sleep(PAUSE)


def greeted(
    door: socket.socket, count: int, keep_waiting: Callable[[], object]
) -> list[socket.socket]:
    """Returns the connections of all workers except the chief, in their order.

    Args:
        door: A listening socket.
        count: Number of workers.
        keep_waiting: Called periodically, as in `Cluster.join`.
    """
    connections: dict[int, socket.socket] = {}
    door.settimeout(PAUSE)
    with contextlib.ExitStack() as stack:
        while len(connections) < count - 1:
            try:
                peer, _ = door.accept()
                peer.settimeout(GREETING)
                [index] = INDEX.unpack(peer.recv(INDEX.size, socket.MSG_WAITALL))
                peer.settimeout(None)
            except (TimeoutError, ConnectionError, struct.error):
                keep_waiting()
                continue
            if 0 < index < count:  # a worker that connects again was restarted
                connections[index] = stack.enter_context(peer)
        stack.pop_all()
    return [connections[index] for index in range(1, count)]


LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def launch(command: Sequence[str], count: int) -> Iterator[Workers]:
    """Starts the other workers on this machine; this process is the chief.

    They are stopped at the end of the block.

    Args:
        command: Command of a worker, which calls `Cluster.of_environment().join()`. It gets
            `TF_CONFIG`, and its number of cores as `TF_NUM_INTRAOP_THREADS`.
        count: Number of workers, this process included.

    Raises:
        LostWorkerError: If a worker ends before the block.
    """
    started: list[subprocess.Popen[bytes]] = []

    def check() -> None:
        for index, process in enumerate(started, start=1):
            if process.poll() is not None:
                raise LostWorkerError(f"worker {index} ended with status {process.returncode}")

    threads = str(max(1, len(os.sched_getaffinity(0)) // count))
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        addresses = [f"{LOOPBACK}:{door.getsockname()[1]}", *[f"{LOOPBACK}:0"] * (count - 1)]
        for index in range(1, count):
            environment = Cluster(addresses, index).environment()
            process = subprocess.Popen(
                command,
                env={**os.environ, "TF_NUM_INTRAOP_THREADS": threads, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C stops it through the chief
            )
            started.append(process)
            stack.callback(process.wait)
            stack.callback(process.kill)
        peers = greeted(door, count, check)
        with Workers.connected(0, count, peers) as workers:
            yield workers
