"""A load test: clients that ask one after another, and what they saw."""

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
    """What clients saw of a server.

    Args:
        seconds: How long they asked.
        latencies: Seconds of each request that was answered.
        errors: How many requests ended with each code.
    """

    seconds: float
    latencies: np.ndarray
    errors: dict[str, int]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: float) -> float:
        """Returns the latency in seconds that so many percent of the answers did not exceed."""
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
    """Asks a server to rank lists, again and again.

    Args:
        address: Address of the server, as of a `Ranker`.
        model_name: Name of the model there.
        lists: What to rank; each client goes through them in turn.
        clients: How many ask at a time, each with a connection of its own.
        seconds: How long.
        on_progress: Called now and then with the seconds that have passed.

    Returns:
        What they saw.

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
