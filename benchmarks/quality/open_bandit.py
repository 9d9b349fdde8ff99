"""Values by `tfrank_sel.clicks` of two policies of a shop that served both at random.

    python -m benchmarks.quality.open_bandit --data zr-obp/obp/dataset/obd

`--data` has the samples of Open Bandit in `obp` 0.5.5: 10,000 impressions of three places by a
random policy and by Bernoulli Thompson sampling (BTS), of each of two campaigns. From the log of
each policy follows the clicks per impression of the other one; truth is the log of that. BTS chose
an item at a place with its share of its own log.
"""

import argparse
import pathlib

import numpy as np
from pyarrow import csv

from tfrank_sel import clicks

ESTIMATORS = ("ips", "snips")
NAMES = {"random": "random", "bts": "BTS"}


def read(folder: pathlib.Path, campaign: str, policy: str) -> dict[str, np.ndarray]:
    """Columns of a log."""
    table = csv.read_csv(folder / policy / campaign / f"{campaign}.csv")
    names = ("item_id", "position", "click", "propensity_score")
    return {name: table[name].to_numpy() for name in names}


def probabilities(
    log: dict[str, np.ndarray], target: dict[str, np.ndarray], policy: str
) -> np.ndarray:
    """The probability of each item of a log by the policy of another log, at its place."""
    if policy == "random":
        return np.full(len(log["click"]), target["propensity_score"][0])
    keys = [100 * x["position"] + x["item_id"] for x in (target, log)]
    size = 1 + max(x.max() for x in keys)
    shares = np.bincount(keys[0], minlength=size)[keys[1]]
    return np.asarray(shares / np.bincount(target["position"])[log["position"]])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    folder = parser.parse_args().data
    print(f"| campaign | log of | value of | true, ± 1.96 errors | {' | '.join(ESTIMATORS)} |")
    print(f"|{'---|' * (4 + len(ESTIMATORS))}")
    for campaign in ("men", "women"):
        for policy, other in (("random", "bts"), ("bts", "random")):
            log, truth = (read(folder, campaign, x) for x in (policy, other))
            target = probabilities(log, truth, other)
            cells = [campaign, NAMES[policy], NAMES[other]]
            error = 1.96 * truth["click"].std() / len(truth["click"]) ** 0.5
            cells.append(f"{truth['click'].mean():.4f} ± {error:.4f}")
            for estimator in ESTIMATORS:
                x = clicks.value(log["click"], log["propensity_score"], target, estimator)
                cells.append(f"{x.value:.4f} ({x.low:.4f} to {x.high:.4f})")
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
