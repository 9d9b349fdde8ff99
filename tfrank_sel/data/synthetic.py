"""Synthetic ranking problems, reproducible by their seeds."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.arrow_types import arrow
from tfrank_sel.data.lists import ItemList
from tfrank_sel.errors import refusal

# Shares of the grades 0 to 4, about those of a web search set.
_GRADE_SHARES = (0.52, 0.26, 0.14, 0.06, 0.02)
# The number of brands and of tags, and the devices, of the click log.
_BRANDS, _TAGS, _DEVICES = 200, 30, ("desktop", "phone", "tablet", "tv")


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
    _check_least(
        num_lists=(num_lists, 2), num_features=(num_features, 4), max_list_size=(max_list_size, 1)
    )
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


def _check_least(**values: tuple[float, float]) -> None:
    for name, (value, least) in values.items():
        if value < least:
            raise refusal(f"`{name}` must be at least {least}", value)


def _utility(latent: np.ndarray, weights: np.ndarray) -> np.ndarray:
    linear: np.ndarray = latent[:, : len(weights)] @ weights
    return linear + latent[:, 0] * latent[:, 1]


def _quantiles(random: np.random.Generator, weights: np.ndarray, noise: float) -> np.ndarray:
    sample = random.standard_normal((20_000, len(weights)))
    utility = _utility(sample, weights) + noise * random.standard_normal(len(sample))
    return np.quantile(utility, np.cumsum(_GRADE_SHARES)[:-1])


def clicks(num_rows: int, *, seed: int = 0) -> Any:
    """Makes a click log with columns of all types and missing values, as an Arrow table.

    Each row is an item that was shown in a `session`. A click has a probability that increases with
    the column `utility`, of which no model should know: a low `price`, a high `rating`, an item
    `in_stock`, a liked `brand`, `tags` that the `device` likes, the `embedding` and a recent
    `published_at` add to it. An item without a price is hardly ever clicked. The `seller` has no
    effect. Rows of the device "tv" have the `weight` 0.5.

    Args:
        num_rows: Approximate number of rows: sessions have 5 to 29 items, and are whole.
        seed: Seed of the log. What is liked is the same for all seeds.

    Raises:
        ImportError: If pyarrow is not installed.

    Example:
        >>> log = clicks(100, seed=0)
        >>> log.num_rows, log["price"].null_count > 0
        (92, True)
    """
    pa = arrow()
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 30, num_rows // 17 + 1)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), num_rows) + 1]
    session = np.repeat(np.arange(len(sizes)), sizes)
    count = len(session)

    truth = np.random.default_rng(0)  # the same for all logs
    liked = truth.normal(size=_BRANDS)
    fits = truth.normal(size=(len(_DEVICES), _TAGS))
    taste = truth.normal(size=8) / 3.0

    brand = np.minimum(random.zipf(1.3, count), _BRANDS) - 1
    device = random.choice(len(_DEVICES), len(sizes), p=(0.4, 0.45, 0.1, 0.05))[session]
    tags = random.integers(0, _TAGS, (count, 3))
    num_tags = random.integers(0, 4, count)
    is_tag = np.arange(3) < num_tags[:, None]
    tag_effect = np.sum(fits[device[:, None], tags] * is_tag, axis=1) / np.maximum(num_tags, 1)
    price = random.lognormal(3.0, 1.0, count)
    has_price = random.random(count) > 0.15
    rating = np.round(random.uniform(1.0, 5.0, count), 1)
    has_rating = random.random(count) > 0.3
    in_stock = random.random(count) > 0.2
    embedding = random.normal(size=(count, 8)).astype(np.float32)
    shown_at = 1_750_000_000 + np.cumsum(random.integers(1, 20, len(sizes)))[session]
    age_days = random.exponential(60.0, count)
    published_at = shown_at - (age_days * 86_400).astype(int)

    utility = (
        np.where(has_price, -0.8 * (np.log(price) - 3.0), -3.0)
        + np.where(has_rating, 0.4 * (rating - 3.0), 0.0)
        + 1.0 * in_stock
        + 0.8 * liked[brand]
        + 0.8 * tag_effect
        + embedding @ taste
        - 0.3 * np.log1p(age_days)
    )
    clicked = random.random(count) < 1.0 / (1.0 + np.exp(1.5 - utility))
    names = np.array([f"tag-{i}" for i in range(_TAGS)], object)
    values = names[tags[is_tag]]
    offsets = np.concatenate([[0], np.cumsum(num_tags)]).astype(np.int32)
    seconds = pa.timestamp("s", "UTC")
    return pa.table(
        {
            "session": np.char.add("s", session.astype(str)),
            "item": np.char.add("i", random.integers(0, count // 2 + 1, count).astype(str)),
            "clicked": clicked,
            "weight": np.where(device == 3, 0.5, 1.0).astype(np.float32),
            "price": pa.array(np.round(price, 2), mask=~has_price),
            "rating": pa.array(rating, mask=~has_rating),
            "in_stock": in_stock,
            "brand": pa.array(np.char.add("brand-", brand.astype(str))).dictionary_encode(),
            "device": np.array(_DEVICES)[device],
            "tags": pa.ListArray.from_arrays(offsets, pa.array(values, pa.string())),
            "seller": random.integers(0, 5_000, count),
            "embedding": pa.FixedSizeListArray.from_arrays(embedding.ravel(), 8),
            "published_at": pa.array(published_at, pa.int64()).cast(seconds),
            "shown_at": pa.array(shown_at, pa.int64()).cast(seconds),
            "utility": utility.astype(np.float32),
        }
    )


def sessions(
    relevances: Sequence[np.ndarray],
    num_sessions: int,
    *,
    scores: Sequence[np.ndarray] | None = None,
    model: str = "pbm",
    size: int = 10,
    eta: float = 1.0,
    temperature: float = 0.0,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Simulates clicks on labelled lists with known propensities.

    A session shows the first `size` items of a random list, in the order of the logging scores. An
    item of label y is attractive with probability 0.1 + 0.9 (2^y - 1) / (2^Y - 1), where Y is the
    largest label of all lists. The models of users:

    * `"pbm"`: The user examines position k with probability k^-eta, and clicks attractive items.
    * `"trust"`: As `"pbm"`, but examined items are clicked with probability 1 - 0.01 (k + 1) if
      attractive, and 0.65 / k otherwise.
    * `"cascade"`: The user reads from the top and leaves at the first click.

    Args:
        relevances: Labels of each list, not negative.
        num_sessions: Number of sessions.
        scores: Scores of the logging ranker for each list; random scores, the same in all sessions,
            if None.
        model: Name of the model.
        size: Number of items shown.
        eta: Strength of the position bias.
        temperature: Scale of Gumbel noise added to the scores of each session. With 0, each item
            has one position only, from which no propensities can be estimated.
        seed: Seed of the simulation.

    Returns:
        Columns `session`, `query`, `item` (indices), `position`, `click`, and the truth:
        `attraction`, and `propensity`, which for `"cascade"` is 1 until the first click, then 0.

    Raises:
        ValueError: If the model is unknown or a number is out of range.

    Reference:
        [Agarwal et al., Addressing trust bias for unbiased learning-to-rank, WWW 2019](
        https://doi.org/10.1145/3308558.3313697).

    Example:
        >>> log = sessions([np.array([0.0, 2.0, 1.0])], 2, temperature=1.0)
        >>> log["position"].tolist()
        [1, 2, 3, 1, 2, 3]
    """
    if model not in ("pbm", "trust", "cascade"):
        raise refusal("`model` must be 'pbm', 'trust' or 'cascade'", repr(model))
    _check_least(
        num_sessions=(num_sessions, 1),
        size=(size, 1),
        eta=(eta, 0.0),
        temperature=(temperature, 0.0),
    )
    random = np.random.default_rng(seed)
    largest = max(float(np.max(x)) for x in relevances)
    if scores is None:
        scores = [random.standard_normal(len(x)) for x in relevances]
    counts = np.bincount(random.integers(0, len(relevances), num_sessions), minlength=1)
    parts: dict[str, list[np.ndarray]] = {}
    first = 0
    for query, count in enumerate(counts.tolist()):
        noise = temperature * random.gumbel(size=(count, len(relevances[query])))
        items = np.argsort(-(scores[query] + noise), axis=1, kind="stable")[:, :size]
        attraction = 0.1 + 0.9 * np.expm1(np.log(2.0) * relevances[query][items]) / max(
            2.0**largest - 1.0, 1.0
        )
        position = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
        attracts = random.random(items.shape) < attraction
        propensity = position**-eta
        if model == "trust":
            trust = np.where(attracts, 1.0 - 0.01 * (position + 1.0), 0.65 / position)
            attracts = random.random(items.shape) < trust
        if model == "cascade":
            propensity = (np.cumsum(attracts, axis=1) - attracts == 0) * 1.0
        columns = {
            "session": np.broadcast_to(first + np.arange(count)[:, None], items.shape),
            "query": np.full(items.shape, query),
            "item": items,
            "position": position,
            "click": attracts & (random.random(items.shape) < propensity),
            "attraction": attraction,
            "propensity": propensity,
        }
        for name, column in columns.items():
            parts.setdefault(name, []).append(column.ravel())
        first += count
    return {name: np.concatenate(columns) for name, columns in parts.items()}
