"""How many requests a server answers and how long they take, under TensorFlow Serving's names."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tfrank_sel.serving.status import ServingError

PATH = "/monitoring/prometheus/metrics"

# upper limits of the buckets, in microseconds
_BUCKETS = [10 * 1.8**i for i in range(33)]


class Metrics:
    """Counts requests and measures their latency; safe to use from many threads."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._counts = _Counts()
        self._registry.register(self._counts)
        self._latency = Histogram(
            ":tensorflow:serving:request_latency",
            "Time from a request to its answer, in microseconds",
            ["model_name", "API", "entrypoint"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

    @contextlib.contextmanager
    def request(self, model_name: str, api: str, entrypoint: str) -> Iterator[None]:
        """Observes one request.

        Args:
            model_name: Name of a model that is served; empty for any other, so that what clients
                make up does not fill the memory.
            api: What is asked, such as "Predict".
            entrypoint: "GRPC" or "REST".
        """
        start, status = time.perf_counter(), "OK"
        try:
            yield
        except ServingError as error:
            status = error.code.name
            raise
        finally:
            self._counts.add(model_name, status)
            microseconds = 1e6 * (time.perf_counter() - start)
            self._latency.labels(model_name, api, entrypoint).observe(microseconds)

    def text(self) -> bytes:
        """Returns all numbers in Prometheus' text format."""
        return generate_latest(self._registry)


class _Counts(Collector):
    """Requests by model and status; the library's own counter would name them `..._total`."""

    _NAME = ":tensorflow:serving:request_count"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, model_name: str, status: str) -> None:
        with self._lock:
            self._counts[model_name, status] += 1

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._NAME, "Requests by model and status", "untyped")
        with self._lock:
            counts = dict(self._counts)
        for (model_name, status), count in counts.items():
            labels = {"model_name": model_name, "status": status}
            metric.add_sample(self._NAME, labels, count)
        yield metric
