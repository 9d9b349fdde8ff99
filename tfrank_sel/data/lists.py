"""Lists that readers yield, errors that they raise, and lists across parts of a file."""

import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from tfrank_sel.arguments import Checked
from tfrank_sel.refusals import refusal

Piece = TypeVar("Piece")


class InputError(ValueError):
    """Invalid input: the message names the place, the rule and the received value.

    Args:
        place: Place of the error: a file, or `file:line`.
        reason: The rule and the received value, in one line.
        *more: Further lines.

    Example:
        >>> print(InputError("train.txt:7", "expected `qid:ID` after the label. Received: '1:0.5'"))
        train.txt:7: expected `qid:ID` after the label. Received: '1:0.5'
    """

    _tagged_with_step = True  # Beam adds the name of a step to the text of others

    def __init__(self, place: str, reason: str, *more: str) -> None:
        reason = " ".join(reason.splitlines())  # of other libraries
        super().__init__(place, reason, *more)
        self.place, self.reason, self.more = place, reason, more

    def __str__(self) -> str:
        return "\n".join([f"{self.place}: {self.reason}", *self.more])


@dataclasses.dataclass(frozen=True, eq=False)
class ItemList(Checked):
    """One list: a query and its items, in the order of the source.

    Args:
        query_id: Identifier of the query.
        labels: Relevance of each item, `[list_size]`, float32, finite and not negative.
        features: Numbers of each item, `[list_size, num_features]`, float32; NaN for a missing
            number, if its type allows that.
        doc_ids: Identifier of each item.
        texts: Texts of each item, `[list_size, num_texts]`, of `str`; empty if missing.
        weights: Weight of each item, `[list_size]`, float32; None for 1.

    Raises:
        ValueError: If the parts disagree on the number of items.
    """

    query_id: str
    labels: np.ndarray
    features: np.ndarray
    doc_ids: tuple[str, ...]
    texts: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        parts = {name: x for name, x in vars(self).items() if name != "query_id" and x is not None}
        sizes = {name: len(x) for name, x in parts.items()}
        if self.features.ndim != 2 or len(set(sizes.values())) > 1:
            raise refusal(
                "the parts of a list must describe the same items, and `features` have two axes",
                f"{sizes}, features of shape {self.features.shape}",
            )


@dataclasses.dataclass(frozen=True)
class Found:
    """A list that was read.

    Args:
        item_list: The list.
        context: Other values of the query, by name.
    """

    item_list: ItemList
    context: Mapping[str, str | float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A rejected line, row, record or file.

    Args:
        file: The file.
        unit: The counted unit: `line`, `row` or `record`.
        number: Number of the unit, from 1; None if the whole file is rejected.
        reason: The rule and the received value.
        text: Content of the unit, if it is text.
    """

    file: str
    unit: str
    number: int | None
    reason: str
    text: str | None = None

    @property
    def place(self) -> str:
        """The place: `file:line`, or `file, row 7`."""
        if self.number is None:
            return self.file
        if self.unit == "line":
            return f"{self.file}:{self.number}"
        return f"{self.file}, {self.unit} {self.number}"

    @property
    def rule(self) -> str:
        """The broken rule."""
        return self.reason.partition(". Received")[0]

    def error(self) -> InputError:
        """Returns the error to raise if nothing may be rejected."""
        return InputError(self.place, self.reason)


def strict(units: Iterable[Found | Rejected]) -> Iterator[ItemList]:
    """Yields only the lists.

    Raises:
        InputError: At the first rejected unit.
    """
    for unit in units:
        if isinstance(unit, Rejected):
            raise unit.error()
        yield unit.item_list


def groups(keys: Iterable[Hashable]) -> tuple[np.ndarray, np.ndarray]:
    """Groups positions by key, in the order of the first position of each key.

    Args:
        keys: The key of each position.

    Returns:
        The size of each group, and the positions, group by group.

    Example:
        >>> sizes, order = groups(["b", "a", "b"])
        >>> sizes.tolist(), order.tolist()
        ([2, 1], [0, 2, 1])
    """
    seen: dict[Hashable, int] = {}
    codes = np.array([seen.setdefault(key, len(seen)) for key in keys], np.int64)
    return np.bincount(codes), np.argsort(codes, kind="stable")


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
    for unit in own:
        if isinstance(unit, Rejected):
            yield unit
            continue
        name, piece = unit
        if name != query:
            if kept:
                yield str(query), kept
            is_mine, query, kept = is_first or query is not None, name, []
        if is_mine:
            kept.append(piece)
    if query is None and not is_first:
        return  # the first piece of the rest is also the first of this part
    is_next = True
    for unit in rest:
        if isinstance(unit, Rejected):  # the part that it belongs to yields it
            continue
        name, piece = unit
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
