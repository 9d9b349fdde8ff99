"""Contributions of a user's items to the score of an item."""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from tfrank_sel.models.als.objectives import Objective

Float64s = NDArray[np.float64]


class Explanation(NamedTuple):
    """A score as a sum over the items that the user took.

    Attributes:
        items: The user's items, from the largest contribution to the smallest.
        contributions: Their contributions to the score.
        rest: The rest of the score, which the loss of the items not taken contributes.
    """

    items: NDArray[Any]
    contributions: Float64s
    rest: float

    @property
    def score(self) -> float:
        """The sum of all contributions."""
        return float(self.contributions.sum() + self.rest)


def explained(
    item: int,
    row: Any,
    objective: Objective,
    factors: NDArray[Any],
    base_weights: Float64s,
    ridge: float,
) -> Explanation:
    """Divides the score of an item by the terms of the linear system of the user's vector.

    Args:
        item: Index of the item.
        row: SciPy CSR matrix of the user's positives, `[1, items]`.
        objective: The loss of the user.
        factors: The items' vectors.
        base_weights: Base weight of each item.
        ridge: Regularisation of the user.
    """
    q, gains = factors.astype(np.float64), row.data.astype(np.float64)
    taken, num_items = q[row.indices], len(q)
    (scale,) = objective.scale(np.array([gains.sum()]), num_items)
    total = base_weights @ q
    system = scale * (q.T * base_weights) @ q
    system -= scale * objective.kappa / num_items * np.outer(total, total)
    curvatures = objective.curvature[0] + objective.curvature[1] * gains
    system += (taken.T * curvatures) @ taken + ridge * np.eye(q.shape[1])
    direction = scipy.linalg.solve(system, q[item], assume_a="pos")
    slopes = objective.slope[0] + objective.slope[1] * gains
    contributions = slopes * (taken @ direction)
    order = np.argsort(-contributions, kind="stable")
    rest = -scale * objective.lift * float(total @ direction)
    return Explanation(row.indices[order].astype(np.int32), contributions[order], rest)
