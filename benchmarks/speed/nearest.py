"""Approximate retrieval against the exact: microseconds for a user's 20 best items, and recall.

    python -m benchmarks.speed.nearest --data gowalla

Factors with K = 64 are fitted to the training interactions of a set, which
`benchmarks.quality.recommendation` describes. Larger
catalogues have copies of the items with noise of half the spread of the vectors. CPU times are
medians of interleaved calls for 500 users on one thread; recall is the share of the exact best that
is found. It needs the extras `als` and `ann`.
"""

import argparse
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.quality import recommendation
from benchmarks.speed.interleaved import machine, timings, use_one_core
from tfrank_sel.models import als
from tfrank_sel.models.als import nearest, retrieval

K = 20
USERS = 500
COPIES = (1, 5, 25)
SHARES = (0.02, 0.05, 0.1, 0.2)
NOISE = 0.5


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder or npz file")
    train, _ = recommendation.read(parser.parse_args().data)
    model = als.RGFactorizer(num_factors=64, sweeps=5).fit(tuple(train))
    use_one_core()
    random = np.random.default_rng(0)
    users = model.user_factors_[random.choice(len(model.user_factors_), USERS, replace=False)]
    print(f"{machine()}\n")
    print(f"| items | exact us | clusters | build s | probes | us | recall@20 |\n{'|---' * 7}|")
    for copies in COPIES:
        items = np.tile(model.item_factors_, (copies, 1))
        noise = NOISE * items.std(axis=0) * random.normal(size=items.shape)
        items = (items + (copies > 1) * noise).astype(np.float32)
        began = time.perf_counter()
        num_clusters = round(len(items) ** 0.5)
        index = nearest.ItemIndex(items, num_clusters)
        build = time.perf_counter() - began
        for share in SHARES:
            probes = round(share * num_clusters)
            index.probes = probes
            exact, found = retrieval.best(users, items, K)[0], index.best(users, K)[0]
            recall = np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)])
            taken = timings(
                {
                    "exact": lambda items=items: retrieval.best(users, items, K),
                    "approximate": lambda index=index: index.best(users, K),
                },
                rounds=3,
            )
            exact_us, us = (1e6 * taken[name].seconds / USERS for name in ("exact", "approximate"))
            print(
                f"| {len(items):,} | {exact_us:.0f} | {num_clusters} | {build:.1f} | {probes} "
                f"| {us:.0f} | {recall:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
