"""A synthetic ranking problem, reproducible by its seed."""

from collections.abc import Iterator

import numpy as np

from tfrank_sel.data.lists import ItemList

# Shares of the grades 0 to 4, about those of a web search set.
_GRADE_SHARES = (0.52, 0.26, 0.14, 0.06, 0.02)


def lists(
    num_lists: int, *, num_features: int = 20, max_list_size: int = 200, seed: int = 0
) -> Iterator[ItemList]:
    """Makes lists with graded labels, informative and noise features, and uneven sizes.

    The first half of the features is informative about the grade, each with its own weight: the odd
    ones directly (normal), the even ones by their logarithm, like counts. The other half is noise.
    The utility of an item is the weighted sum, a product of the first two, and noise of a third of
    its variance; the grades 0 to 4 cut the utility of all items at fixed quantiles. Sizes are
    spread evenly in their logarithm from 1 to `max_list_size`, so that both ends occur.

    Args:
        num_lists: Number of lists, at least 2.
        num_features: Number of features, at least 4.
        max_list_size: Number of items of the longest list.
        seed: Seed of the lists. A longer set does not begin with the lists of a shorter one.

    Yields:
        The lists, with query ids `q1`, `q2`, ... and doc ids `q1d1`, ...

    Raises:
        ValueError: If an argument is below its minimum above.

    Example:
        >>> sizes = [len(item_list.labels) for item_list in lists(50, seed=1)]
        >>> min(sizes), max(sizes)
        (1, 200)
    """
    for name, value, least in (
        ("num_lists", num_lists, 2),
        ("num_features", num_features, 4),
        ("max_list_size", max_list_size, 1),
    ):
        if value < least:
            raise ValueError(f"`{name}` must be at least {least}. Received: {value}")
    random = np.random.default_rng(seed)
    sizes = np.geomspace(1, max_list_size, num_lists).round().astype(int)
    informative = num_features // 2
    weights = random.uniform(0.5, 1.5, informative) * random.choice([-1.0, 1.0], informative)
    # The variance of the weighted sum and of the product of two standard normals.
    variance = float(weights @ weights) + 1.0
    noise = np.sqrt(variance / 3.0)
    cuts = _quantiles(random, weights, noise)
    for query, size in enumerate(random.permutation(sizes), start=1):
        latent = random.standard_normal((size, num_features))
        utility = _utility(latent, weights) + noise * random.standard_normal(size)
        features = latent.copy()
        features[:, 1::2] = np.exp(2.0 * latent[:, 1::2])
        yield ItemList(
            query_id=f"q{query}",
            labels=np.searchsorted(cuts, utility).astype(np.float32),
            features=features.astype(np.float32),
            doc_ids=tuple(f"q{query}d{item}" for item in range(1, size + 1)),
        )


def _utility(latent: np.ndarray, weights: np.ndarray) -> np.ndarray:
    linear: np.ndarray = latent[:, : len(weights)] @ weights
    return linear + latent[:, 0] * latent[:, 1]


def _quantiles(random: np.random.Generator, weights: np.ndarray, noise: float) -> np.ndarray:
    sample = random.standard_normal((20_000, len(weights)))
    utility = _utility(sample, weights) + noise * random.standard_normal(len(sample))
    return np.quantile(utility, np.cumsum(_GRADE_SHARES)[:-1])
