"""One process of several that fit together: `python -m tests.models.als.one_process FOLDER`."""

import sys

import numpy as np
import scipy.sparse as sp

from tfrank_sel.models.als import RG2, CollectiveGroup, RGCross, RGFactorizer, WeightedSquare

FACTORIZERS = {
    "weighted": RGFactorizer(
        RG2(alpha=0.2), popularity_exponent=0.5, sweeps=6, patience=1, num_factors=6, num_threads=1
    ),
    "joint": RGFactorizer(
        RGCross(alpha=0.2, joint=True), sweeps=3, num_factors=6, num_threads=1, dtype="float64"
    ),
    "steps": RGFactorizer(
        WeightedSquare(), sweeps=3, num_factors=6, num_threads=1, cg_steps=2, dtype="float64"
    ),
}


def interactions() -> tuple[sp.csr_matrix, sp.csr_matrix, np.ndarray]:
    """Positives, those held out, and list weights."""
    rng = np.random.default_rng(0)
    gains = np.where(rng.random((90, 41)) < 0.08, rng.integers(1, 4, (90, 41)), 0.0)
    held_out = np.where(rng.random(gains.shape) < 0.2, gains, 0.0)
    gains[np.arange(90), np.arange(90) % 41] += 1.0  # a user of nothing ranks rounding errors
    train, validation = sp.csr_matrix(gains - held_out), sp.csr_matrix(held_out)
    return train, validation, rng.uniform(0.5, 2.0, 90)


def fitted(own: slice, **options: object) -> dict[str, np.ndarray]:
    train, validation, weights = (x[own] for x in interactions())
    out = {}
    for name, model in FACTORIZERS.items():
        model.fit(train, validation, list_weights=weights, **options)
        out[f"{name} users"] = model.user_factors_
        out[f"{name} items"] = model.item_factors_
        out[f"{name} history"] = np.array([[*values.values()] for values in model.history_])
    return out


if __name__ == "__main__":
    group = CollectiveGroup(piece_bytes=1000)  # so that there are several
    bounds = [0, 30, 90]  # uneven
    found = fitted(slice(*bounds[group.rank : group.rank + 2]), group=group)
    np.savez(f"{sys.argv[1]}/{group.rank}.npz", **found)
