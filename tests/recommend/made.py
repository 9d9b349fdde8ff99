"""Made interactions, and retrievers that are quick to fit."""

import numpy as np

from tfrank_sel.data import Sequences
from tfrank_sel.recommend import Factors, Neighbours, Popular, Successors

QUICK = (
    Factors(count=9, num_factors=8, sweeps=3),
    Successors(count=9),
    Neighbours(count=9),
    Popular(count=5),
)


def taken(num_users: int = 90, num_items: int = 30, seed: int = 0) -> Sequences:
    """Sequences of 2 to 9 items, of which half are the successor of the one before."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 10, num_users)
    users = np.repeat(np.arange(num_users), sizes)
    jumps = np.where(random.random(len(users)) < 0.5, 1, random.integers(0, num_items, len(users)))
    items = np.cumsum(jumps) % num_items + 1
    user_ids = np.array([f"u{i}" for i in range(num_users)], object)
    item_ids = np.array([f"i{i}" for i in range(num_items)], object)
    times = np.arange(len(users), dtype=float) % 97.0
    times = times[np.lexsort((times, users))]
    return Sequences(user_ids, item_ids, users, items.astype(np.int32), times)


def rows(of: Sequences) -> dict[str, list]:
    """A table of sequences."""
    return {
        "user": of.user_ids[of.users].tolist(),
        "item": of.item_ids[of.items - 1].tolist(),
        "time": of.times.tolist(),
    }
