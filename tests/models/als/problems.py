"""Small problems of alternating least squares, and their dense solution in float64."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tfrank_sel.models.als.objectives import Objective
from tfrank_sel.models.als.solver import Solver


class Problem(NamedTuple):
    gains: np.ndarray
    list_weights: np.ndarray
    base_weights: np.ndarray
    user_ridges: np.ndarray
    item_ridges: np.ndarray
    users: np.ndarray
    items: np.ndarray


def problem(num_users=40, num_items=30, num_factors=5, density=0.3, seed=0) -> Problem:
    """Graded gains, uneven weights, and a user and an item without a positive."""
    rng = np.random.default_rng(seed)
    shape = (num_users, num_items)
    gains = np.where(rng.random(shape) < density, rng.integers(1, 4, shape), 0).astype(float)
    gains[2] = gains[:, 1] = 0.0
    base = rng.uniform(0.5, 2.0, num_items)
    return Problem(
        gains,
        rng.uniform(0.5, 2.0, num_users),
        base * num_items / base.sum(),
        rng.uniform(0.1, 1.0, num_users),
        rng.uniform(0.1, 1.0, num_items),
        rng.normal(0.0, 0.5, (num_users, num_factors)),
        rng.normal(0.0, 0.5, (num_items, num_factors)),
    )


def solver(of: Problem, objective: Objective, *, threads=1, cg=None, dtype="float64", **options):
    ridges = of.user_ridges, of.item_ridges
    weights = of.list_weights, of.base_weights
    matrix = sp.csr_matrix(of.gains)
    return Solver(matrix, objective, *ridges, *weights, cg, threads, dtype, **options)


def dense_value(of: Problem, objective: Any, users: np.ndarray, items: np.ndarray) -> float:
    """The objective, by loops over all pairs."""
    total = np.sum(of.user_ridges[:, None] * users**2) / 2
    total += np.sum(of.item_ridges[:, None] * items**2) / 2
    num_items = len(items)
    for u, gains in enumerate(of.gains):
        o, v = items @ users[u], of.base_weights
        scale = objective.scale(np.array([gains.sum()]), num_items)[0]
        loss = scale * np.sum(v * (objective.lift * o + o**2 / 2))
        loss -= scale * objective.kappa / (2 * num_items) * np.sum(v * o) ** 2
        for g, score in zip(gains[gains > 0], o[gains > 0], strict=True):
            curvature, slope, offset = (
                constant + factor * g
                for constant, factor in (objective.curvature, objective.slope, objective.offset)
            )
            loss += curvature / 2 * score**2 - slope * score + offset
        total += of.list_weights[u] * loss
    return float(total)


def dense_minimum(of: Problem, objective: Any, users: np.ndarray, items: np.ndarray, side: int):
    """What minimises the objective over one side: a Newton step by finite differences."""
    shape = (users, items)[side].shape

    def value(x: np.ndarray) -> float:
        both = [users, items]
        both[side] = x.reshape(shape)
        return dense_value(of, objective, *both)

    size = int(np.prod(shape))
    unit = np.eye(size)
    zero = value(np.zeros(size))
    up = np.array([value(e) for e in unit])
    down = np.array([value(-e) for e in unit])
    gradient = (up - down) / 2
    hessian = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            both = value(unit[i] + unit[j])
            hessian[i, j] = hessian[j, i] = both - up[i] - up[j] + zero
    return np.linalg.solve(hessian, -gradient).reshape(shape)
