"""What a list holds: names of its parts in files, and its features by type."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfrank_sel import artefacts
from tfrank_sel.arguments import Checked, StrPath
from tfrank_sel.errors import refusal
from tfrank_sel.features import Category, FeatureTypes, Hash, Set, check, of_config, spans

if TYPE_CHECKING:
    from tfrank_sel.data.spec import FeatureSpec


def is_index(name: str) -> bool:
    """Whether pandas gives this column name to an index in a file.

    Example:
        >>> is_index(""), is_index("__index_level_0__"), is_index("price")
        (True, True, False)
    """
    return not name or name.startswith(("__index_level_", "Unnamed: "))


@dataclasses.dataclass(frozen=True)
class Columns(Checked):
    """Names of the parts of a list, in all formats with names (all except LETOR).

    The weight of an item is `weight * list_weight`, divided by `propensity` if its label is
    positive; a part that has no column counts as 1.

    Args:
        query: Query identifier. A record without one is identified by its content.
        label: Relevance; None if the files have none or it should not be read: labels are then 0.
        doc_id: Item identifier; without it, `ID:position`. It may also be a feature, a `Category`
            or `Hash` of texts.
        features: Features, in the order of the model inputs: names of finite numbers without
            missing values, or types by name. By default all numbers without another role, ordered
            by name in records and by column in tables, without an index of pandas.
        context: Other values of a query to keep, for slices of the evaluation; in a table, the
            value in the first row of the query. They may also be features.
        num_features: Number of features of LETOR files, which do not name them; by default the
            largest index, found by an extra pass.
        weight: The weight of the item, finite and not negative.
        list_weight: The weight of the list, finite and positive; in records, of the query.
        propensity: The probability that the item was examined, in (0, 1].

    Raises:
        ValueError: If a name has two roles, or a feature refers to a missing feature.
    """

    query: str = "query_id"
    label: str | None = "relevance"
    doc_id: str = "doc_id"
    features: Sequence[str] | FeatureTypes = ()
    context: tuple[str, ...] = ()
    num_features: int | None = None
    weight: str | None = None
    list_weight: str | None = None
    propensity: str | None = None

    def __post_init__(self) -> None:
        roles: dict[str, str] = {}
        for role, name in self._roles():
            allowed = role == "feature" and (
                roles.get(name) == "context"
                or (roles.get(name) == "doc_id" and self._is_text(name))
            )
            if name in roles and not allowed:
                roles_of_name = f"{name!r} as {roles[name]} and as {role}"
                raise refusal("the names of columns must differ", roles_of_name)
            roles[name] = role
        check(self.types)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Makes the columns from the result of `get_config`."""
        features = config["features"]
        if isinstance(features, Mapping):
            features = {name: of_config(feature) for name, feature in features.items()}
        return cls(**{**config, "features": features, "context": tuple(config["context"])})

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments as JSON-ready values.

        Example:
            >>> Columns.from_config(Columns(features=("price",)).get_config()).features
            ['price']
        """
        config = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        types = {name: feature.config() for name, feature in self.types.items()}
        return {**config, "features": types or list(self.features), "context": list(self.context)}

    def _is_text(self, name: str) -> bool:
        """Whether a feature is one text of an item, as an identifier is."""
        feature = self.types.get(name)
        if not isinstance(feature, Category | Hash) or isinstance(feature, Set):
            return False
        return feature.of == "item" and feature.dtype == "string"

    def _roles(self) -> Iterator[tuple[str, str]]:
        yield from (("query", self.query), ("doc_id", self.doc_id), *self.measures.items())
        yield from (("context", name) for name in self.context)
        yield from (("feature", name) for name in self.features)

    @property
    def types(self) -> FeatureTypes:
        """The type of each feature, by name; none if the features are only names."""
        return self.features if isinstance(self.features, Mapping) else {}

    @property
    def measures(self) -> dict[str, str]:
        """The columns of the label and of the weights, by role."""
        named = ("label", "weight", "list_weight", "propensity")
        return {role: name for role in named if (name := getattr(self, role)) is not None}

    @property
    def texts(self) -> tuple[str, ...]:
        """The names whose values are texts, if they are not numbers."""
        typed = [name for name, feature in self.types.items() if feature.texts(name)]
        return (self.query, self.doc_id, *self.context, *typed)

    @property
    def others(self) -> tuple[str, ...]:
        """The names that are not features."""
        return tuple(name for role, name in self._roles() if role != "feature")

    @property
    def required_names(self) -> tuple[str, ...]:
        """The required columns of a table, with a `doc_id` only if it is not the default."""
        is_optional = self.doc_id == Columns.doc_id
        return tuple(name for role, name in self._roles() if role != "doc_id" or not is_optional)


@dataclasses.dataclass(frozen=True)
class Schema(Checked):
    """What a list holds: its features, the context of its query, and the names of all parts.

    Args:
        features: The type of each feature, by name, in the order of the matrices.
        context: Values of the query that are kept, and whether each is a number.
        columns: Names of the parts in files.

    Raises:
        ValueError: If a feature refers to a missing feature.

    Example:
        >>> from tfrank_sel.features import Category, Number, Vector
        >>> schema = Schema({"price": Number(), "embedding": Vector(size=2), "brand": Category()})
        >>> schema.names, schema.texts
        (['price', 'embedding[1]', 'embedding[2]'], ['brand'])
    """

    features: FeatureTypes
    context: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    columns: Columns = dataclasses.field(default_factory=Columns)

    def __post_init__(self) -> None:
        check(self.features)

    @property
    def types(self) -> FeatureTypes | None:
        """The types of the features that a server takes by name; None if it takes them packed.

        They are packed if `columns` has no types.
        """
        return self.features if self.columns.types else None

    @property
    def request_features(self) -> FeatureTypes:
        """The features of a request: `types`, or all numbers as one vector."""
        return self.types or self.spec.types

    @functools.cached_property
    def spec(self) -> "FeatureSpec":
        """Names and sizes of the parts of a stored list."""
        from tfrank_sel.data.spec import FeatureSpec

        is_weighted = bool(self.columns.measures.keys() - {"label"})
        weight = "weight" if is_weighted else None
        return FeatureSpec(len(self.names), num_texts=len(self.texts), weight=weight)

    @property
    def names(self) -> list[str]:
        """A name for each number of an item; several numbers of one feature are counted from 1."""
        return [x for name, feature in self.features.items() for x in feature.numbers(name)]

    @property
    def texts(self) -> list[str]:
        """A name for each text of an item."""
        return [x for name, feature in self.features.items() for x in feature.texts(name)]

    @functools.cached_property
    def of_query(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the columns of both matrices that are equal for all items of a list."""
        numbers, texts = np.zeros(len(self.names), bool), np.zeros(len(self.texts), bool)
        for _, feature, is_text, span in spans(self.features):
            (texts if is_text else numbers)[span] = feature.of == "query"
        return np.flatnonzero(numbers), np.flatnonzero(texts)

    def write(self, path: StrPath) -> None:
        """Writes the features and the context to a JSON file."""
        features = {name: feature.config() for name, feature in self.features.items()}
        artefacts.write_json(path, {"features": features, "context": dict(self.context)})

    @classmethod
    def read(cls, path: StrPath, columns: Columns | None = None) -> Self:
        """Reads what `write` has written.

        Args:
            path: The file.
            columns: Names of the parts in files.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it is not as it was written; the error names it.
        """
        with artefacts.name_file_in_errors(path, "a Schema that `write` wrote"):
            written = artefacts.read_json(path)
            features = {name: of_config(config) for name, config in written["features"].items()}
            return cls(features, written["context"], columns or Columns())
