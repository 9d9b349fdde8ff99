"""Sketches of distributions: counts in fixed bins, which can be added.

A bin holds the float32 numbers of one sign, one exponent and the same first three bits of the
mantissa: from `m * 2**e` to `(m + 1/8) * 2**e`, with `m` in 1, 9/8, ... 15/8. Thus quantiles are
accurate to 12.5 % of their value at any scale, in 8 kB per feature, and sketches of parts of the
data are merged exactly by addition. Values below `2**-32` in absolute value count as zero, and
values beyond `2**32` are in the last bins.
"""

import collections

import numpy as np

MOST = 10_000  # different values that are counted one by one
_HALF = 512  # bins of each sign: 64 exponents of 8 each
_SMALLEST = 95 << 3  # exponent -32, biased, and a mantissa of zeros
NUM_BINS = 2 * _HALF


def bins(values: np.ndarray) -> np.ndarray:
    """Returns the bin of each finite value, in the order of the values.

    Example:
        >>> bins(np.array([-1.0, 0.0, 1.0, 1.1, 1.125])).tolist()
        [255, 512, 768, 768, 769]
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> 20
    magnitude = np.clip((bits & 0x7FF).astype(np.int32) - _SMALLEST, 0, _HALF - 1)
    return np.where((bits >= 0x800) & (magnitude > 0), _HALF - 1 - magnitude, _HALF + magnitude)


# The bin of each beginning of a float32, of 12 bits. That of NaN is one after the last.
_HEADS = (np.arange(1 << 12, dtype=np.uint32) << 20).view(np.float32)
_BIN_OF_HEAD = np.where(np.isnan(_HEADS), NUM_BINS, bins(_HEADS))


def counts(rows: np.ndarray) -> np.ndarray:
    """Counts the values of each column by bin.

    Args:
        rows: Values, `[rows, columns]`, finite; NaN is not counted.

    Returns:
        The counts, `[columns, NUM_BINS]`.
    """
    heads = np.ascontiguousarray(rows, np.float32).view(np.uint32) >> 20
    places = _BIN_OF_HEAD[heads] + (NUM_BINS + 1) * np.arange(rows.shape[1])
    counted = np.bincount(places.ravel(), minlength=(NUM_BINS + 1) * rows.shape[1])
    return counted.reshape(rows.shape[1], NUM_BINS + 1)[:, :NUM_BINS]


def quantiles(counted: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Returns quantiles of each column: the middle of their bin.

    Args:
        counted: Counts by bin, `[columns, NUM_BINS]`.
        shares: Levels of the quantiles, in [0, 1].

    Returns:
        The quantiles, `[columns, shares]`; 0 for a column without values.

    Example:
        >>> quantiles(counts(np.arange(1.0, 101.0)[:, None]), np.array([0.5])).tolist()
        [[50.0]]
    """
    upto = counted.cumsum(axis=1)
    ranks = np.maximum(np.ceil(np.asarray(shares) * upto[:, -1:]), 1)
    buckets = [np.searchsorted(row, rank) for row, rank in zip(upto, ranks, strict=True)]
    places = np.array(buckets, int).reshape(ranks.shape)
    is_any = upto[:, -1:] > 0
    return np.where(is_any, middles()[np.where(is_any, places, 0)], 0.0)


def middles() -> np.ndarray:
    """Returns the value in the middle of each bin."""
    magnitude = np.arange(_HALF)
    low = 2.0 ** ((magnitude >> 3) - 32) * (1.0 + (magnitude & 7) / 8.0)
    middle = low + 2.0 ** ((magnitude >> 3) - 36)
    middle[0] = 0.0
    return np.concatenate([-middle[::-1], middle])


def few(counted: collections.Counter[float]) -> collections.Counter[float]:
    """Returns counts of at most about `MOST` different values.

    If there are more, all but the lowest and the highest lose as many bits of their float32
    mantissa, towards zero, as are needed. What is counted in parts and merged loses the same bits,
    but for the ends of the parts.

    Args:
        counted: Count of each finite value.
    """
    if len(counted) <= MOST:
        return counted
    values, counts = np.array([*counted.items()]).T
    bits, mask, places = values.astype(np.float32).view(np.uint32), np.uint32(0xFFFFFFFF), values
    is_end = (values == values.min()) | (values == values.max())
    while len(places) > MOST:
        mask <<= np.uint32(1)
        places, inverse = np.unique(np.where(is_end, bits, bits & mask), return_inverse=True)
    sums = np.bincount(inverse, counts).astype(np.int64).tolist()
    return collections.Counter(dict(zip(places.view(np.float32).tolist(), sums, strict=True)))
