"""Throughput of one endpoint and of two, on all cores of this machine.

    python -m benchmarks.speed.serving_processes

Serves a ranker of the main job's size by one process and by two, each on ports of its own, and
sends REST requests of lists of 100 items of 136 features with wrk (Debian package `wrk`): 16
connections to each process, one thread of wrk for each. The turns are interleaved, and the table
shows medians: requests per second of all processes, their CPU time for each request, and the cores
that they and wrk kept busy.
"""

import argparse
import base64
import contextlib
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.speed.interleaved import machine
from benchmarks.speed.serving import LIST_SIZE, NUM_FEATURES, SPEC, cpu_seconds, published, served
from tfrank_sel.data import elwc

CONNECTIONS = 16
SCRIPT = """wrk.method = "POST"
wrk.body = [==[{}]==]
done = function(summary, latency, requests)
  local errors = summary.errors
  print("done " .. summary.requests .. " " .. errors.status + errors.read + errors.timeout)
end
"""


def sent(ports: Sequence[int], script: pathlib.Path, seconds: int) -> int:
    """Sends requests to all ports at once, and returns the number of answers."""
    running = [
        subprocess.Popen(
            ["wrk", f"-c{CONNECTIONS}", "-t1", f"-d{seconds}", "-s", str(script)]
            + [f"http://127.0.0.1:{port}/v1/models/ranker:predict"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for port in ports
    ]
    printed = [process.communicate()[0] for process in running]
    counts = [tuple(map(int, re.findall(r"^done (\d+) (\d+)$", x, re.M)[0])) for x in printed]
    if any(errors for _, errors in counts):
        raise RuntimeError(f"Expected answers without errors. Received: {printed}")
    return sum(answers for answers, _ in counts)


def bodies(features: np.ndarray) -> dict[str, str]:
    """A list as bytes and as numbers."""
    encoded = base64.b64encode(elwc.serialize(features, SPEC)).decode()
    numbers = np.round(features.astype(np.float64), 6).tolist()
    columns = {"features": [numbers], "mask": [[True]]}
    return {
        "ELWC in base64": json.dumps({"instances": [{"b64": encoded}]}),
        "dense JSON": json.dumps({"signature_name": "predict", "inputs": columns}),
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=5, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="number of turns")
    options = parser.parse_args()
    features = np.random.default_rng(0).normal(size=[LIST_SIZE, NUM_FEATURES]).astype(np.float32)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        version = published(folder)
        servers = [stack.enter_context(served(version)) for _ in range(2)]
        found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
        for turn in range(options.rounds + 1):  # the first warms up
            for way, body in bodies(features).items():
                (folder / "script.lua").write_text(SCRIPT.format(body))
                for count in (1, 2):
                    pids, _, ports = zip(*servers[:count], strict=True)
                    clients = resource.getrusage(resource.RUSAGE_CHILDREN)
                    before, began = sum(map(cpu_seconds, pids)), time.perf_counter()
                    answers = sent(ports, folder / "script.lua", options.seconds)
                    elapsed = time.perf_counter() - began
                    own = sum(map(cpu_seconds, pids)) - before
                    after = resource.getrusage(resource.RUSAGE_CHILDREN)
                    of_wrk = after.ru_utime + after.ru_stime - clients.ru_utime - clients.ru_stime
                    row = answers / elapsed, 1e3 * own / answers, (own + of_wrk) / elapsed
                    if turn:
                        found.setdefault((way, count), []).append(row)
    print(f"{machine()}, {os.cpu_count()} cores\n")
    print("| request | processes | requests/s | ratio | CPU ms a request | cores busy |")
    print("|---|---|---|---|---|---|")
    for (way, count), rows in found.items():
        rate, cost, busy = map(statistics.median, zip(*rows, strict=True))
        one = statistics.median(x[0] for x in found[way, 1])
        print(f"| {way} | {count} | {rate:.0f} | {rate / one:.2f} | {cost:.2f} | {busy:.2f} |")


if __name__ == "__main__":
    main()
