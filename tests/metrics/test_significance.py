"""Intervals and tests of means, beside scipy."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from tfrank_sel.metrics import significance


def normal(queries: int, columns: int, mean: float = 0.0) -> np.ndarray:
    return np.random.default_rng(queries).normal(mean, 1.0, [queries, columns])


@pytest.mark.parametrize("queries", [2, 7, 50, 10_000])
def test_the_t_test_equals_scipy(queries: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    values = normal(queries, 4, 2.0 / math.sqrt(queries))
    expected = stats.ttest_rel(values, np.zeros_like(values)).pvalue
    np.testing.assert_allclose(significance.t_test(values), expected, rtol=1e-9)


def test_the_t_test_is_defined_without_variance() -> None:
    values = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert significance.t_test(values).tolist() == [1.0, 0.0]
    assert significance.t_test(values[:1]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("queries", [6, 12])
def test_the_randomisation_test_equals_all_signs_of_scipy(queries: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    values = normal(queries, 3, 0.5).round(1)  # with equal sums, too
    n, keys = 20_000, np.arange(queries, dtype=np.uint64)
    found = significance.randomisation_test(keys, values, seed=0, n=n)
    for value, p in zip(values.T, found, strict=True):
        exact = stats.permutation_test(
            (value, np.zeros_like(value)),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
            vectorized=True,
        ).pvalue
        assert abs(p - exact) < 5.0 * math.sqrt(exact * (1.0 - exact) / n) + 1.0 / n


def test_the_interval_equals_the_bootstrap_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    values, keys = normal(300, 1, 0.1), np.arange(300, dtype=np.uint64)
    found = np.ravel(significance.resample(keys, values, seed=0, resamples=10_000).interval())
    theirs = stats.bootstrap((values[:, 0],), np.mean, method="percentile", n_resamples=10_000)
    np.testing.assert_allclose(found, theirs.confidence_interval, atol=0.008)


def test_few_queries_and_few_resamples_have_an_interval() -> None:
    for queries, resamples, seed in itertools.product((1, 2), (1, 2, 3), range(40)):
        values = np.arange(1.0, queries + 1.0)[:, None]
        keys = np.arange(queries, dtype=np.uint64)
        low, high = significance.resample(keys, values, seed=seed, resamples=resamples).interval()
        assert 1.0 <= low[0] <= high[0] <= queries


def test_a_million_resamples_take_little_memory() -> None:
    keys, differences = np.arange(64, dtype=np.uint64), np.linspace(-1.0, 1.2, 64)[:, None]
    tracemalloc.start()
    [p] = significance.randomisation_test(keys, differences, 0, 10**6)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**28
    [of_few] = significance.randomisation_test(keys, differences, 0, 10**4)
    assert abs(p - of_few) < 0.02
