"""Groups of processes on this machine."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def configurations(count: int) -> list[str]:
    """Returns `TF_CONFIG` of each process of a group, on free ports."""
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in free:
            one.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in free]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]


def start(module: Sequence[str], count: int, **options: Any) -> list[subprocess.Popen[str]]:
    """Starts the processes of a group, which share the cores.

    Args:
        module: Name of a module to run, and its arguments.
        count: Number of processes.
        **options: As in `subprocess.Popen`.
    """
    threads = str(max(1, len(os.sched_getaffinity(0)) // count))
    shared = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_NUM_INTRAOP_THREADS": threads}
    return [
        subprocess.Popen(
            [sys.executable, "-m", *module],
            env={**shared, "TF_CONFIG": configuration},
            text=True,
            **options,
        )
        for configuration in configurations(count)
    ]


def run(module: Sequence[str], count: int, timeout: float = 300.0) -> list[tuple[int, str, str]]:
    """Returns status, output and errors of each process of a group."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = start(module, count, **pipes)
    try:
        texts = [process.communicate(timeout=timeout) for process in processes]
        return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]
    finally:
        for process in processes:
            process.kill()
