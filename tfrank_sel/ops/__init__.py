"""Pure functions over masked lists: reductions, ranking, and the pieces of stable divergences."""
