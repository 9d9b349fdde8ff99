"""The parts of a list: their names in files, and what a list holds."""

import dataclasses
from collections.abc import Mapping

from tfrank_sel.arguments import Checked
from tfrank_sel.features import Feature, check


@dataclasses.dataclass(frozen=True)
class Columns(Checked):
    """Names of the parts of a list, in files that name them: all but LETOR.

    Args:
        query: The identifier of the query. A record that has none is named by its content.
        label: The relevance.
        doc_id: The identifier of the item; if there is none, `ID:position`.
        features: The features, in the order that the model takes them; by default all that are
            numbers and have no other role, by name in records and as they stand in tables.
        context: What else to keep of a query, to slice the evaluation by; of a table, the value in
            the first row of the query.
        num_features: Number of features of LETOR files, which do not name them; by default the
            largest index, found by an extra pass.

    Raises:
        ValueError: If a name has two roles.
    """

    query: str = "query_id"
    label: str = "relevance"
    doc_id: str = "doc_id"
    features: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    num_features: int | None = None

    def __post_init__(self) -> None:
        names = [*self.others, *self.features]
        if len(set(names)) < len(names):
            raise ValueError(f"the names of columns must differ. Received: {names}")

    @property
    def others(self) -> tuple[str, ...]:
        """The names that are no features."""
        return (self.query, self.label, self.doc_id, *self.context)

    @property
    def required(self) -> tuple[str, ...]:
        """The names that a table must have: a `doc_id` only if it is not the default."""
        ids = () if self.doc_id == Columns.doc_id else (self.doc_id,)
        return (self.query, self.label, *ids, *self.features, *self.context)


@dataclasses.dataclass(frozen=True)
class Layout(Checked):
    """The features of an item and the context of a query.

    Args:
        features: The type of each feature, by name, in the order of the matrices.
        context: What is kept of the query beside its identifier, and whether it is a number.

    Raises:
        ValueError: If a feature refers to another that is not there.

    Example:
        >>> from tfrank_sel.features import Category, Number, Vector
        >>> layout = Layout({"price": Number(), "embedding": Vector(size=2), "brand": Category()})
        >>> layout.names, layout.texts
        (['price', 'embedding[1]', 'embedding[2]'], ['brand'])
    """

    features: Mapping[str, Feature]
    context: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self.features)

    @property
    def names(self) -> list[str]:
        """A name for each number of an item; those of one feature are counted from 1."""
        return [x for name, feature in self.features.items() for x in feature.numbers(name)]

    @property
    def texts(self) -> list[str]:
        """A name for each text of an item."""
        return [x for name, feature in self.features.items() for x in feature.texts(name)]

    @property
    def columns(self) -> list[str]:
        """A name for each number of an item that is standardised; see `Feature.columns`."""
        return [x for name, feature in self.features.items() for x in feature.columns(name)]
