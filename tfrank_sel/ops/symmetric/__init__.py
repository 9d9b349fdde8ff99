"""Elementary symmetric polynomials of exponentials: their logarithms, and a ratio of them."""

from tfrank_sel.ops.symmetric.kth_largest import (
    soft_kth_largest as soft_kth_largest,
    soft_kth_largest_beside as soft_kth_largest_beside,
)
from tfrank_sel.ops.symmetric.logarithms import log_symmetric as log_symmetric
