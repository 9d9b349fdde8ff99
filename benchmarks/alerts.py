"""Alerts that fire and resolve in a real Prometheus and Alertmanager.

    python -m benchmarks.alerts

Needs `prometheus` and `prometheus-alertmanager` (or `alertmanager`) on the PATH, as Debian's
packages of these names install them. Serves a small model, and gives the deployment's own rules,
with times shortened to seconds, to a Prometheus that scrapes it. Then the server is troubled in
each way that its own metrics can show. Prints when Alertmanager told its webhook that the alert
fires, and that it has resolved. Status 1 if one did not within a minute.
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import yaml

from benchmarks.robustness import attacks
from benchmarks.robustness.serving_attacks import Server
from benchmarks.speed.serving import served
from tests.serving.half_plus import save
from tfrank_sel.serving import monitoring
from tfrank_sel.serving.deployment import folder

WAIT = 60.0
_SHORT = {"5m": "5s", "10m": "8s", "15m": "8s", "30m": "8s", "1h": "8s", "6h": "10s", "8d": "20s"}


class Told:
    """A receiver of Alertmanager's webhook: the alerts that fire now."""

    def __init__(self) -> None:
        self.firing: set[str] = set()
        told = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                for alert in body["alerts"]:
                    change = told.firing.add if alert["status"] == "firing" else told.firing.discard
                    change(alert["labels"]["alertname"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


def shortened(rules: str) -> str:
    """Returns the rules with seconds instead of minutes, hours and days."""
    for long, short in _SHORT.items():
        rules = re.sub(rf"(\[|offset |for: ){long}\b", rf"\g<1>{short}", rules)
    return re.sub(r"for: 1m\b", "for: 2s", rules)


@contextlib.contextmanager
def process(*command: object) -> Iterator[None]:
    """Runs a program meanwhile."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(list(map(str, command)), stdout=quiet, stderr=quiet) as running:
        try:
            yield
        finally:
            running.terminate()


@contextlib.contextmanager
def monitored(work: pathlib.Path, port: int) -> Iterator[Told]:
    """Scrapes a server and sends alerts to a webhook meanwhile."""
    told, prometheus, manager = Told(), free_port(), free_port()
    folder.render(work / "deployment", "half", 1)
    rules = shortened((work / "deployment" / "alerts.yml").read_text())
    (work / "alerts.yml").write_text(rules)
    config = yaml.safe_load((work / "deployment" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["alerting"]["alertmanagers"][0]["static_configs"] = [
        {"targets": [f"127.0.0.1:{manager}"]}
    ]
    config["scrape_configs"] = [
        {
            "job_name": "half",
            "metrics_path": monitoring.PATH,
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        }
    ]
    (work / "prometheus.yml").write_text(yaml.safe_dump(config))
    route = yaml.safe_load((work / "deployment" / "alertmanager.yml").read_text())
    for child in (route["route"], *route["route"]["routes"]):
        child.update(group_wait="1s", group_interval="1s")
    for receiver in route["receivers"]:
        webhook = receiver["webhook_configs"][0]
        del webhook["url_file"]  # Debian's Alertmanager (0.25) does not know it
        webhook["url"] = f"http://127.0.0.1:{told.server.server_port}/"
    (work / "alertmanager.yml").write_text(yaml.safe_dump(route))
    name = shutil.which("prometheus-alertmanager") or "alertmanager"
    with (
        process(
            name,
            f"--config.file={work / 'alertmanager.yml'}",
            f"--storage.path={work / 'alerts'}",
            f"--web.listen-address=127.0.0.1:{manager}",
            "--cluster.listen-address=",
        ),
        process(
            "prometheus",
            f"--config.file={work / 'prometheus.yml'}",
            f"--storage.tsdb.path={work / 'series'}",
            f"--web.listen-address=127.0.0.1:{prometheus}",
        ),
    ):
        yield told


def seconds_until(look: Callable[[], bool], meanwhile: Callable[[], object]) -> float | None:
    """Returns how long it takes until a look is true; None if longer than a minute."""
    start = time.monotonic()
    while time.monotonic() < start + WAIT:
        meanwhile()
        if look():
            return time.monotonic() - start
        time.sleep(0.05)
    return None


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        base = work / "half"
        save(base, 1, bias=2)
        with (
            served(base / "1", "--file-system-poll-wait-seconds=0.5") as started,
            monitored(work, started[2]) as told,
        ):
            server = Server(*started, base)

            def good() -> None:
                server.by_grpc()
                server.by_rest()

            def half_fail() -> None:
                good()
                server.late()

            def half_bad() -> None:
                good()
                attacks.unreadable(*server.ports)

            def broken() -> None:
                good()
                (base / "2").mkdir(exist_ok=True)

            def mended() -> None:
                good()
                shutil.rmtree(base / "2", ignore_errors=True)

            def stop() -> None:
                os.kill(server.pid, signal.SIGSTOP)

            def go_on() -> None:
                os.kill(server.pid, signal.SIGCONT)
                good()

            troubles = {
                "ServerErrors": (half_fail, good),
                "BadRequests": (half_bad, good),
                "VersionDoesNotLoad": (broken, mended),
                "NoTraffic": (lambda: time.sleep(0.5), good),
                "ServerDown": (stop, go_on),
            }
            print("| alert | fires after, s | resolved after, s |\n|---|---|---|")
            failed = False
            for alert, (trouble, relief) in troubles.items():
                seconds_until(lambda: not told.firing, good)
                fired = seconds_until(lambda name=alert: name in told.firing, trouble)
                resolved = seconds_until(lambda name=alert: name not in told.firing, relief)
                cells = ("never" if x is None else f"{x:.1f}" for x in (fired, resolved))
                print(f"| {alert} | {' | '.join(cells)} |", flush=True)
                failed |= fired is None or resolved is None
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
