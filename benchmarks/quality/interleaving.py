"""Sessions that interleaving and an A/B test need to tell two rankers apart.

    python -m benchmarks.quality.interleaving --data MQ2008

The first ranker scores items by their labels with normal noise, the second one by these scores with
more noise. Users of the position-based model (`data.synthetic.sessions`, eta 1) see ten items. The
number of sessions gives a power of 80 % at a level of 5 %: for the A/B test and optimised
interleaving, by the means and variances of clicks or credits per session (of both halves together;
of all lists of `clicks.optimised`); for team draft, by the probabilities that a
team wins, of `clicks.team_draft` with 10 seeds for each query, in both orders.
"""

import argparse
import pathlib

import numpy as np

from benchmarks.quality.clicks import ndcg
from benchmarks.quality.data import folds
from tfrank_sel import clicks
from tfrank_sel.clicks import interleaving

NOISE = 1.0
MORE = (0.05, 0.1, 0.2, 0.4)
SEEDS, SHOWN = 10, 10
BOTH = (1.96 + 0.84) ** 2  # squared quantiles of level and power


def numbers_of_clicks(probable: np.ndarray) -> np.ndarray:
    """Probabilities of each number of clicks."""
    found = np.ones(1)
    for p in probable:
        found = np.convolve(found, [1.0 - p, p])
    return found


def wins(probable: np.ndarray, teams: np.ndarray) -> np.ndarray:
    """Probabilities that the first and the second team get more clicks than the other."""
    first, second = (numbers_of_clicks(probable[teams == team]) for team in (0, 1))
    joint = np.outer(first, second)
    return np.array([np.tril(joint, -1).sum(), np.triu(joint, 1).sum()])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    options = parser.parse_args()
    lists = [
        x for x in folds(options.data)[0]["train"] if len(x.labels) >= SHOWN and x.labels.any()
    ]
    examined = 1.0 / np.arange(1, SHOWN + 1)
    print(
        "| NDCG@10 apart | A/B test | team draft (ratio) | optimised (ratio) |\n|---|---|---|---|"
    )
    for more in MORE:
        random = np.random.default_rng(0)
        apart, means, spreads, won, gains = [], [], [], [], []
        for one in lists:
            attraction = 0.1 + 0.9 * np.expm1(np.log(2.0) * one.labels) / 3.0
            better = one.labels + NOISE * random.standard_normal(len(one.labels))
            worse = better + more * random.standard_normal(len(one.labels))
            apart.append(ndcg(one.labels, better) - ndcg(one.labels, worse))
            tops = [attraction[np.argsort(-x)[:SHOWN]] * examined for x in (better, worse)]
            means.append([x.sum() for x in tops])
            spreads.append([(x * (1.0 - x)).sum() for x in tops])
            for seed in range(SEEDS):
                for first, second in ((better, worse), (worse, better)):  # each coin both ways
                    items, teams = clicks.team_draft(first, second, seed=seed)
                    found = wins(attraction[items[:SHOWN]] * examined, teams[:SHOWN])
                    won.append(found if first is better else found[::-1])
            orders = [np.argsort(-x, kind="stable")[:SHOWN] for x in (better, worse)]
            items = interleaving.interleavings(orders, len(one.labels))
            credits = interleaving.inverse_rank_credits(orders, len(one.labels))[items]
            probable = attraction[items] * examined
            gain = (probable * credits).sum(axis=1)
            squares = gain**2 + (probable * (1.0 - probable) * credits**2).sum(axis=1)
            gains.append(interleaving.allocation(credits) @ np.stack([gain, squares], axis=1))
        difference = np.subtract(*np.mean(means, axis=0))
        variance = np.mean(spreads, axis=0) + np.var(means, axis=0)
        tested = 2.0 * BOTH * variance.sum() / difference**2
        first, second = np.mean(won, axis=0)
        interleaved = BOTH * (first + second) / (first - second) ** 2
        gain, square = np.mean(gains, axis=0)
        optimised = BOTH * (square - gain**2) / gain**2
        print(
            f"| {np.mean(apart):.4f} | {tested:,.0f} "
            f"| {interleaved:,.0f} ({tested / interleaved:.0f}) "
            f"| {optimised:,.0f} ({tested / optimised:.0f}) |"
        )


if __name__ == "__main__":
    main()
