"""Users who click on ranked lists, simulated for `benchmarks.quality.clicks`.

They share no code with `tfrank_sel.clicks` or `data.synthetic`, and most of them click otherwise
than any of its models says. Lists differ in length, few queries have most sessions, and the
attraction of an item depends on its label and on what no feature shows.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
DEPTH = 60
RANK = np.arange(DEPTH)
FADING = 0.12 + 0.88 * np.exp(-RANK / 4.0)  # of attention to positions


@dataclasses.dataclass(frozen=True)
class Shown:
    """Lists that users see, one row each, padded.

    Args:
        query: Index of the query, `[sessions]`.
        item: Index of each item in its query, `[sessions, depth]`; -1 where none is.
    """

    query: Array
    item: Array

    @property
    def present(self) -> Array:
        return self.item >= 0


@dataclasses.dataclass(frozen=True)
class World:
    """What is true of the items of each query.

    Args:
        attraction: Probability of a click on an examined item, `[items]` for each query.
        appeal: Probability that an item is seen wherever it stands, as pictures are.
    """

    attraction: Sequence[Array]
    appeal: Sequence[Array]

    def at(self, shown: Shown) -> tuple[Array, Array]:
        """Attraction and appeal of each place of lists, `[sessions, depth]`."""
        found = np.zeros([2, *shown.item.shape])
        for query in np.unique(shown.query):
            rows = shown.query == query
            for values, out in zip((self.attraction, self.appeal), found, strict=True):
                out[rows] = values[query][shown.item[rows]]
        return found[0] * shown.present, found[1] * shown.present


def world(labels: Sequence[Array], seed: int) -> World:
    """Items that attract by their label and by chance."""
    random = np.random.default_rng(seed)
    top = 2.0 ** max(float(x.max()) for x in labels) - 1.0
    by_label = [0.06 + 0.74 * (2.0**x - 1.0) / top for x in labels]
    attraction = [np.minimum(x * random.lognormal(0.0, 0.3, len(x)), 1.0) for x in by_label]
    return World(attraction, [random.beta(1.0, 4.0, len(x)) for x in labels])


def traffic(
    scores: Sequence[Array], sessions: int, kind: str, seed: int, noise: float = 0.5
) -> Shown:
    """Sessions of queries, whose items are ordered by noisy scores.

    Args:
        scores: Scores of the logging ranker, for each query.
        sessions: Number of sessions.
        kind: `"many"`: the k-th query has a share of 1 / k of the sessions; `"few"`: the same of
            the first 50 queries; `"one"`: each session has a query of its own.
        seed: Seed of the simulation.
        noise: Scale of the Gumbel noise on the scores of a session, by which items swap.
    """
    random = np.random.default_rng(seed)
    count = min(len(scores), 50) if kind == "few" else len(scores)
    if kind == "one":
        query = np.arange(sessions) % len(scores)
    else:
        share = 1.0 / np.arange(1, count + 1)
        some = random.permutation(len(scores))[:count]
        query = random.choice(some, sessions, p=share / share.sum())
    sizes = np.clip(np.round(np.exp(random.normal(np.log(10.0), 0.7, sessions))), 1, DEPTH)
    item = np.full([sessions, DEPTH], -1)
    for row, (q, size) in enumerate(zip(query, sizes.astype(int), strict=True)):
        noisy = scores[q] + noise * random.gumbel(size=len(scores[q]))
        best = np.argsort(-noisy)[:size]
        item[row, : len(best)] = best
    return Shown(query, item)


def reordered(shown: Shown, scores: Sequence[Array]) -> Shown:
    """The same items in the order of other scores."""
    item = shown.item.copy()
    for row, q in enumerate(shown.query):
        of_row = item[row][item[row] >= 0]
        item[row, : len(of_row)] = of_row[np.argsort(-scores[q][of_row], kind="stable")]
    return Shown(shown.query, item)


Seen = tuple[Array, Array]  # examined and clicked


def _by_place(examines: Callable[[int], float]) -> Callable[..., Seen]:
    seen = np.array([examines(k) for k in range(DEPTH)])

    def users(attraction: Array, appeal: Array, random: np.random.Generator) -> Seen:
        examined = random.random(attraction.shape) < seen
        return examined, examined & (random.random(attraction.shape) < attraction)

    return users


def _cascade(attraction: Array, appeal: Array, random: np.random.Generator) -> Seen:
    would = random.random(attraction.shape) < attraction
    examined = np.cumsum(would, axis=1) - would == 0
    return examined, examined & would


def _satisfied(attraction: Array, appeal: Array, random: np.random.Generator) -> Seen:
    """Reads from the top; leaves when an item satisfies, or for no reason (DBN)."""
    would = random.random(attraction.shape) < attraction
    content = would & (random.random(attraction.shape) < 0.3 + 0.6 * attraction)
    leaves = content | (random.random(attraction.shape) < 0.15)
    examined = np.cumsum(leaves, axis=1) - leaves == 0
    return examined, examined & would


def _trusting(attraction: Array, appeal: Array, random: np.random.Generator) -> Seen:
    """Clicks on what the ranker has put on top, though it does not attract."""
    examined = random.random(attraction.shape) < FADING
    relevant = random.random(attraction.shape) < attraction
    clicks = np.where(relevant, 0.98 - 0.003 * RANK, 0.5 * np.exp(-RANK / 2.0))
    return examined, examined & (random.random(attraction.shape) < clicks)


def _attentive(attraction: Array, appeal: Array, random: np.random.Generator) -> Seen:
    """Sees what catches the eye wherever it stands, and less after clicks."""
    examined, clicked = np.zeros(attraction.shape, bool), np.zeros(attraction.shape, bool)
    rest = np.ones(len(attraction))
    for k in range(attraction.shape[1]):
        chance = rest * (1.0 - (1.0 - FADING[k]) * (1.0 - appeal[:, k]))
        examined[:, k] = random.random(len(attraction)) < chance
        clicked[:, k] = examined[:, k] & (random.random(len(attraction)) < attraction[:, k])
        rest = np.where(clicked[:, k], 0.7 * rest, rest)
    return examined, clicked


def _in_a_grid(attraction: Array, appeal: Array, random: np.random.Generator) -> Seen:
    """Sees two columns row by row, the left one more often, and leaves between rows."""
    rows = np.cumprod(random.random([len(attraction), DEPTH // 2]) < 0.8, axis=1)
    rows[:, 0] = 1
    examined = np.repeat(rows, 2, axis=1) > 0
    examined &= random.random(attraction.shape) < np.tile([0.95, 0.75], DEPTH // 2)
    return examined, examined & (random.random(attraction.shape) < attraction)


USERS: dict[str, Callable[..., Seen]] = {
    "position": _by_place(lambda k: FADING[k]),
    "cascade": _cascade,
    "dbn": _satisfied,
    "trust": _trusting,
    "attention": _attentive,
    "grid": _in_a_grid,
    "no bias": _by_place(lambda k: 0.8),
    "carousel": _by_place(lambda k: (0.45, 0.75, 0.95, 0.7)[k] if k < 4 else 0.9 * FADING[k - 3]),
}


def log(shown: Shown, clicked: Array) -> dict[str, Array]:
    """The rows of a log of clicks."""
    session, place = np.nonzero(shown.present)
    return {
        "session": session,
        "query": shown.query[session],
        "item": shown.item[session, place],
        "position": place + 1,
        "click": clicked[session, place].astype(int),
    }


def clicks_per_session(
    users: Callable[..., Seen], world: World, shown: Shown, seed: int, repeats: int = 40
) -> float:
    """The mean number of clicks, over many visits of each session."""
    random = np.random.default_rng(seed)
    attraction, appeal = world.at(shown)
    return float(
        np.mean([users(attraction, appeal, random)[1].sum(axis=1).mean() for _ in range(repeats)])
    )
