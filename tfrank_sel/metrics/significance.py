"""Intervals of means over queries by the Poisson bootstrap, and tests of paired differences.

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
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESAMPLES = 2000
CONFIDENCE = 0.95

_DRAWN = 2**17  # weights drawn at once: these fit into a cache
_CHUNK, _SIGNS = 1024, 2**24  # queries with signs at once, and their signs
# The increment of SplitMix64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
# P(count <= 0), P(count <= 1), ... of a Poisson count: the number of these up to u is a draw
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
        # a resample without a query has no mean; if none has one, only that of all is known
        drawn = self.weights > 0.0
        means = (
            self.weighted[drawn] / self.weights[drawn, None] if drawn.any() else self.mean()[None]
        )
        tail = 50.0 * (1.0 - CONFIDENCE)
        low, high = np.percentile(means, [tail, 100.0 - tail], axis=0)
        return low, high


def resample(
    keys: np.ndarray, values: np.ndarray, *, seed: int, resamples: int = RESAMPLES
) -> Resampled:
    """Sums values over queries, plain and resampled.

    Args:
        keys: A number for each query, uint64 `[queries]`, which determines its weights.
        values: Values of each query, `[queries, values]`.
        seed: Seed of the weights.
        resamples: Number of resamples.
    """
    whole = {"": (np.arange(len(keys)), values)}
    return resampled_parts(keys, whole, seed=seed, resamples=resamples)[""]


def resampled_parts(
    keys: np.ndarray,
    parts: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, Resampled]:
    """Sums values over parts of the queries, plain and resampled with the same weights.

    Args:
        keys: As in `resample`.
        parts: For each part, by name, the indices of its queries, which increase, and their values
            `[queries of the part, values]`.
        seed: As in `resample`.
        resamples: As in `resample`.
    """
    sums = {name: empty_sums(x.shape[1], resamples) for name, (_, x) in parts.items()}
    chunk = max(_DRAWN // resamples, 1)
    for start in range(0, len(keys), chunk):
        drawn = poisson_weights(keys[start : start + chunk], seed, resamples)
        for name, (rows, values) in parts.items():
            in_chunk = slice(*np.searchsorted(rows, [start, start + chunk]))
            if in_chunk.start < in_chunk.stop:
                part, weights = values[in_chunk].astype(np.float64), drawn[rows[in_chunk] - start]
                added = part.sum(axis=0), weights.sum(axis=0), weights.T @ part
                sums[name] += Resampled(len(part), *added)
    return sums


def splitmix64(numbers: np.ndarray) -> np.ndarray:
    """Returns a pseudo-random number for each number, by the hash SplitMix64.

    Args:
        numbers: uint64, of any shape.

    Example:
        >>> splitmix64(np.array([0x9E3779B97F4A7C15], np.uint64))  # the first of the seed 0
        array([16294208416658607535], dtype=uint64)
    """
    for shift, factor in _MIXERS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def random_bits(keys: np.ndarray, seed: int, count: int) -> np.ndarray:
    """Returns pseudo-random uint64 of each key, `[keys, count]`.

    Args:
        keys: uint64 `[keys]`.
        seed: Seed of the numbers.
        count: How many of each key.
    """
    starts = splitmix64(keys + splitmix64(np.full(1, seed, np.uint64)))
    steps = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    return splitmix64(starts[:, None] + steps)


def poisson_weights(keys: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """Returns the weight of each query in each resample, `[queries, resamples]`, as in `resample`.

    They suffice for what is no sum over queries, such as the parameters of a model.
    """
    # the 53 bits of a float64 in [0, 1)
    uniform = (random_bits(keys, seed, resamples) >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(_UPTO, uniform, side="right").astype(np.float64)


def empty_sums(num_values: int, resamples: int = RESAMPLES) -> Resampled:
    """Returns the sums over no query."""
    zeros = np.zeros([resamples, num_values])
    return Resampled(0, np.zeros(num_values), np.zeros(resamples), zeros)


def t_test(differences: Array) -> Array:
    """Computes the two-sided p value of the paired t test.

    Args:
        differences: The differences, `[queries, values]`. For a single query, p is 1.

    Returns:
        The p value of each column, `[values]`.

    Example:
        >>> t_test(np.array([[1.0], [2.0], [3.0], [0.0]])).round(4)
        array([0.1027])
    """
    from tfrank_sel import numerics as xp  # here, as the commands of clicks do not need it

    count, mean = len(differences), differences.mean(axis=0)
    if count < 2:
        return np.ones_like(mean)
    error = differences.std(axis=0, ddof=1) ** 2 / count
    degrees = float(count - 1)
    # P(|T| > t) is the regularised incomplete beta function at degrees / (degrees + t^2)
    below = degrees * error
    with np.errstate(invalid="ignore"):
        x = np.where(mean == 0.0, 1.0, below / (below + mean**2))
    halves = np.full_like(x, degrees / 2.0), np.full_like(x, 0.5)
    return np.asarray(xp.betainc(*halves, x))


def randomisation_test(keys: NDArray[np.uint64], differences: Array, seed: int, n: int) -> Array:
    """Computes the two-sided p value of the paired randomisation test.

    Under the hypothesis, each difference has either sign with the same probability. The p value is
    `(1 + extreme) / (1 + n)`, where `extreme` is the number of random assignments of signs whose
    mean is at least as far from 0 as the observed one.

    Args:
        keys: A number for each query, which determines its signs, uint64 `[queries]`.
        differences: The differences, `[queries, values]`.
        seed: Seed of the signs.
        n: Number of assignments.

    Returns:
        The p value of each column, `[values]`.
    """
    positive = np.zeros([n, differences.shape[1]])
    chunk = min(_CHUNK, max(_SIGNS // n, 1))
    for start in range(0, len(keys), chunk):
        words = random_bits(keys[start : start + chunk], seed, -(-n // 64))
        bits = np.unpackbits(words.view(np.uint8), axis=1)[:, :n]
        positive += bits.T.astype(np.float64) @ differences[start : start + chunk]
    observed = differences.sum(axis=0)
    slack = 1e-12 * np.abs(differences).sum(axis=0)  # rounding must not separate equal sums
    # the sum with signs is that of the positive ones less that of the others
    extreme = np.abs(2.0 * positive - observed) >= np.abs(observed) - slack
    return np.asarray((1.0 + extreme.sum(axis=0)) / (1.0 + n))


def holm(p: Array) -> Array:
    """Adjusts p values for the number of tests, by Holm's method.

    Example:
        >>> holm(np.array([0.03, 0.01, 0.04]))
        array([0.06, 0.03, 0.06])

    Reference:
        [Holm, A simple sequentially rejective multiple test procedure, 1979](
        https://www.jstor.org/stable/4615733).
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    factors = np.arange(len(p), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted
