"""The optimum of the joint n-way loss: a closed form up to one number per class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class JointOptimum(NamedTuple):
    """The minimum of an `NWayJointLoss`.

    Attributes:
        scores: The optimal scores, `[num_rows, num_classes]`, of mean 0 in each row.
        class_factors: The factor `A_j` of each class there, `[num_classes]`; the least loss is the
            sum of their logarithms.
    """

    scores: NDArray[np.float64]
    class_factors: NDArray[np.float64]


def joint_optimum(labels: ArrayLike) -> JointOptimum:
    """Computes the scores that minimise `NWayJointLoss` for soft labels.

    With `A_j = exp(loss_j)` held fixed, the gradient of a row is zero at

    ```
    softmax(2 * s_i)_j = t_ij / A_j / sum_k t_ik / A_k
    ```

    This leaves `num_classes` equations for `B_j = sqrt(A_j)`, with
    `M_jk = sum_i sqrt(t_ij * t_ik)`:

    ```
    B_j - 1 / B_j = sum_{k != j} M_jk / B_k
    ```

    which Newton's method solves in the logarithms of `B`.

    Args:
        labels: Probabilities `t_ij`, `[num_rows, num_classes]`, all of them positive.

    Returns:
        The optimal scores and the factors of the classes.

    Raises:
        ValueError: If a label is not positive: the optimal scores are then infinite.

    Example:
        >>> scores, class_factors = losses.joint_optimum([[0.5, 0.5]])
        >>> scores.tolist(), class_factors.round(9).tolist()
        ([[0.0, 0.0]], [1.5, 1.5])
    """
    t = np.asarray(labels, np.float64)
    if t.ndim != 2 or not np.all(t > 0.0):
        raise ValueError(
            "`labels` must be positive, of shape [num_rows, num_classes]. "
            f"Received: shape {t.shape}, least label {np.min(t, initial=np.inf)}"
        )
    overlaps = np.sqrt(t).T @ np.sqrt(t)
    np.fill_diagonal(overlaps, 0.0)
    # b = log(B); if all classes were equal, B**2 would be 1 + the sum of overlaps
    b = 0.5 * np.log1p(overlaps.sum(axis=1))
    for _ in range(100):
        slope = np.diag(2.0 * np.cosh(b)) + overlaps * np.exp(-b)
        step = np.linalg.solve(slope, overlaps @ np.exp(-b) - 2.0 * np.sinh(b))
        b += np.clip(step, -1.0, 1.0)
        if np.max(np.abs(step)) < 1e-14:
            break
    scores = 0.5 * np.log(t) - b
    return JointOptimum(scores - scores.mean(axis=1, keepdims=True), np.exp(2.0 * b))
