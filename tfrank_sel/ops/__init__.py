"""Pure functions over masked lists: reductions, ranking, and parts of stable divergences."""
