"""Lists that readers yield, and errors that they raise."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tfrank_sel.arguments import Checked


class InputError(ValueError):
    """Invalid input: the message names the place, the rule and the received value.

    Args:
        place: Place of the error: a file, or `file:line`.
        reason: The rule and the received value, in one line.

    Example:
        >>> print(InputError("train.txt:7", "expected `qid:ID` after the label. Received: '1:0.5'"))
        train.txt:7: expected `qid:ID` after the label. Received: '1:0.5'
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


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
            raise ValueError(
                "the parts of a list must describe the same items, and `features` have two axes. "
                f"Received: {sizes}, features of shape {self.features.shape}"
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


def strict(found: Iterable[Found | Rejected]) -> Iterator[ItemList]:
    """Yields only the lists.

    Raises:
        InputError: At the first rejected unit.
    """
    for one in found:
        if isinstance(one, Rejected):
            raise one.error()
        yield one.item_list
