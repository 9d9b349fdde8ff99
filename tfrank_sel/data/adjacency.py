"""Adjacent pieces of queries, in a file that several workers read in parts."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from tfrank_sel.data.lists import Rejected

Piece = TypeVar("Piece")


def runs(
    own: Iterable[tuple[str, Piece] | Rejected],
    rest: Iterable[tuple[str, Piece] | Rejected] = (),
    *,
    is_first: bool = True,
) -> Iterator[tuple[str, list[Piece]] | Rejected]:
    """Joins adjacent pieces of one query, and assigns each run of pieces to one part of the file.

    A run that contains the first piece of a part belongs to the part before. Thus a part skips its
    first run, and continues to the end of the run that contains the first piece after the part.

    Args:
        own: Queries and pieces of a part, and rejected units.
        rest: Queries and pieces after the part, of which a few are read.
        is_first: Whether this is the first part of the file, which skips nothing.

    Yields:
        A query and its pieces; the rejected units of the part.

    Example:
        >>> items = [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)]
        >>> list(runs(items[:3], items[3:]))
        [('a', [1, 2]), ('b', [3, 4])]
        >>> list(runs(items[3:], is_first=False))
        [('c', [5])]
    """
    query, is_mine = None, is_first
    kept: list[Piece] = []
    for one in own:
        if isinstance(one, Rejected):
            yield one
            continue
        name, piece = one
        if name != query:
            if kept:
                yield str(query), kept
            is_mine, query, kept = is_first or query is not None, name, []
        if is_mine:
            kept.append(piece)
    if query is None and not is_first:
        return  # the first piece of the rest is also the first of this part
    is_next = True
    for one in rest:
        if isinstance(one, Rejected):
            continue
        name, piece = one
        if name != query and is_next:
            if kept:
                yield str(query), kept
            is_mine, query, kept = True, name, []
        elif name != query or not is_mine:
            break
        kept.append(piece)
        is_next = False
    if kept:
        yield str(query), kept
