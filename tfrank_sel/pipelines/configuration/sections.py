"""The configuration of a run, and its sections on releases."""

import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, PlainValidator, PrivateAttr, model_validator
from pydantic.fields import FieldInfo

from tfrank_sel import artefacts, features as feature_types
from tfrank_sel.arguments import AT_LEAST_0, POSITIVE, Count, Natural, Share
from tfrank_sel.errors import received, refusal
from tfrank_sel.pipelines.configuration.data import Beam, Clicks, Data, Gates
from tfrank_sel.pipelines.configuration.section import (
    PATH,
    URI,
    ConfigurationError,
    Names,
    Path,
    Paths,
    Section,
    absolute,
    absolute_uri,
    fields,
    is_kind,
    key,
    no_key,
    option,
)
from tfrank_sel.pipelines.configuration.training import (
    BASELINE,
    DEFAULT_LOSSES,
    FUNCTION,
    EvaluationSection,
    ModelSection,
    Search,
    Settings,
    TrainingSection,
)

Margin = Annotated[float, Field(allow_inf_nan=True), AT_LEAST_0]
SEARCHED = ("data", "features", "model", "training")
_AnySection = TypeVar("_AnySection", bound=Section)


def _feature(value: Any) -> Any:
    try:
        feature_types.of_config(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be a type of feature: {error}") from error
    return value


FeatureType = Annotated[str | dict[str, Any], PlainValidator(_feature)]


class Rules(Section):
    """Rules that a model must meet to be published.

    A model is significantly worse than another by more than a margin if the whole 95 % interval of
    the difference is below minus the margin: a difference that may be noise does not block
    publication. Without a baseline, the model is compared with a random order.
    """

    metric: Literal["NDCG@1", "NDCG@5", "NDCG@10", "MRR"] = option(
        "NDCG@10", "Metric for the comparison.", name="bless_metric"
    )
    margin: Margin = option(0.02, "Maximum allowed drop below the baseline.", name="bless_margin")
    slice_margin: Margin = option(
        0.1, "Maximum allowed drop below the baseline on a slice.", name="bless_slice_margin"
    )
    clicks_margin: Margin = key(
        0.0,
        "Maximum allowed drop of the clicks per session that a log lets expect below those in it.",
    )
    min_slice_queries: Count = key(30, "Minimum number of queries for a slice to be checked.")
    min_value: float = option(0.0, "Minimum value of the metric.", name="bless_min_value")
    max_equal_scores: Share = key(
        0.5, "Maximum share of lists to all items of which the model gives the same score."
    )
    min_queries: Count = option(
        1, "Minimum number of queries to evaluate on.", name="bless_min_queries"
    )
    max_milliseconds: Annotated[float, Field(allow_inf_nan=True), POSITIVE] = key(
        math.inf, "Maximum time to score a list, at the 99th percentile."
    )
    allow_leaks: Names = option(
        [], "Names of features that leak the label by the gate `leak`, and may be served."
    )
    champion: Path | Literal[False] | None = key(
        None,
        "SavedModel, by folder or URL, that must not be better by more than the margins; if "
        "unset, the version that is served; false for none.",
        examples=["models/ranker/3"],
    )


class Export(Section):
    """The exported model."""

    onnx: bool = key(False, "Write `model.onnx`, too; needs the extra `onnx`.")


class Serving(Section):
    """The published model."""

    model_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")] = option(
        "ranker", "Name to serve the model under; letters, digits and `._-`."
    )
    folder: Path | None = key(
        None,
        "Folder or URL of all served models; if unset, `serving` in the folder of the run.",
        examples=["models"],
    )
    version: Natural | None = option(
        None, "Version of the model; if unset, one more than the latest.", examples=[7]
    )
    canary: bool = key(
        False, "Publish with the label `canary`; the champion keeps the label `stable`."
    )
    recalibration: Literal["isotonic", "platt"] | None = key(
        None,
        "Function that turns scores into expected labels, fitted on the validation split: "
        '"isotonic" or "platt"; the order of items stays the same. None if unset.',
        examples=["isotonic"],
    )
    description: str | None = key(
        None,
        "Intended use of the model, for its model card.",
        examples=["Ranks the offers of a search page."],
    )


class Tracking(Section):
    """Tracking server to which each run is logged, in addition to its folder."""

    mlflow: Annotated[str, URI] | None = key(
        None,
        "MLflow tracking URI; runs are not logged if unset.",
        examples=["sqlite:///mlflow.db"],
    )
    experiment: Annotated[str, Field(min_length=1)] = key(
        "tfrank_sel", "MLflow experiment for the runs."
    )


class Configuration(Section):
    """All settings of a run: see `load`."""

    # The file that the configuration was read from.
    _place: str = PrivateAttr("")
    # The option that set each key.
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    modules: Paths = key([], "Your own Python files to import first, each under its own name.")
    data: Data = Data()
    clicks: Clicks = Clicks()
    features: dict[str, FeatureType] = key(
        {},
        "Type of each feature, by name; if none is named, those that the columns of a "
        "table propose, and all numbers of other files.",
    )
    gates: Gates = Gates()
    model: ModelSection = ModelSection()
    training: TrainingSection = TrainingSection()
    evaluation: EvaluationSection = EvaluationSection()
    blessing: Rules = Rules()
    export: Export = Export()
    serving: Serving = Serving()
    beam: Beam = Beam()
    search: Search = Search()
    tracking: Tracking = Tracking()

    @classmethod
    def by_key(cls) -> dict[str, FieldInfo]:
        """Returns the fields of all sections, by key such as `training.epochs`."""
        by_name: dict[str, FieldInfo] = {}
        for name, field in cls.model_fields.items():
            section = field.annotation
            if isinstance(section, type) and issubclass(section, Section):
                by_name |= {f"{name}.{x}": inner for x, inner in fields(section).items()}
            else:
                by_name[name] = field
        return by_name

    @property
    def settings(self) -> Settings:
        """The settings of training."""
        values = {**dict(self.model), **dict(self.training), **dict(self.evaluation)}
        return Settings(**{name: values[name] for name in Settings.model_fields})

    def come_from(self, source: str, origins: Mapping[str, str]) -> Self:
        """Stores the file, and the options that set keys, for `source`."""
        self._place, self._origins = source, dict(origins)
        return self

    def absolute(self) -> Self:
        """Returns the same configuration for any working directory: with absolute paths."""
        return _absolute(self)

    def error(self, key: str, reason: str, *values: object) -> ConfigurationError:
        """Returns the error of a key, with what it received, and the file or option that did."""
        text = received(reason, *values) if values else reason
        return ConfigurationError(key, text, place(key, self._place, self._origins))

    @model_validator(mode="before")
    @classmethod
    def _of_scores(cls, values: Any) -> Any:
        """Replaces the default losses, which take grades, if there is a region of scores."""
        tables = {name: values.get(name) for name in ("training", "evaluation")}
        training, evaluation = (
            x.model_dump(by_alias=True) if isinstance(x, Section) else x or {}
            for x in tables.values()
        )
        are_tables = isinstance(training, Mapping) and isinstance(evaluation, Mapping)
        if not are_tables or training.get("region") is None:
            return values
        training, evaluation = {**training}, {**evaluation}
        if training.get("loss", DEFAULT_LOSSES) == DEFAULT_LOSSES:
            training["loss"] = [{"class": "design"}]
        if evaluation.get("baseline", BASELINE) == BASELINE:
            evaluation["baseline"] = {"class": "MeanSquaredLoss", "lower": "region"}
        return {**values, "training": training, "evaluation": evaluation}

    @model_validator(mode="before")
    @classmethod
    def _without_omitted(cls, values: Any) -> Any:
        """Leaves out the features that are omitted."""
        data, features = values.get("data"), values.get("features")
        omit = data.get("omit") if isinstance(data, Mapping) else getattr(data, "omit", None)
        omit = [omit] if isinstance(omit, str) else omit
        if not isinstance(features, Mapping) or not isinstance(omit, list):
            return values
        left = {x: y for x, y in features.items() if x not in omit}
        if features and not left:
            raise refusal("data.omit must leave a feature", ", ".join(omit))
        return {**values, "features": left}

    @model_validator(mode="after")
    def _labels_are_scores(self) -> Self:
        if self.training.region is not None and self.clicks.position is not None:
            reason = "training.region must be unset with clicks.position: clicks are no scores"
            raise refusal(reason, self.training.region)
        return self

    @model_validator(mode="after")
    def _one_role_each(self) -> Self:
        used: dict[str, str] = {}
        of_features = {f"features.{name}": name for name in self.features}
        for role, column in (self.data.roles | self.clicks.roles | of_features).items():
            first = used.setdefault(column, role)
            may_be_feature = first == "data.doc_id" or first.startswith("data.slice_by")
            if first != role and not (may_be_feature and role in of_features):
                is_leak = first == "data.label" and role in of_features
                leak = ": a label as a feature leaks the answer to the model" if is_leak else ""
                reason = f"{first} and {role} must name different columns"
                raise refusal(reason, f"{column!r} for both{leak}")
        return self

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        for searched in self.search.keys:
            section, _, rest = searched.partition(".")
            if section not in SEARCHED or not rest:
                reason = f"must be keys of {', '.join(SEARCHED)}, on which training depends"
                raise refusal(f"search.keys {reason}", repr(searched))
            name, kind = rest.partition(".")[0], type(getattr(self, section))
            is_free = section == "features" or FUNCTION.fullmatch(self.model.class_)
            if not is_free and name not in fields(kind):
                raise ValueError(f"search.keys: {section} {no_key(name, kind)}")
        return self


def without_secrets(values: Any, key: str = "") -> Any:
    """Returns values by key, paths and URLs among them as `tfrank_sel.artefacts.address`.

    Args:
        values: Values of keys, or of sections; or the value of `key`.
        key: The key, or the section, to which the values belong.
    """
    if isinstance(values, Mapping):
        parts = {name: f"{key}.{name}" if key else name for name in values}
        return {name: without_secrets(values[name], part) for name, part in parts.items()}
    if isinstance(values, list):
        return [without_secrets(x, key) for x in values]
    return artefacts.address(values) if isinstance(values, str) and key in _addresses() else values


@functools.cache
def _addresses() -> set[str]:
    by_key = Configuration.by_key().items()
    return {key for key, field in by_key if is_kind(field, PATH) or is_kind(field, URI)}


def _absolute(section: _AnySection) -> _AnySection:
    changed: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            changed[name] = _absolute(value)
        elif is_kind(field, PATH) and isinstance(value, str):
            changed[name] = absolute(value)
        elif is_kind(field, URI) and value is not None:
            changed[name] = absolute_uri(value)
        elif is_kind(field, PATH) and isinstance(value, list):
            changed[name] = list(map(absolute, value))
    return section.model_copy(update=changed)


def place(key: str, file: str, origins: Mapping[str, str]) -> str:
    """Returns the file or option that set the value of a key.

    Args:
        key: The key.
        file: The file of all other keys.
        origins: The options, by key.
    """
    above = [x for x in origins if key == x or key.startswith((f"{x}.", f"{x}[", f"{x}:"))]
    if above:
        return origins[max(above, key=len)]
    beneath = (origins[x] for x in origins if x.startswith(f"{key.rstrip(':')}."))
    return next(beneath, file)
