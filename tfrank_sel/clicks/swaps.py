"""Propensities from items that were shown at several positions."""

import numpy as np

from tfrank_sel.clicks.log import Floats, Log


def groups(log: Log) -> list[list[int]]:
    """Returns the groups of positions whose propensities can be compared.

    Two positions are joined if items that were shown at both for the same query were clicked at
    each. Only relative propensities within a group are identified.

    Args:
        log: The log.

    Example:
        >>> log = Log(["q"] * 4, ["a", "a", "b", "b"], [1, 2, 3, 4], [1, 1, 1, 0])
        >>> groups(log)
        [[1, 2], [3], [4]]
    """
    clicks, shown = log.counts
    common = (clicks > 0.0).T.astype(np.float64) @ (shown > 0.0)
    reach = (common * common.T > 0.0) | np.eye(len(log.positions), dtype=bool)
    while not np.array_equal(further := reach @ reach, reach):
        reach = further
    firsts = sorted({int(np.argmax(row)) for row in reach})
    return [log.positions[reach[first]].tolist() for first in firsts]


def check_connected(log: Log) -> None:
    """Raises an error if the log cannot identify the propensities of all its positions.

    Raises:
        ValueError: If the positions fall into several groups, which the message names.
    """
    apart = groups(log)
    if len(apart) == len(log.positions):
        raise ValueError(
            "each clicked item was shown at one position only, as in the log of a single ranker. "
            "Propensities need items at several positions for the same query: "
            "swap items at random, or add the log of another ranker"
        )
    if len(apart) > 1:
        named = " and ".join(str(group) for group in apart)
        raise ValueError(
            f"no clicked item was shown in two of these groups of positions: {named}. "
            "Swap items between them, or leave out the positions of all groups but one"
        )


def all_pairs(log: Log, weights: Floats) -> Floats:
    """Estimates propensities by intervention harvesting over all pairs of positions.

    For positions j and k, items shown at both give the ratio of the propensities as that of their
    clicks, where an item with n_j and n_k impressions has the weight n_j n_k / (n_j + n_k). The log
    propensities are the least squares solution for the log ratios of all pairs, weighted by the
    inverse variances of their clicks.

    Args:
        log: A connected log.
        weights: Weights of the queries in each resample, `[resamples, queries]`.

    Returns:
        Propensities relative to the first position, `[resamples, positions]`.

    Reference:
        [Agarwal et al., Estimating position bias without intrusive interventions, WSDM 2019](
        https://doi.org/10.1145/3289600.3291017), with weights of least variance.
    """
    clicks, shown = log.counts
    size = len(log.positions)
    sums = np.zeros((log.num_queries, 2, size, size))
    for k in range(size):
        both = np.maximum(shown + shown[:, k : k + 1], 1.0)
        share = shown[:, k : k + 1] / both  # of n_k, for the clicks at all j
        variance = share**2 * clicks  # of the sum
        np.add.at(sums[:, 0, :, k], log.query_of_item, share * clicks)
        np.add.at(sums[:, 1, :, k], log.query_of_item, variance)
    drawn = (weights @ sums.reshape(log.num_queries, -1)).reshape(-1, 2, size, size)
    amounts, spread = drawn[:, 0], np.maximum(drawn[:, 1], 1e-12)
    known = (amounts > 0.0) & (amounts.transpose(0, 2, 1) > 0.0) & ~np.eye(size, dtype=bool)
    safe = np.where(known, amounts, 1.0)
    ratios = np.log(safe) - np.log(safe.transpose(0, 2, 1))
    relative = np.where(known, spread / safe**2, 0.0)
    precision = np.where(known, 1.0 / np.maximum(relative + relative.transpose(0, 2, 1), 1e-12), 0)
    laplacian = np.eye(size) * precision.sum(axis=2)[:, None] - precision
    right = (precision * ratios).sum(axis=2)
    solution = np.zeros((len(weights), size))
    for row, (left, value) in enumerate(zip(laplacian, right, strict=True)):
        solution[row, 1:] = np.linalg.lstsq(left[1:, 1:], value[1:], rcond=None)[0]
    return np.exp(solution)
