"""Bands of counts, such as list sizes and query frequencies."""

from collections.abc import Sequence

LIST_SIZES = (10, 50, 200)
FREQUENCIES = (1, 10, 100)


def band(count: int, edges: Sequence[int]) -> str:
    """Returns the band that a count is in.

    Args:
        count: The count, positive.
        edges: Increasing upper limits of all bands except the last.

    Example:
        >>> [band(count, LIST_SIZES) for count in (1, 10, 11, 500)]
        ['1-10', '1-10', '11-50', '201+']
    """
    low = 1
    for edge in edges:
        if count <= edge:
            return f"{low}-{edge}" if low < edge else f"{edge}"
        low = edge + 1
    return f"{low}+"
