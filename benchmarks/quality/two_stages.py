"""The next item of a user in two stages, candidates and their order, beside each retriever alone.

    python -m benchmarks.quality.two_stages --data s3rec --results results

Data and rules are those of `benchmarks.quality.leave_one_out`: the last item of a user is for the
test, and all items are ranked but those that the user had before. What a model may see of the last
item but one differs between published models, so that there are two rows of each. `before the last
two`: nothing that is fitted has seen the last two items of any user, and the last but one is only
in the history of the user who is asked for. `before the last`: everything is fitted to all items
but the last. Trees are taught by the last of the items that are fitted to, of which retrievers have
then not learned. With `--validation`, the item before takes the place of the last one, for all.

Intervals are of a bootstrap over users; the CPU seconds are those of the whole fit, and of the
recommendations to all users. What `--results` holds is not computed again.
"""

import argparse
import functools
import time
from typing import Any

import numpy as np

from benchmarks.quality.leave_one_out import sequences, stored
from benchmarks.quality.recommendation import arguments
from tfrank_sel.data import Sequences
from tfrank_sel.recommend import Recommender

FILES = {"Beauty": "Beauty", "Sports": "Sports_and_Outdoors", "Toys": "Toys_and_Games"}
FITTED = {2: "before the last two", 1: "before the last"}
K = 10


def judged(whole: Sequences, unseen: int, seed: int, users: int | None) -> dict[str, Any]:
    """Qualities of all models, what the candidates hold, and CPU seconds."""
    before, test = whole.leave_one_out()
    train = before
    for _ in range(unseen - 1):
        train, _ = train.leave_one_out()
    began = time.process_time()
    recommender = Recommender(num_threads=1, seed=seed).fit(train)
    fitted = time.process_time()
    if users is not None:
        test = test.take(np.random.default_rng(0).permutation(len(test.user_ids))[:users])
    before = before.of_users(test.user_ids)
    recommender.rank(before, K)
    seconds = fitted - began, time.process_time() - fitted
    found = recommender.evaluate(test, K, histories=before)
    rows = [x._asdict() for x in found.qualities if x.group == "all"]
    return {"rows": rows, "coverages": found.coverages, "seconds": seconds}


def run(
    whole: Sequences, options: argparse.Namespace, name: str, unseen: int, seed: int
) -> dict[str, Any]:
    """What `judged` returns, from the folder of results if it is there."""
    key = [name, unseen, seed, options.users, options.validation]
    path = options.results / f"{' '.join(map(str, key))}.json"
    return stored(path, functools.partial(judged, whole, unseen, seed, options.users))


def main() -> None:
    """Prints a table for each set."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=FILES, default=["Beauty", "Sports"])
    parser.add_argument(
        "--unseen",
        nargs="+",
        type=int,
        choices=FITTED,
        default=[*FITTED],
        help="number of last items of each user that nothing is fitted to",
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of fits of each row")
    parser.add_argument("--users", type=int, help="number of users to judge by; all by default")
    parser.add_argument("--validation", action="store_true")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        whole = sequences(options.data / f"{FILES[name]}.txt")
        if options.validation:
            whole, _ = whole.leave_one_out()
        cells = functools.partial(run, whole, options, name)
        print(f"\n| {name}, fitted to what came | model | NDCG@10 | Recall@10 | CPU s |")
        print("|---" * 5 + "|")
        for unseen in options.unseen:
            for seed in range(options.seeds):
                of = cells(unseen, seed)
                for i, row in enumerate(of["rows"]):
                    values = [
                        "{:.4f} ({:.4f} to {:.4f})".format(*row[x]) for x in ("ndcg", "recall")
                    ]
                    seconds = f"{of['seconds'][0]:.0f}" if i == 0 else ""
                    print(
                        f"| {' | '.join((FITTED[unseen], row['model'], *values, seconds))} |",
                        flush=True,
                    )
        print(f"\n| {name}, fitted to what came | candidates of | have the item | alone |")
        print("|---" * 4 + "|")
        for unseen in options.unseen:
            for source, share, adds in cells(unseen, 0)["coverages"]:
                print(f"| {FITTED[unseen]} | {source} | {share:.1%} | {adds:.1%} |", flush=True)


if __name__ == "__main__":
    main()
