"""Peers on the splits of `benchmarks.quality.two_stages`: ALS and BM25 of implicit.

    python -m benchmarks.quality.two_stages_peers --data data --results results

It needs `implicit`. Settings are the best of three by what came before the test. Models get the
histories of the test. The CPU seconds have the recommendations, too. What `--results` holds is not
computed again.
"""

import functools
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.quality.leave_one_out import stored
from benchmarks.quality.recommendation import arguments
from benchmarks.quality.two_stages import FILES, FITTED, TABLES, K, Split, split
from tfrank_sel.recommend.candidates import incidence
from tfrank_sel.recommend.evaluation import measure, relevance
from tfrank_sel.recommend.scores import weigh

FACTORS, SWEEPS = 256, 15
ALS, BM25 = "implicit ALS", "implicit BM25"
SETTINGS = {ALS: (2.0, 10.0, 40.0), BM25: (100, 300, 1000)}  # alpha, and number of neighbours


def best_items(name: str, setting: float, parts: Split) -> np.ndarray:
    """The best items of each user by a model."""
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.nearest_neighbours import BM25Recommender

    more: Mapping[str, Any] = {}
    if name == ALS:
        model: Any = AlternatingLeastSquares(
            FACTORS, alpha=setting, iterations=SWEEPS, random_state=0, num_threads=1
        )
        more = {"recalculate_user": parts.before is not parts.train}
    else:
        model = BM25Recommender(setting, num_threads=1)
    model.fit(incidence(parts.train), show_progress=False)
    users, before = np.unique(parts.test.users), incidence(parts.before)
    ids = np.full((len(parts.test.user_ids), K), -1, np.int32)
    ids[users], _ = model.recommend(users, before[users], N=K, **more)
    return ids


def judge(name: str, setting: float, parts: Split) -> dict[str, Any]:
    """The quality of a model, and its CPU seconds."""
    began = time.process_time()
    ids = best_items(name, setting, parts)
    seconds = time.process_time() - began
    train, before, test = parts
    histories = weigh(before)
    counts = np.bincount(train.items - 1, minlength=len(train.item_ids))
    relevant = relevance(test, histories, train.item_ids)
    quality = next(measure({name: ids}, relevant, histories, counts, K, 0))
    return {**quality._asdict(), "seconds": seconds}


def main() -> None:
    """Prints a table for each set."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=[*FILES, *TABLES], default=["Beauty"])
    parser.add_argument("--models", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)

    def run(data: str, unseen: int, name: str, setting: float, validates: bool) -> dict[str, Any]:
        path = options.results / f"{data} {unseen} {name} {setting} {validates}.json"
        parts = functools.partial(split, options.data, data, unseen, validates)
        return stored(path, lambda: judge(name, setting, parts()))

    for data in options.sets:
        heads = "model", "setting", "NDCG@10", "Recall@10", "CPU s"
        print(f"\n| {data}, fitted to what came | {' | '.join(heads)} |\n{'|---' * 6}|")
        for unseen in (2, 1) if data in FILES else (0,):
            for name in options.models:
                validation = functools.partial(run, data, min(unseen, 1), name)
                best = max(SETTINGS[name], key=lambda x: validation(x, True)["ndcg"][0])
                of = run(data, unseen, name, best, False)
                values = ["{:.4f} ({:.4f} to {:.4f})".format(*of[x]) for x in ("ndcg", "recall")]
                shown = FITTED[unseen], name, best, *values, f"{of['seconds']:.0f}"
                print(f"| {' | '.join(map(str, shown))} |", flush=True)


if __name__ == "__main__":
    main()
