"""Console of a run: its progress, and its interrupts."""

from tfrank_sel.pipelines.console.progress import Activity, Progress

__all__ = ["Activity", "Progress"]
