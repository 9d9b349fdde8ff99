"""Poisson bootstrap: intervals of means over queries, from sums.

In a resample of `n` queries with replacement, the count of each query is approximately Poisson
distributed with mean 1. So a resample is a weighted sum, and the sums of parts of the data can be
added: only sums are stored. The weights of a query depend only on its key, so they are the same for
all metrics and slices, in any order of the queries.

Reference:
    [Chamandy et al., Estimating uncertainty for massive data streams, 2012](
    https://research.google/pubs/estimating-uncertainty-for-massive-data-streams/).
"""

import dataclasses
import math
from collections.abc import Iterable

import apache_beam as beam
import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95

_CHUNK = 256  # queries weighted at once
_STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_UPTO = np.cumsum([math.exp(-1.0) / math.factorial(k) for k in range(18)])[:-1]


@dataclasses.dataclass(frozen=True)
class Resampled:
    """Sums over queries, plain and in each resample.

    Args:
        queries: Number of queries.
        sums: Sum of each value, `[values]`.
        weights: Number of queries of each resample, `[resamples]`.
        weighted: Sum of each value in each resample, `[resamples, values]`.
    """

    queries: int
    sums: np.ndarray
    weights: np.ndarray
    weighted: np.ndarray

    def __add__(self, other: "Resampled") -> "Resampled":
        mine, theirs = vars(self), vars(other)
        return Resampled(**{name: mine[name] + theirs[name] for name in mine})

    def mean(self) -> np.ndarray:
        """Means of the values, `[values]`."""
        return self.sums / self.queries

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the 95 % percentile interval of the mean of each value, `[values]` each."""
        drawn = self.weights > 0.0
        means = self.weighted[drawn] / self.weights[drawn, None]
        tail = 50.0 * (1.0 - CONFIDENCE)
        low, high = np.percentile(means, [tail, 100.0 - tail], axis=0)
        return low, high


def resampled(
    keys: np.ndarray, values: np.ndarray, *, seed: int, resamples: int = RESAMPLES
) -> Resampled:
    """Sums values over queries, plain and resampled.

    Args:
        keys: A number for each query, uint64 `[queries]`, which determines its weights.
        values: Values of each query, `[queries, values]`.
        seed: Seed of the weights.
        resamples: Number of resamples.
    """
    total = _nothing(values.shape[1], resamples)
    for start in range(0, len(keys), _CHUNK):
        part = values[start : start + _CHUNK].astype(np.float64)
        weights = _weights(keys[start : start + _CHUNK], seed, resamples)
        total += Resampled(len(part), part.sum(axis=0), weights.sum(axis=0), weights.T @ part)
    return total


class Bootstrap(beam.CombineFn):
    """Beam combiner from `(keys, values)` of some queries to `Resampled` of all.

    Args:
        num_values: Number of values per query.
        seed: Seed of the weights.
    """

    def __init__(self, num_values: int, seed: int) -> None:
        self.num_values, self.seed = num_values, seed

    def create_accumulator(self) -> Resampled:
        return _nothing(self.num_values, RESAMPLES)

    def add_input(
        self, accumulator: Resampled, element: tuple[np.ndarray, np.ndarray]
    ) -> Resampled:
        return accumulator + resampled(*element, seed=self.seed)

    def merge_accumulators(self, accumulators: Iterable[Resampled]) -> Resampled:
        return sum(accumulators, self.create_accumulator())

    def extract_output(self, accumulator: Resampled) -> Resampled:
        return accumulator


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Returns a pseudo-random number for each number: SplitMix64.

    Args:
        numbers: uint64, of any shape.

    Example:
        >>> mixed(np.array([0x9E3779B97F4A7C15], np.uint64))  # the first of the seed 0
        array([16294208416658607535], dtype=uint64)
    """
    for shift, factor in _MIXERS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def _weights(keys: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """Poisson draws of mean 1, `[queries, resamples]`."""
    starts = mixed(keys + mixed(np.full(1, seed, np.uint64)))
    steps = np.arange(1, resamples + 1, dtype=np.uint64) * _STEP
    uniform = (mixed(starts[:, None] + steps) >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(_UPTO, uniform, side="right").astype(np.float64)


def _nothing(num_values: int, resamples: int) -> Resampled:
    zeros = np.zeros([resamples, num_values])
    return Resampled(0, np.zeros(num_values), np.zeros(resamples), zeros)
