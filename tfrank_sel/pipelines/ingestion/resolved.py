"""Inputs of a configuration, checked before reading data."""

import dataclasses
import importlib.util
from typing import Any

from tfrank_sel import features as feature_types
from tfrank_sel.data.formats import FORMATS, Columns, TableReader
from tfrank_sel.data.formats.tables import readable
from tfrank_sel.features import REFUSE, Feature, Number
from tfrank_sel.pipelines.configuration.section import choices
from tfrank_sel.pipelines.configuration.sections import Configuration
from tfrank_sel.pipelines.ingestion.inputs import SPLITS, Inputs, expand
from tfrank_sel.training import has_lightgbm


def inputs(configuration: Configuration) -> Inputs | None:
    """Returns the input files, or None if there are none.

    Args:
        configuration: The configuration, with its sections `data` and `features`.

    Raises:
        ConfigurationError: If there is no such format, a file is missing, or a column is missing in
            the first training file, if it is a table.
        tfrank_sel.data.InputError: If the files have different formats, a file cannot be read, or a
            column does not fit its type.
    """
    data = configuration.data
    if data.format is not None and data.format not in FORMATS:
        reason = f"must be one of {choices(data.format, FORMATS)}"
        raise configuration.error("data.format", reason)
    if data.data:
        sources = expand(data.data)
    else:
        sources = [x for name in SPLITS for x in expand(getattr(data, name), name)]
    if not sources:
        return None
    shares = dict(zip(SPLITS, (x / sum(data.split) for x in data.split), strict=True))
    found = Inputs(
        sources,
        columns(configuration),
        shares,
        data.allow_bad_lines,
        data.adjacent,
        data.format,
    )
    _check_columns(found, configuration)
    return found


def columns(configuration: Configuration) -> Columns:
    """Returns the names of the parts of a list.

    Raises:
        ConfigurationError: If a feature refers to a missing feature.
    """
    data = configuration.data
    types = {name: feature_types.of_config(x) for name, x in configuration.features.items()}
    # only finite numbers need no types: a server takes them packed, as by default
    are_finite = all(feature == Number(missing=REFUSE) for feature in types.values())
    try:
        return Columns(
            data.query,
            data.label,
            data.doc_id,
            tuple(types) if are_finite else types,
            tuple(data.slice_by),
            data.num_features,
            data.weight,
            data.list_weight,
            data.propensity,
        )
    except ValueError as error:  # a feature without a reference to another
        raise configuration.error("features:", str(error)) from error


def _check_columns(found: Inputs, configuration: Configuration) -> None:
    """Raises an error if the first table lacks a column, or a column does not fit its type."""
    reader, first = found.reader, found.sources[0].path
    if not isinstance(reader, TableReader):
        return
    with readable(first):
        names = reader.schema(first).names
    of_log = configuration.clicks.roles
    keys = configuration.data.roles | of_log | {f"features.{x}": x for x in configuration.features}
    for key, name in keys.items():
        if (name in found.columns.required or key in of_log) and name not in names:
            reason = f"must be a column of {first}: {choices(name, names)}"
            raise configuration.error(key, reason)
    if configuration.features:
        reader.infer([first])


def resolve(
    configuration: Configuration,
) -> tuple[Configuration, Inputs | None, dict[str, str]]:
    """Returns a configuration with feature types if its files are tables: its own, or `proposed`.

    Its trees are false in place of "auto" if LightGBM is not installed.

    Args:
        configuration: The configuration.

    Returns:
        The configuration; its `inputs`; and the omitted columns, with the reasons.

    Raises:
        ConfigurationError: As `inputs`, as `tfrank_sel.data.InputError`; or if the packages of the
            export are not installed.
    """
    if configuration.model.trees == "auto" and not has_lightgbm():
        model = configuration.model.model_copy(update={"trees": False})
        configuration = configuration.model_copy(update={"model": model})
    for name in ("onnx", "onnxruntime") if configuration.export.onnx else ():
        if importlib.util.find_spec(name) is None:
            reason = f"needs {name}: pip install 'tfrank_sel[onnx]'. Received: no {name}"
            raise configuration.error("export.onnx", reason)
    found = inputs(configuration)
    if (found is None) != configuration.data.synthetic:
        reason = "must name files, or `data.synthetic` must be true (`--synthetic`), not both"
        received = "no files" if found is None else "files and data.synthetic"
        raise configuration.error("data", f"{reason}. Received: {received}")
    if found is None or configuration.features or not isinstance(found.reader, TableReader):
        return configuration, found, {}
    configuration, left_out = _with_types(configuration, found)
    return configuration, inputs(configuration), left_out


def proposed(configuration: Configuration) -> tuple[Configuration, dict[str, str]]:
    """Returns a configuration with types for the features, proposed from a sample of the files.

    Args:
        configuration: The configuration; its own types are kept.

    Returns:
        The configuration; and the omitted columns, with the reasons.

    Raises:
        ConfigurationError: As `inputs`, as `tfrank_sel.data.InputError`.
    """
    found = inputs(configuration)
    return (configuration, {}) if found is None else _with_types(configuration, found)


def _with_types(
    configuration: Configuration, found: Inputs
) -> tuple[Configuration, dict[str, str]]:
    types, left_out = found.reader.propose(found.learned)
    for key, name in configuration.clicks.roles.items():
        if types.pop(name, None):
            left_out[name] = key
    features = {name: _brief(feature) for name, feature in types.items()}
    features.update(configuration.features)
    return configuration.model_copy(update={"features": features}), left_out


def _brief(feature: Feature) -> str | dict[str, Any]:
    """Returns the config of a feature without options equal to their defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(feature)}
    config = {x: y for x, y in feature.config().items() if x == "type" or y != defaults[x]}
    return config if len(config) > 1 else feature.type
