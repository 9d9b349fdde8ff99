"""What every reader yields, and the error every reader raises."""

import dataclasses

import numpy as np

from tfrank_sel.arguments import Checked


class InputError(ValueError):
    """Input that cannot be used as it is: the message names the place, the rule and what was found.

    Args:
        place: Where it was found: a file, or `file:line`.
        reason: What is required and what was received, in one line.

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
        features: Features of each item, `[list_size, num_features]`, float32, finite.
        doc_ids: Identifier of each item.

    Raises:
        ValueError: If the parts disagree on the number of items.
    """

    query_id: str
    labels: np.ndarray
    features: np.ndarray
    doc_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        sizes = (len(self.labels), len(self.features), len(self.doc_ids))
        if self.features.ndim != 2 or len(set(sizes)) > 1:
            raise ValueError(
                "`labels`, `features` and `doc_ids` must describe the same items. Received: "
                f"{sizes[0]} labels, features of shape {self.features.shape}, {sizes[2]} doc ids"
            )
