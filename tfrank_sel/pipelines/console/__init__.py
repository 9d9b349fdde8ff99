"""Console of a run: its progress, and its interrupts."""

from tfrank_sel.pipelines.console.progress import Activity as Activity, Progress as Progress
