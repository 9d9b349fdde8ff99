"""The functions of tensors of which formulas are made."""

from tfrank_sel.numerics.tensorflow import *  # noqa: F403
