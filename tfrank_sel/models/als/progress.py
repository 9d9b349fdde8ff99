"""Progress of a fit: values of a sweep, a progress bar, TensorBoard logs, and a warning."""

import contextlib
import os
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import rich.progress
from numpy.typing import NDArray

from tfrank_sel.arguments import StrPath
from tfrank_sel.models.als import retrieval
from tfrank_sel.models.als.solver import Solver

_VALIDATION_CUTOFF = 10
_COLLAPSED = 1e-6  # of the second eigenvalue to the first, or of the mean square length


class Reporter:
    """Context manager that reports rows as they are solved, and the values of each sweep.

    Args:
        sweeps: Number of sweeps.
        rows: Number of rows of a sweep: users and items.
        verbose: Whether to show a progress bar, with the time left.
        log_dir: Folder for TensorBoard, if any.
    """

    def __init__(self, sweeps: int, rows: int, verbose: bool, log_dir: StrPath | None) -> None:
        self._rows = rows
        self._bar = rich.progress.Progress(
            *rich.progress.Progress.get_default_columns(),
            rich.progress.TextColumn("{task.fields[values]}"),
            disable=not verbose,
        )
        self._task = self._bar.add_task("sweeps", total=sweeps * rows, values="")
        self._log_dir = log_dir
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._bar)
        if self._log_dir is not None:
            import tensorflow as tf

            self._log = tf.summary.scalar
            writer = tf.summary.create_file_writer(os.fspath(self._log_dir))
            self._open.enter_context(writer.as_default())
            self._open.callback(writer.close)
        return self

    def __exit__(self, *args: Any) -> None:
        self._open.close()

    def advance(self, rows: int) -> None:
        """Reports solved rows."""
        self._bar.update(self._task, advance=rows)

    def __call__(self, sweep: int, values: Mapping[str, float]) -> None:
        """Reports one sweep, counted from 0."""
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._bar.update(self._task, completed=(sweep + 1) * self._rows, values=shown)
        if self._log_dir is not None:
            for name, value in values.items():
                self._log(name, value, step=sweep)


def epoch_metrics(
    solver: Solver,
    users: NDArray[np.floating],
    items: NDArray[np.floating],
    seen: Any,
    held_out: Any,
) -> dict[str, float]:
    """Returns the objective, the norm of logits and, with held-out positives, their ranks."""
    values = {
        "objective": solver.value(users, items),
        "logit_norm": solver.logit_norm(users, items),
    }
    if held_out is None:
        return values
    all_items = solver.group.gather_rows(items)
    ids, _ = retrieval.best(users, all_items, _VALIDATION_CUTOFF, seen, solver.num_threads)
    return values | retrieval.ranking_quality(ids, held_out, solver.group)


def warn_if_collapsed(factors: NDArray[np.floating]) -> None:
    """Warns if all vectors are parallel or 0, so that every user gets the same items."""
    if min(factors.shape) < 2:
        return
    squares = np.linalg.eigvalsh(factors.T.astype(np.float64) @ factors)
    if squares[-2] <= _COLLAPSED * squares[-1] or squares[-1] <= _COLLAPSED * len(factors):
        warnings.warn(
            "the vectors of all items are parallel or nearly 0, so every user gets the same items. "
            "The regularization is too strong for these data: lower `regularization` or "
            "`count_exponent`",
            stacklevel=3,
        )
