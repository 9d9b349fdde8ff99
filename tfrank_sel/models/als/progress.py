"""Progress of a fit: a progress bar, and TensorBoard logs."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Self

import rich.progress
import tensorflow as tf


class Reporter:
    """Context manager that reports the values of each sweep.

    Args:
        total: Number of sweeps.
        verbose: Whether to show a progress bar.
        log_dir: Folder for TensorBoard, if any.
    """

    def __init__(self, total: int, verbose: bool, log_dir: str | os.PathLike[str] | None) -> None:
        self._bar = rich.progress.Progress(
            *rich.progress.Progress.get_default_columns(),
            rich.progress.TextColumn("{task.fields[values]}"),
            disable=not verbose,
        )
        self._task = self._bar.add_task("sweeps", total=total, values="")
        self._log_dir = log_dir
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._bar)
        if self._log_dir is not None:
            writer = tf.summary.create_file_writer(os.fspath(self._log_dir))
            self._open.enter_context(writer.as_default())
            self._open.callback(writer.close)
        return self

    def __exit__(self, *args: Any) -> None:
        self._open.close()

    def __call__(self, sweep: int, values: Mapping[str, float]) -> None:
        """Reports one sweep, counted from 0."""
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._bar.update(self._task, advance=1, values=shown)
        if self._log_dir is not None:
            for name, value in values.items():
                tf.summary.scalar(name, value, step=sweep)
