"""Propensities by items at several positions, which need no model of users or items."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.clicks.log import Floats, Integers, Log

# Numbers that are held in memory at once.
_AT_ONCE = 1 << 24


def groups(log: Log) -> list[list[int]]:
    """Returns the groups of positions whose propensities can be compared.

    Two positions are joined if items that were shown at both for the same query were clicked at
    each. Only relative propensities within a group are identified. Deep positions of few clicks
    are one: see `Log.pools`.

    Args:
        log: The log.

    Example:
        >>> log = Log(["q"] * 4, ["a", "a", "b", "b"], [1, 2, 3, 4], [1, 1, 1, 0])
        >>> groups(log)
        [[1, 2], [3], [4]]
    """
    components = pool_groups(log)[log.pools]
    return [log.positions[components == x].tolist() for x in dict.fromkeys(components.tolist())]


def pool_groups(log: Log) -> Integers:
    """Index of the group of each pool of positions, `[pools]`: the first pool of the group."""
    cells, size = log.cells, log.cells.num_pools
    is_clicked = cells.sums(log.clicks) > 0.0
    common = np.zeros((size, size))
    for k, shown in _impressions(log):
        common[:, k] = np.bincount(cells.pool, is_clicked & (shown[cells.item] > 0.0), size)
    return np.asarray(_reachable(common * common.T > 0.0).argmax(axis=1), np.int64)


def _reachable(joined: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a path joins two pools, `[..., pools, pools]`."""
    reach = joined | np.eye(joined.shape[-1], dtype=bool)
    # paths of twice as many positions each time
    while not np.array_equal(further := reach @ reach, reach):
        reach = further
    return reach


def all_pairs(log: Log, weights: Iterable[Floats]) -> Floats:
    """Estimates propensities by intervention harvesting over all pairs of positions.

    For positions j and k, items shown at both give the ratio of the propensities as that of their
    clicks, where an item with n_j and n_k impressions has the weight n_j n_k / (n_j + n_k). The log
    propensities are the least squares solution for the log ratios of all pairs, weighted by the
    inverse variances of their clicks.

    Args:
        log: A log.
        weights: Weights of the rows in each resample, `[rows]` each.

    Returns:
        Propensities of pools of positions, up to a factor, `[resamples, pools]`; NaN outside of the
        group of the most clicks, which differs between resamples.

    Reference:
        [Agarwal et al., Estimating position bias without intrusive interventions, WSDM 2019](
        https://doi.org/10.1145/3289600.3291017), with weights of least variance.
    """
    step, each = max(_AT_ONCE // len(log.cells.item), 1), iter(weights)
    parts = iter(lambda: [log.cells.sums(log.clicks * x) for x in itertools.islice(each, step)], [])
    return np.concatenate([_all_pairs(log, np.stack(part)) for part in parts])


def _all_pairs(log: Log, clicks: Floats) -> Floats:
    """The propensities by several weighted clicks of each cell, `[resamples, cells]`."""
    cells, size = log.cells, log.cells.num_pools
    shown = cells.sums(log.shown)
    order = np.argsort(cells.pool, kind="stable")
    item, pool, shown, clicks = cells.item[order], cells.pool[order], shown[order], clicks[:, order]
    amounts, spread = np.zeros((2, len(clicks), size, size))
    for k, of_item in _impressions(log):
        rows = np.flatnonzero(of_item[item] > 0.0)
        present, starts = np.unique(pool[rows], return_index=True)
        # clicks_j / n_j, with the weight n_j n_k / (n_j + n_k)
        share = of_item[item[rows]] / (shown[rows] + of_item[item[rows]])
        # the clicks at all j, and the variance of this sum
        shared = share * clicks[:, rows]
        amounts[:, present, k] = np.add.reduceat(shared, starts, axis=1)
        spread[:, present, k] = np.add.reduceat(share * shared, starts, axis=1)
    valid = (amounts > 0.0) & (amounts.transpose(0, 2, 1) > 0.0) & ~np.eye(size, dtype=bool)
    safe = np.where(valid, amounts, 1.0)
    ratios = np.log(safe) - np.log(safe.transpose(0, 2, 1))
    # Clicks are Poisson: their variance is their mean. That of a log is relative, and adds up in a
    # ratio
    relative = np.where(valid, np.maximum(spread, 1e-12) / safe**2, 0.0)
    precision = np.where(valid, 1.0 / np.maximum(relative + relative.transpose(0, 2, 1), 1e-12), 0)
    # normal equations, which leave a constant free: `lstsq` takes the shortest solution
    laplacian = np.eye(size) * precision.sum(axis=2)[:, None] - precision
    right = (precision * ratios).sum(axis=2)
    each = zip(laplacian, right, strict=True)
    found = np.exp([np.linalg.lstsq(left, value, rcond=None)[0] for left, value in each])
    reach = _reachable(valid)
    of_pools = np.stack([np.bincount(pool, x, size) for x in clicks])
    most = (reach @ of_pools[:, :, np.newaxis])[:, :, 0].argmax(axis=1)
    return np.where(reach[np.arange(len(most)), most], found, np.nan)


def _impressions(log: Log) -> Iterator[tuple[int, Floats]]:
    """The impressions of each item, `[items]`, at each pool of positions."""
    cells = log.cells
    shown = cells.sums(log.shown)
    for k in range(cells.num_pools):
        at = cells.pool == k
        yield k, np.asarray(np.bincount(cells.item[at], shown[at], log.num_items), np.float64)
