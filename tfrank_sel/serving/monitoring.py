"""Counts and latencies of requests, under TensorFlow Serving's metric names."""

import contextlib
import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tfrank_sel.serving.status import Code, ServingError, map_errors

PATH = "/monitoring/prometheus/metrics"
HEALTH = "/healthz"

# upper limits of the buckets, in microseconds
_BUCKETS = [10 * 1.8**i for i in range(33)]


class Metrics:
    """Counts requests and measures their latency; safe to use from many threads."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._counts = self._by_status(":tensorflow:serving:request_count", "model_name")
        # interleaved lists that could not be logged
        self.lost = self._by_status(":tfrank_sel:serving:lost_list_count", "model_name")
        # failed checks of the folder of a model, by its name, or of `models.config`
        self.rounds = self._by_status(":tfrank_sel:serving:failed_round_count", "followed")
        # attempts to load a version, by its path or URL
        self.loads = self._by_status(":tensorflow:cc:saved_model:load_attempt_count", "model_path")
        self._latency = Histogram(
            ":tensorflow:serving:request_latency",
            "Time from a request to its answer, in microseconds",
            ["model_name", "API", "entrypoint"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def _by_status(self, name: str, label: str) -> "_ByLabels":
        counts = _ByLabels(name, label, "status")
        self._registry.register(counts)
        return counts

    @contextlib.contextmanager
    def request(self, api: str, entrypoint: str, model_name: str = "") -> Iterator["Observation"]:
        """Observes one request: counts it, and measures its latency if it succeeds.

        Args:
            api: Method, such as "Predict"; empty for a status.
            entrypoint: "GRPC" or "REST".
            model_name: Name of a served model; empty for any other, so that unknown names do not
                use memory.

        Yields:
            The observation. Set its model name as soon as it is known.

        Raises:
            ServingError: For any exception, with the code that was counted.
        """
        start, seen, code = time.perf_counter(), Observation(model_name), Code.OK
        try:
            with map_errors():
                yield seen
            microseconds = 1e6 * (time.perf_counter() - start)
            self._latency.labels(seen.model_name, api, entrypoint).observe(microseconds)
        except ServingError as error:
            code = error.code
            raise
        except BaseException:
            # The client went away, which cancels its request.
            code = Code.CANCELLED
            raise
        finally:
            self._counts.add(seen.model_name, code.name)

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        # `prometheus_client` would append `_total` to the name of what it knows to be a counter.
        return generate_latest(self._registry).replace(b" untyped\n", b" counter\n")


@dataclasses.dataclass
class Observation:
    """A request under observation."""

    model_name: str


class _ByLabels(Collector):
    """Counts by two labels; `prometheus_client`'s counter would append `_total` to its name.

    Args:
        name: Name of the metric.
        labels: Its two labels.
    """

    def __init__(self, name: str, *labels: str) -> None:
        self._name, self._labels = name, labels
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, ...]] = Counter()

    def add(self, *values: str) -> None:
        with self._lock:
            self._counts[values] += 1

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._name, f"Counts by {' and '.join(self._labels)}", "untyped")
        with self._lock:
            counts = dict(self._counts)
        for values, count in counts.items():
            metric.add_sample(self._name, dict(zip(self._labels, values, strict=True)), count)
        yield metric
