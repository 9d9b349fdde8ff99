"""Sections of the configuration of a run: keys, types, ranges, defaults and descriptions."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    model_validator,
)

from tfrank_sel import features as feature_types
from tfrank_sel.pipelines.configuration.data import SPLITS, Data, Names
from tfrank_sel.pipelines.configuration.errors import ConfigurationError, choices
from tfrank_sel.pipelines.configuration.gates import Gates
from tfrank_sel.pipelines.configuration.release import Blessing, Export, Serving
from tfrank_sel.pipelines.configuration.search import Search
from tfrank_sel.pipelines.configuration.section import Section, keys, no_key
from tfrank_sel.pipelines.configuration.tracking import Tracking, absolute as absolute_uri
from tfrank_sel.pipelines.settings import SHARD_BYTES, Settings

FUNCTION = re.compile(r"[\w.]+:[\w.]+")  # module:function
MODELS = ("ListScorer", "Scorer")
SEARCHED = ("data", "features", "model", "training")


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _absolute_if_given(path: str | bool | None) -> str | bool | None:
    return _absolute(path) if isinstance(path, str) else path


def _class(value: Any) -> dict[str, Any]:
    table = {"class": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("class"), str):
        raise ValueError(
            'must be the name of a class, or a table such as {class = "Name", argument = 1}. '
            f"Received: {value!r}"
        )
    return table


def _baseline(value: Any) -> dict[str, Any] | Literal[False]:
    return False if value is False else _class(value)


def _model(value: str) -> str:
    if value not in MODELS and not FUNCTION.fullmatch(value):
        raise ValueError(f"must be module:function, or one of {choices(value, MODELS)}")
    return value


def _classes(value: Any) -> list[dict[str, Any]]:
    if value == []:
        raise ValueError("must be a loss, or a list of at least one. Received: []")
    return [_class(x) for x in (value if isinstance(value, list) else [value])]


def _trees(value: Any) -> Any:
    if value is False or value == "auto":
        return value
    if not isinstance(value, dict):
        wanted = 'must be "auto", false, or a table such as {num_leaves = 31}'
        raise ValueError(f"{wanted}. Received: {value!r}")
    return {**value, "loss": _classes(value["loss"])} if "loss" in value else value


def _feature(value: Any) -> Any:
    try:
        feature_types.of_config(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be a type of feature: {error}") from error
    return value


# a class and its arguments
Table = Annotated[dict[str, Any], PlainValidator(_class)]
Tables = Annotated[list[dict[str, Any]], PlainValidator(_classes)]
FeatureType = Annotated[str | dict[str, Any], PlainValidator(_feature)]


class Model(Section):
    """The model. Your own function is called with the preparation of the features and the
    settings; all other keys of this section are passed as further arguments.
    """

    model_config = ConfigDict(extra="allow")  # of a user's function

    class_: Annotated[str, AfterValidator(_model)] = Field(
        default="ListScorer",
        alias="class",
        description='"ListScorer", "Scorer", or your own function as "module:function".',
    )
    hidden_units: list[Annotated[int, Field(ge=1)]] = Field(
        default=list(Settings.hidden_units), description="Widths of the hidden layers."
    )
    dropout: float = Field(
        default=Settings.dropout,
        ge=0.0,
        lt=1.0,
        description="Dropout rate of the hidden units in training.",
    )
    num_heads: int = Field(
        default=Settings.num_heads,
        ge=0,
        description="Number of attention heads over the items of a list; 0 for no attention.",
    )
    trees: Annotated[dict[str, Any] | Literal["auto", False], PlainValidator(_trees)] = Field(
        default="auto",
        description="Boosted trees, with half the weight of the ensemble: false for none, or a "
        'table of `loss`, one or several, and parameters of LightGBM. "auto" adds those of '
        "LightGBM's lambdarank to several networks if LightGBM is installed.",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """Further arguments of a function."""
        return self.model_extra or {}

    @model_validator(mode="after")
    def _known(self) -> Self:
        if FUNCTION.fullmatch(self.class_):
            return self
        if self.arguments:
            raise ValueError(no_key(next(iter(self.arguments)), type(self)))
        if self.class_ == "Scorer" and self.num_heads:
            raise ValueError(
                f"`num_heads` must be 0 for Scorer, which scores each item independently. "
                f"Received: {self.num_heads}"
            )
        if self.num_heads and (not self.hidden_units or self.hidden_units[-1] % self.num_heads):
            raise ValueError(
                "`num_heads` must divide the last of `hidden_units` or be 0. "
                f"Received: hidden_units={self.hidden_units}, num_heads={self.num_heads}"
            )
        return self


class Training(Section):
    """Losses, optimizer and early stopping."""

    loss: Tables = Field(
        default=[{"class": x} for x in ("SoftmaxLoss", "RGCrossLoss", "LambdaLoss")],
        description='A loss such as {class = "LambdaLoss"}; a list of them trains an ensemble.',
    )
    epochs: int = Field(default=Settings.epochs, ge=1, description="Maximum number of epochs.")
    patience: int = Field(
        default=Settings.patience,
        ge=1,
        description="Number of epochs without improvement before early stopping.",
    )
    batch_size: int = Field(
        default=Settings.batch_size, ge=1, description="Number of lists in a batch."
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="Number of processes that train together, each on a share of every batch.",
    )
    optimizer: Table = Field(
        default={"class": "Adam"}, description="Keras optimizer and its arguments."
    )
    learning_rate: float = Field(
        default=Settings.learning_rate, gt=0.0, description="Learning rate of the optimizer."
    )
    schedule: Table | None = Field(
        default=None,
        examples=[{"class": "CosineDecay"}],
        description="Keras learning rate schedule; constant if unset.",
    )
    averaging: float = Field(
        default=Settings.averaging,
        ge=0.0,
        lt=1.0,
        description="Decay of the moving average of the weights.",
    )
    weight_decay: float = Field(
        default=Settings.weight_decay,
        ge=0.0,
        lt=1.0,
        description="Share by which the weights decay in each pass over the lists.",
    )
    max_items: int = Field(
        default=Settings.max_items,
        ge=0,
        description="Maximum number of items of a list in training; 0 for all.",
    )
    truncation: Literal["random", "head", "top"] = Field(
        default="random",
        description='Items that `max_items` keeps: "random", "head" or "top" (highest labels).',
    )
    seed: int = Field(default=Settings.seed, ge=0, description="Random seed.")

    @model_validator(mode="after")
    def _shared(self) -> Self:
        if self.batch_size % self.workers:
            raise ValueError(
                "`batch_size` must be a multiple of `workers`. "
                f"Received: batch_size={self.batch_size}, workers={self.workers}"
            )
        return self


class Evaluation(Section):
    """Baseline and gain of the evaluation."""

    baseline: Annotated[dict[str, Any] | Literal[False], PlainValidator(_baseline)] = Field(
        default={"class": "SoftmaxLoss"},
        description="Loss of the baseline model; false to compare with a random order.",
    )
    gain: Literal["exponential", "linear"] = Field(
        default="exponential",
        description="Gain of labels in NDCG, also in early stopping: exponential for grades, "
        "linear for amounts.",
    )


class Beam(Section):
    """Beam runner of the data and evaluation steps."""

    runner: str = Field(
        default="DirectRunner",
        description="DirectRunner, FlinkRunner, SparkRunner, DataflowRunner or PortableRunner.",
    )
    options: Names = Field(default=[], description="Options of Beam and the runner.")
    shard_bytes: int = Field(
        default=SHARD_BYTES, ge=1, description="Target size of the files of records."
    )


class Configuration(Section):
    """All settings of a run: see `load`."""

    _place: str = PrivateAttr("")  # the file
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)  # the options of keys

    modules: Names = Field(
        default=[], description="Your own Python files to import first, each under its own name."
    )
    data: Data = Data()
    features: dict[str, FeatureType] = Field(
        default={},
        description="Type of each feature, by name; if none is named, those that the columns of a "
        "table propose, and all numbers of other files.",
    )
    gates: Gates = Gates()
    model: Model = Model()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    blessing: Blessing = Blessing()
    export: Export = Export()
    serving: Serving = Serving()
    beam: Beam = Beam()
    search: Search = Search()
    tracking: Tracking = Tracking()

    def come_from(self, place: str, origins: Mapping[str, str]) -> Self:
        """Stores the file, and the options that set keys, for `place`."""
        self._place, self._origins = place, dict(origins)
        return self

    def absolute(self) -> Self:
        """Returns the same configuration for any working directory: with absolute paths."""
        files: dict[str, Any] = {
            x: list(map(_absolute, getattr(self.data, x))) for x in (*SPLITS, "data")
        }
        folders = ("reference", "schema_", "continue_from")
        files |= {x: _absolute_if_given(getattr(self.data, x)) for x in folders}
        serving = {"folder": _absolute_if_given(self.serving.folder)}
        blessing = {"champion": _absolute_if_given(self.blessing.champion)}
        tracking = {"mlflow": absolute_uri(self.tracking.mlflow)}
        return self.model_copy(
            update={
                "data": self.data.model_copy(update=files),
                "modules": list(map(_absolute, self.modules)),
                "serving": self.serving.model_copy(update=serving),
                "blessing": self.blessing.model_copy(update=blessing),
                "tracking": self.tracking.model_copy(update=tracking),
            }
        )

    def error(self, key: str, reason: str) -> ConfigurationError:
        """Returns the error of a key, with the file or option that set its value."""
        return ConfigurationError(key, reason, place(key, self._place, self._origins))

    @model_validator(mode="after")
    def _one_role_each(self) -> Self:
        used: dict[str, str] = {}
        of_features = {f"features.{name}": name for name in self.features}
        for key, column in (*self.data.roles.items(), *of_features.items()):
            first = used.setdefault(column, key)
            may_be_feature = first == "data.doc_id" or first.startswith("data.slice_by")
            if first != key and not (may_be_feature and key in of_features):
                is_leak = first == "data.label" and key in of_features
                leak = ": a label as a feature leaks the answer to the model" if is_leak else ""
                raise ValueError(
                    f"{first} and {key} must name different columns. "
                    f"Received: {column!r} for both{leak}"
                )
        return self

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        for key in self.search.keys:
            section, _, rest = key.partition(".")
            if section not in SEARCHED or not rest:
                wanted = f"must be keys of {', '.join(SEARCHED)}, on which training depends"
                raise ValueError(f"search.keys {wanted}. Received: {key!r}")
            name, kind = rest.partition(".")[0], type(getattr(self, section))
            is_free = section == "features" or FUNCTION.fullmatch(self.model.class_)
            if not is_free and name not in keys(kind):
                raise ValueError(f"search.keys: {section} {no_key(name, kind)}")
        return self


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
    beneath = (origins[x] for x in origins if x.startswith(f"{key}."))
    return next(beneath, file)
