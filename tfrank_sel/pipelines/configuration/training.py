"""Sections on models: `model`, `training`, `evaluation` and `search`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, PlainValidator, model_validator

from tfrank_sel.arguments import Count, Natural, Positive, Range, Rate, check_heads
from tfrank_sel.errors import refusal
from tfrank_sel.pipelines.configuration.section import Section, choices, key, no_key, option
from tfrank_sel.training.settings import DEFAULTS, LOSSES

# A user's function is written `module:function`.
FUNCTION = re.compile(r"[\w.]+:[\w.]+")
MODELS = ("ListScorer", "Scorer")
DEFAULT_LOSSES = [{"class": name} for name in LOSSES]
BASELINE = DEFAULT_LOSSES[0]


def _class(value: Any) -> dict[str, Any]:
    table = {"class": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("class"), str):
        reason = 'must be the name of a class, or a table such as {class = "Name", argument = 1}'
        raise refusal(reason, repr(value))
    return table


def _baseline(value: Any) -> dict[str, Any] | Literal[False]:
    return False if value is False else _class(value)


def _model(value: str) -> str:
    if value not in MODELS and not FUNCTION.fullmatch(value):
        raise ValueError(f"must be module:function, or one of {choices(value, MODELS)}")
    return value


def _classes(value: Any) -> list[dict[str, Any]]:
    if value == []:
        raise refusal("must be a loss, or a list of at least one", "[]")
    return [_class(x) for x in (value if isinstance(value, list) else [value])]


def _trees(value: Any) -> Any:
    if value is False or value == "auto":
        return value
    if not isinstance(value, dict):
        raise refusal('must be "auto", false, or a table such as {num_leaves = 31}', repr(value))
    return {**value, "loss": _classes(value["loss"])} if "loss" in value else value


# a class and its arguments
Table = Annotated[dict[str, Any], PlainValidator(_class)]
Tables = Annotated[list[dict[str, Any]], PlainValidator(_classes)]


class Network(Section):
    """Hyperparameters of the network, for the functions that make models."""

    hidden_units: list[Count] = key(list(DEFAULTS.hidden_units), "Widths of the hidden layers.")
    dropout: Rate = key(DEFAULTS.dropout, "Dropout rate of the hidden units in training.")
    num_heads: Natural = key(
        DEFAULTS.num_heads,
        "Number of attention heads over the items of a list; 0 for no attention.",
    )


class Optimization(Section):
    """Hyperparameters of training, the same for the model and the baseline."""

    epochs: Count = option(DEFAULTS.epochs, "Maximum number of epochs.")
    patience: Count = option(
        DEFAULTS.patience,
        "Number of epochs without improvement before early stopping; down to half as many for more "
        "than 10,000 lists.",
    )
    batch_size: Count = option(DEFAULTS.batch_size, "Number of lists in a batch.")
    optimizer: Table = key({"class": "Adam"}, "Keras optimizer and its arguments.")
    learning_rate: Positive = option(DEFAULTS.learning_rate, "Learning rate of the optimizer.")
    schedule: Table | None = key(
        None,
        "Keras learning rate schedule; constant if unset.",
        examples=[{"class": "CosineDecay"}],
    )
    averaging: Rate = key(DEFAULTS.averaging, "Decay of the moving average of the weights.")
    weight_decay: Rate = key(
        DEFAULTS.weight_decay, "Share by which the weights decay in each pass over the lists."
    )
    max_items: Natural = option(
        DEFAULTS.max_items, "Maximum number of items of a list in training; 0 for all."
    )
    truncation: Literal["random", "head", "top"] = key(
        DEFAULTS.truncation,
        'Items that `max_items` keeps: "random", "head" or "top" (highest labels).',
    )
    seed: Natural = option(DEFAULTS.seed, "Random seed.")


class Graded(Section):
    """Gain of labels."""

    gain: Literal["exponential", "linear"] | float = key(
        DEFAULTS.gain,
        "Gain of labels in NDCG, also in early stopping: exponential for grades, linear for "
        "amounts, or of labels that are scores a number, above which the gain is linear.",
    )


class Settings(Network, Optimization, Graded):
    """Settings of training: the keys of `model`, `training` and `evaluation` that have a value.

    `weight_decay` is decoupled from the gradient as in AdamW, so that the same value suits small
    and large data; a `weight_decay` of `optimizer`, which is per step, takes precedence.
    `optimizer` may be your own function, `{"class": "my_package:my_optimizer"}`, that takes
    `learning_rate`, `use_ema` and `ema_momentum`. Defaults of `schedule` are `learning_rate` as
    its initial value, and the number of steps in `epochs` as its `decay_steps`.
    """


class ModelSection(Network):
    """The model. Your own function is called with the preparation of the features and the
    settings; all other keys of this section are passed as further arguments.
    """

    # The arguments of a user's function are not known here.
    model_config = ConfigDict(extra="allow")

    class_: Annotated[str, AfterValidator(_model)] = key(
        "ListScorer",
        '"ListScorer", "Scorer", or your own function as "module:function".',
        alias="class",
    )
    trees: Annotated[dict[str, Any] | Literal["auto", False], PlainValidator(_trees)] = key(
        "auto",
        "Boosted trees, with half of the weight: false for none, or a table of `loss`, one or "
        'several, and parameters of LightGBM. "auto" adds those of MeanSquaredLoss and '
        "RGCrossLoss to the default loss, or to several, if LightGBM is installed.",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """Further arguments of a function."""
        return self.model_extra or {}

    @model_validator(mode="after")
    def _check_class(self) -> Self:
        if FUNCTION.fullmatch(self.class_):
            return self
        if self.arguments:
            raise ValueError(no_key(next(iter(self.arguments)), type(self)))
        if self.class_ == "Scorer" and self.num_heads:
            reason = "`num_heads` must be 0 for Scorer, which scores each item independently"
            raise refusal(reason, self.num_heads)
        check_heads(self.hidden_units, self.num_heads)
        return self


class TrainingSection(Optimization):
    """Losses, optimizer and early stopping."""

    loss: Tables = key(
        DEFAULT_LOSSES,
        'A loss such as {class = "LambdaLoss"}; a list of them trains an ensemble.',
    )
    region: Annotated[float, Range("in (0, 0.5)", gt=0.0, lt=0.5)] | None = option(
        None,
        "If labels are scores, such as seconds or revenue: the share of the highest ones, which "
        "matter most. By default, the loss is then `losses.design`, that of the baseline is "
        'MeanSquaredLoss of labels clipped at the region (`lower = "region"`), and '
        "`evaluation.gain` is the score above which the region is. A loss that is equal to the "
        "default counts as unset.",
        examples=[0.1],
    )
    workers: Count = option(
        1, "Number of processes in `TF_CONFIG`, each of which trains on a share of every batch."
    )

    @property
    def takes_trees(self) -> bool:
        """Whether "auto" adds trees: to the default, or to several networks."""
        return len(self.loss) > 1 or self.loss == DEFAULT_LOSSES

    @model_validator(mode="after")
    def _check_batch_size(self) -> Self:
        if self.batch_size % self.workers:
            reason = "`batch_size` must be a multiple of `workers`"
            raise refusal(reason, batch_size=self.batch_size, workers=self.workers)
        return self


class EvaluationSection(Graded):
    """Baseline and gain of the evaluation."""

    baseline: Annotated[dict[str, Any] | Literal[False], PlainValidator(_baseline)] = key(
        BASELINE,
        "Loss of the baseline model; false to compare with a random order.",
    )


_EXAMPLE = "{low = 1e-4, high = 1e-2, log = true}, or {choices = [[64, 32], [128, 64]]}"


def _range(value: Any) -> dict[str, Any]:
    """Checks a range: `choices`, or `low` and `high` with `log` or `step`."""
    if isinstance(value, Mapping) and {*value} == {"choices"}:
        _check_choices(value["choices"])
    elif isinstance(value, Mapping) and {"low", "high"} <= {*value} <= {"low", "high", "log"}:
        _check_numbers(value, "low", "high")
        if not isinstance(value.get("log", False), bool):
            raise refusal("must have true or false as `log`", repr(value["log"]))
        if value.get("log") and value["low"] <= 0:
            raise refusal("must have a positive `low` if `log` is true", repr(value))
    elif isinstance(value, Mapping) and {*value} == {"low", "high", "step"}:
        _check_numbers(value, "low", "high", "step")
        if not 0 < value["step"] <= value["high"] - value["low"]:
            reason = "must have a `step` that is positive and at most `high` - `low`"
            raise refusal(reason, repr(value))
    else:
        raise refusal(f"must be a range such as {_EXAMPLE}", repr(value))
    return dict(value)


def _check_choices(choices: Any) -> None:
    if not isinstance(choices, list) or not choices:
        raise refusal("must have a list of at least one value as `choices`", repr(choices))
    if any(choice in choices[:number] for number, choice in enumerate(choices)):
        raise refusal("must have distinct `choices`", repr(choices))


def _check_numbers(value: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if isinstance(value[name], bool) or not isinstance(value[name], int | float):
            raise refusal(f"must have a number as `{name}`", repr(value[name]))
    if not value["low"] < value["high"]:
        raise refusal("must have a `low` that is less than `high`", repr(value))


class Search(Section):
    """Ranges for `tune`."""

    trials: Count = option(20, "Number of trials.")
    keys: dict[str, Annotated[dict[str, Any], PlainValidator(_range)]] = key(
        {},
        'Range of each key that varies, such as {"training.learning_rate" = '
        '{low = 1e-4, high = 1e-2, log = true}, "training.batch_size" = {low = 8, high = 64, '
        'step = 8}, "model.hidden_units" = {choices = [[64, 32], [128, 64]]}}.',
    )
