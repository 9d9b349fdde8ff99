"""Latency, failures and memory of a server while it is attacked.

    python -m benchmarks.robustness.serving_attacks --seconds 5

Serves a small model in a process of its own. For each attack of `attacks`, one client by gRPC and
one by REST ask first undisturbed, then while another process attacks. Prints the 99 % latency of
both times, the good requests that failed or got another answer, and the resident memory before,
at its highest, and 2 seconds after the attack. `--soak SECONDS` sends all attacks in turn for
so long, while a new version is published every 5 seconds.
"""

import argparse
import contextlib
import dataclasses
import http.client
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import numpy as np

from benchmarks.robustness import attacks
from benchmarks.robustness.serving_faults import resident_bytes
from benchmarks.speed.serving import served
from tests.serving.half_plus import save
from tfrank_sel import export

MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Result:
    """Measurements of one attack.

    Args:
        quiet: Seconds of each good request before the attack.
        during: The same during the attack.
        failed: Reasons of the good requests that failed during the attack.
        before: Resident bytes before the attack.
        memory: Those during the attack, every 20 ms.
        after: Those 2 seconds after it.
        codes: Status and count of the requests that the server's metrics gained.
    """

    quiet: list[float]
    during: list[float]
    failed: list[str]
    before: int
    memory: list[int]
    after: int
    codes: Counter[str]

    def quarters(self) -> list[int]:
        """Median resident bytes of each quarter of the attack."""
        return [int(np.median(part)) for part in np.array_split(self.memory, 4)]


class Server:
    """A running server and what is measured of it."""

    def __init__(self, pid: int, grpc_port: int, rest_port: int, base: pathlib.Path) -> None:
        self.pid, self.ports, self.base = pid, (grpc_port, rest_port), base
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")

    def by_grpc(self) -> str:
        """Asks once; returns what is wrong, if anything."""
        request = attacks.predict_request(1, values=b"\x2d\x00\x00\x00\x40")  # float_val: 2.0
        try:
            answer = self._channel.unary_unary(attacks.METHOD)(request, timeout=10)
        except grpc.RpcError as error:
            return f"gRPC {error.code().name} {error.details()}"
        return "" if b"\x2a\x04\x00\x00\x40\x40" in answer else "gRPC: another answer"  # 3.0

    def by_rest(self) -> str:
        """Asks once; returns what is wrong, if anything."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[1], timeout=10)
        with contextlib.closing(connection):
            try:
                connection.request("POST", attacks.PREDICT, b'{"instances": [2.0]}')
                response = connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, http.client.HTTPException) as error:
                return f"REST {error!r}"
        return "" if answer == {"predictions": [3.0]} else f"REST {response.status} {answer}"

    def late(self) -> None:
        """Asks for what takes longer than the deadline: the server counts an error of its own."""
        request = attacks.predict_request(1, values=b"\x2d\x00\x00\x00\x00", signature=b"slow")
        call = self._channel.stream_unary(attacks.METHOD)
        with contextlib.suppress(grpc.RpcError):
            call(iter([request]), timeout=0.05)

    def counts(self) -> Counter[str]:
        """Returns the requests that its metrics know, by status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[1], timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/monitoring/prometheus/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        found: Counter[str] = Counter()
        for line in lines:
            if line.startswith(":tensorflow:serving:request_count"):
                status = line.split('status="')[1].split('"')[0]
                found[status] += int(float(line.rsplit(" ", 1)[1]))
        return found

    @contextlib.contextmanager
    def asked(self) -> Iterator[tuple[list[float], list[str]]]:
        """Asks by both protocols meanwhile; yields latencies and failures."""
        latencies: list[float] = []
        failed: list[str] = []
        stopped = threading.Event()

        def ask(once: Callable[[], str]) -> None:
            while not stopped.is_set():
                start = time.perf_counter()
                wrong = once()
                latencies.append(time.perf_counter() - start)
                if wrong:
                    failed.append(wrong)
                time.sleep(0.005)

        threads = [threading.Thread(target=ask, args=(x,)) for x in (self.by_grpc, self.by_rest)]
        for thread in threads:
            thread.start()
        try:
            yield latencies, failed
        finally:
            stopped.set()
            for thread in threads:
                thread.join()

    def attacked(self, name: str, seconds: float, pause: float = 0.05) -> Result:
        """Measures one attack, or "all" of them in turn."""
        with self.asked() as (quiet, _):
            time.sleep(min(seconds, 5.0))
        counted, before = self.counts(), resident_bytes(self.pid)
        memory: list[int] = []
        arguments = [name, *map(str, (*self.ports, seconds, pause))]
        command = [sys.executable, "-m", "benchmarks.robustness.attacks", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            with self.asked() as (during, failed):
                while attacker.poll() is None:
                    time.sleep(0.02)
                    memory.append(resident_bytes(self.pid))
        time.sleep(2.0)
        gained = Counter(self.counts())
        gained.subtract(counted)
        after = resident_bytes(self.pid)
        return Result(quiet, during, failed, before, memory, after, +gained)


@contextlib.contextmanager
def running(*options: str) -> Iterator[Server]:
    """Serves a small model."""
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder, "half")
        save(base, 1, bias=2)
        with served(base / "1", *options) as started:
            server = Server(*started, base)
            for _ in range(100):
                server.by_grpc(), server.by_rest()
            yield server


@contextlib.contextmanager
def swapped(base: pathlib.Path, seconds: float = 5.0) -> Iterator[list[int]]:
    """Publishes a copy of version 1 every few seconds meanwhile, and removes old ones."""
    published: list[int] = []
    stopped = threading.Event()

    def publish() -> None:
        for version in itertools.count(2):
            if stopped.wait(seconds):
                return
            newest = str(max(export.versions(base)))
            export.publish(base / newest, base, version)
            export.remove_old(base, keep=2)
            published.append(version)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield published
    finally:
        stopped.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="time of each attack")
    parser.add_argument("--only", nargs="*", default=list(attacks.ATTACKS), help="attacks")
    parser.add_argument("--soak", type=float, default=0.0, help="seconds of all attacks in turn")
    settings = parser.parse_args()
    heads = ["attack", "p99 before, ms", "p99 during", "worst", "good answered", "good failed"]
    heads += ["MiB before", "most", "after", "counted"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    if settings.soak:
        with (
            running("--file-system-poll-wait-seconds=0.5") as server,
            swapped(server.base) as swaps,
        ):
            found = server.attacked("all", settings.soak)
            print(f"| all | {' | '.join(row(found))} |")
            quarters = ", ".join(f"{x / MIB:.0f}" for x in found.quarters())
            print(f"{len(swaps)} versions were published; MiB, median by quarter: {quarters}")
            print(*found.failed[:10], sep="\n")
        return
    for name in settings.only:
        with running() as server:
            try:
                found = server.attacked(name, settings.seconds)
                cells = [name, *row(found)]
            except OSError as error:
                cells = [name, f"the server does not answer: {error!r}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def row(found: Result) -> list[str]:
    """Returns the cells of a table."""
    quiet, during = (1e3 * np.percentile(x, 99) for x in (found.quiet, found.during))
    failed = len(found.failed)
    cells = [f"{quiet:.1f}", f"{during:.1f}", f"{1e3 * max(found.during):.0f}"]
    cells += [str(len(found.during) - failed), str(failed)]
    cells += [f"{x / MIB:.0f}" for x in (found.before, max(found.memory), found.after)]
    return [*cells, ", ".join(f"{status} {count}" for status, count in found.codes.items())]


if __name__ == "__main__":
    main()
