"""What one example holds: the names of its parts and how many features an item has."""

import dataclasses

from tfrank_sel.serialization import Configurable, register


@register
@dataclasses.dataclass(frozen=True)
class FeatureSpec(Configurable):
    """The contract between stored examples, model and served signatures.

    An example is one list: a query and its items. In an `ExampleListWithContext` the context holds
    `query_id` (bytes), and each item holds `features` (`num_features` floats in one packed list),
    `label` (one float; absent when serving) and `doc_id` (bytes; optional).

    Args:
        num_features: Number of floats that describe an item.
        features: Name of an item's packed features.
        label: Name of an item's relevance label.
        doc_id: Name of an item's identifier.
        query_id: Name of the query's identifier, in the context.

    Raises:
        ValueError: If `num_features` is not positive, or if two names are equal.
    """

    num_features: int
    features: str = "features"
    label: str = "relevance"
    doc_id: str = "doc_id"
    query_id: str = "query_id"

    def __post_init__(self) -> None:
        if self.num_features < 1:
            raise ValueError(f"`num_features` must be positive. Received: {self.num_features}")
        names = (self.features, self.label, self.doc_id, self.query_id)
        if len(set(names)) < len(names):
            raise ValueError(f"The names of a `FeatureSpec` must differ. Received: {names}")
