"""Workers on this machine."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence

from tfrank_sel.distribution.cluster import Cluster, greeted
from tfrank_sel.distribution.workers import LostWorkerError, Workers

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
