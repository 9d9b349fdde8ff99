"""Shared command-line options of the pipelines, one per configuration key."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import typer

from tfrank_sel.pipelines.configuration import Configuration, Override


def option(key: str) -> Any:
    """Returns the option that replaces a key, with the key's description and default."""
    section, name = key.split(".")
    field = Configuration.model_fields[section].annotation.model_fields[name]  # type: ignore[union-attr]
    default = field.default
    shown = ",".join(map(str, default)) if isinstance(default, list) else default
    return typer.Option(
        help=field.description,
        show_default=str(shown) if shown else False,
        rich_help_panel=f"Section {section}",
    )


AFTER = "Pass options of Beam and its runner last, after `--`."
Output: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="FOLDER", help="Folder or URL of the run: new, empty, or of a run to continue."
    ),
]
BeamOptions: TypeAlias = Annotated[list[str] | None, typer.Argument(help="Options of Beam.")]
Config: TypeAlias = Annotated[
    str | None, typer.Option(metavar="FILE", help="Configuration file (TOML).")
]
Set: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Replace a key of the configuration; may be repeated."
    ),
]
Module: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="Your own Python file to import first; may be repeated."),
]
Epochs: TypeAlias = Annotated[int | None, option("training.epochs")]
Patience: TypeAlias = Annotated[int | None, option("training.patience")]
BatchSize: TypeAlias = Annotated[int | None, option("training.batch_size")]
Seed: TypeAlias = Annotated[int | None, option("training.seed")]
BlessMetric: TypeAlias = Annotated[str | None, option("blessing.metric")]
BlessMargin: TypeAlias = Annotated[float | None, option("blessing.margin")]
BlessSliceMargin: TypeAlias = Annotated[float | None, option("blessing.slice_margin")]
BlessMinValue: TypeAlias = Annotated[float | None, option("blessing.min_value")]
BlessMinQueries: TypeAlias = Annotated[int | None, option("blessing.min_queries")]


def overrides(options: Mapping[str, Any]) -> list[Override]:
    """Returns the configuration overrides of the options of a command.

    Args:
        options: The value of each option, by the name of its parameter; None or empty if not given.

    Raises:
        ConfigurationError: If an item of `--set` is malformed.

    Example:
        >>> [(x.key, x.value) for x in overrides({"split": "8,1,1", "epochs": None})]
        [('data.split', [8.0, 1.0, 1.0])]
    """
    given = {x: value for x, value in options.items() if value not in (None, [], ())}
    found = [
        Override(key, _READ.get(name, _as_it_is)(given[name]), f"--{name.replace('_', '-')}")
        for name, key in _KEYS.items()
        if name in given
    ]
    return [*found, *map(Override.parse, given.get("set", ()))]


def names(text: str) -> list[str]:
    """Splits comma-separated names.

    Example:
        >>> names("price, clicks")
        ['price', 'clicks']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[float] | str:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        return text


def _features(text: str) -> dict[str, Any]:
    return {name: {"type": "number", "missing": "refuse"} for name in names(text)}


def _losses(is_ensemble: bool) -> list[dict[str, str]]:
    default: list[dict[str, str]] = Configuration().training.loss
    return default if is_ensemble else [{"class": "RGCrossLoss"}]


def _as_it_is(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


_READ: dict[str, Callable[[Any], Any]] = {
    "split": _numbers,
    "features": _features,
    "slice_by": names,
    "ensemble": _losses,
}

_KEYS = {
    "module": "modules",
    **{
        name: f"data.{name}"
        for name in (
            "train",
            "validation",
            "test",
            "data",
            "synthetic",
            "split",
            "format",
            "query",
            "label",
            "doc_id",
            "weight",
            "list_weight",
            "propensity",
            "slice_by",
            "adjacent",
            "num_features",
            "allow_bad_lines",
            "reference",
            "continue_from",
        )
    },
    "features": "features",
    "ensemble": "training.loss",
    **{
        name: f"training.{name}"
        for name in (
            "epochs",
            "patience",
            "batch_size",
            "workers",
            "learning_rate",
            "max_items",
            "seed",
        )
    },
    "bless_metric": "blessing.metric",
    "bless_margin": "blessing.margin",
    "bless_slice_margin": "blessing.slice_margin",
    "bless_min_value": "blessing.min_value",
    "bless_min_queries": "blessing.min_queries",
    "model_name": "serving.model_name",
    "version": "serving.version",
    "trials": "search.trials",
    "runner": "beam.runner",
    "beam_options": "beam.options",
    "beam_option": "beam.options",
}
