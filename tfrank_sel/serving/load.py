"""Load test: concurrent clients, and the latencies and errors that they observe."""

import dataclasses
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from tfrank_sel.data import ItemList
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.status import ServingError


@dataclasses.dataclass(frozen=True)
class Load:
    """Latencies and errors of a load test.

    Args:
        seconds: Duration of the test.
        latencies: Seconds of each successful request.
        errors: Number of requests by error code.
    """

    seconds: float
    latencies: np.ndarray
    errors: dict[str, int]

    @property
    def rate(self) -> float:
        """Successful requests per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: float) -> float:
        """Returns a percentile of the latencies in seconds."""
        return float(np.percentile(self.latencies, percent)) if self.latencies.size else np.nan


def run(
    address: str,
    model_name: str,
    lists: Sequence[ItemList],
    *,
    clients: int,
    seconds: float,
    on_progress: Callable[[float], None] = lambda elapsed: None,
) -> Load:
    """Sends lists to a server repeatedly, to rank them.

    Args:
        address: Address of the server, as in `Ranker`.
        model_name: Name of the model on the server.
        lists: Lists to rank; each client sends them in turn.
        clients: Number of concurrent clients, each with its own connection.
        seconds: Duration of the test.
        on_progress: Called regularly with the seconds since the start.

    Returns:
        Latencies and errors.

    Raises:
        ValueError: If there is no list or no client.
    """
    if not lists or clients < 1:
        raise ValueError(
            "`lists` must hold a list, and `clients` be positive. "
            f"Received: {len(lists)} lists, clients={clients}"
        )
    latencies: list[float] = []
    errors: Counter[str] = Counter()
    start = time.perf_counter()

    def ask(first: int) -> None:
        with Ranker(address, model_name) as ranker:
            for position in itertools.count(first):
                if time.perf_counter() - start >= seconds:
                    return
                asked = lists[position % len(lists)]
                began = time.perf_counter()
                try:
                    ranker.rank(asked.features, asked.doc_ids)
                    latencies.append(time.perf_counter() - began)
                except ServingError as error:
                    errors[error.code.name] += 1

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)
            on_progress(time.perf_counter() - start)
    return Load(time.perf_counter() - start, np.array(latencies), dict(errors))
