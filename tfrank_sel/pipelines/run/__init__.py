"""A run: its plan, its steps, their results, and comparisons of runs."""

from tfrank_sel.pipelines.run.execution import assist, carry_out, check, run

__all__ = ["assist", "carry_out", "check", "run"]
