"""What a run is given: its configuration, input files and folder."""

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from tfrank_sel import features as feature_types, roads
from tfrank_sel.arguments import Checked
from tfrank_sel.data import formats, stores
from tfrank_sel.data.arrays import encode, floats, strings
from tfrank_sel.data.formats import FORMATS, Columns, Reader, Schema, TableReader
from tfrank_sel.data.formats.tables import constant
from tfrank_sel.data.table import readable
from tfrank_sel.features import REFUSE, Feature, Number
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.configuration.section import choices
from tfrank_sel.pipelines.files.mirrors import Mirror
from tfrank_sel.training import has_lightgbm

SPLITS = ("train", "validation", "test")
# names of columns, in lower case
POSITIONS = ("position", "rank", "slot", "display_position", "display_rank", "shown_position")
SESSIONS = ("session", "session_id", "impression", "impression_id", "search_id", "request_id")
QUERIES = ("query", "query_text", "user_query", "search_query", "search_term", "keywords", "text")


@dataclasses.dataclass(frozen=True)
class Source(Checked):
    """A file to read.

    Args:
        path: The file.
        split: The split of its lists; None to assign each list by its query.
    """

    path: str
    split: str | None = None


@dataclasses.dataclass(frozen=True)
class Inputs(Checked):
    """Input files, and how to read them.

    Args:
        sources: The files, all in one format.
        columns: Names of the parts, for formats with names.
        shares: The share of queries of each split, for files without a split; they sum to 1.
        allow_bad_lines: Maximum number of malformed lines, rows or records to skip.
        adjacent: Whether the rows of a query are adjacent. If not, Beam groups them.
        format: The format of the files, if it cannot be inferred from their names.
    """

    sources: Sequence[Source]
    columns: Columns = dataclasses.field(default_factory=Columns)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    allow_bad_lines: int = 0
    adjacent: bool = False
    format: str | None = None

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        named = {source.split for source in self.sources if source.split is not None}
        if any(source.split is None for source in self.sources):
            named |= set(self.shares)
        return sorted(named)

    @property
    def reader(self) -> Reader:
        """The reader of the files."""
        return formats.reader([source.path for source in self.sources], self.columns, self.format)

    @property
    def train_files(self) -> list[str]:
        """The training files."""
        return [source.path for source in self.sources if source.split in (None, "train")]

    def schema(self) -> Schema:
        """Returns the schema of the lists, inferred from training files.

        Raises:
            tfrank_sel.data.InputError: If the files have different formats, or cannot be read.
        """
        return self.reader.infer(self.train_files)


def expand(patterns: Iterable[str], split: str | None = None) -> list[Source]:
    """Returns the files of paths and globs.

    Args:
        patterns: Paths and URLs, and patterns with `*`, `?` or `[...]`.
        split: The split of all files, if they have one.

    Returns:
        The files, in the order of `stores.expand`.

    Raises:
        tfrank_sel.data.InputError: As `stores.expand`.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     expand([file.name], "train") == [Source(file.name, "train")]
        True
    """
    return [Source(path, split) for path in stores.expand(patterns)]


def check_format(configuration: Configuration) -> None:
    """Raises a `ConfigurationError` if there is no such format."""
    format = configuration.data.format
    if format is not None and format not in FORMATS:
        raise configuration.error("data.format", f"must be one of {choices(format, FORMATS)}")


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
    check_format(configuration)
    data = configuration.data
    if data.data:
        sources = expand(data.data)
    else:
        sources = [x for name in SPLITS for x in expand(getattr(data, name), name)]
    if not sources:
        return None
    files = Inputs(
        sources,
        columns(configuration),
        dict(zip(SPLITS, (x / sum(data.split) for x in data.split), strict=True)),
        data.allow_bad_lines,
        data.adjacent,
        data.format,
    )
    _check_columns(files, configuration)
    return files


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


def _check_columns(files: Inputs, configuration: Configuration) -> None:
    """Raises an error if the first table lacks a column, or a column does not fit its type."""
    reader, first, omit = files.reader, files.sources[0].path, configuration.data.omit
    if not isinstance(reader, TableReader):
        if omit:
            raise configuration.error("data.omit", "is for tables, which name columns", omit)
        return
    with readable(first):
        names = reader.schema(first).names
    for name in (x for x in omit if x not in names):
        reason = f"must be columns of {first}: {choices(name, names)}"
        raise configuration.error("data.omit", reason)
    of_log = configuration.clicks.roles
    keys = configuration.data.roles | of_log | {f"features.{x}": x for x in configuration.features}
    for key, name in keys.items():
        if (name in files.columns.required_names or key in of_log) and name not in names:
            raise configuration.error(key, f"must be a column of {first}: {choices(name, names)}")
    if configuration.features:
        reader.infer([first])


def propose(configuration: Configuration) -> tuple[Configuration, Mapping[str, str], str]:
    """Proposes types for the features, and the correction of a log of clicks.

    Args:
        configuration: The configuration; its own types and its section `clicks` are kept.

    Returns:
        The configuration, the omitted columns with the reasons, and why clicks are corrected; empty
        if they are not.

    Raises:
        ConfigurationError: As `inputs`, as `tfrank_sel.data.InputError`.
    """
    files = inputs(configuration)
    if files is None:
        return configuration, {}, ""
    corrected, why = propose_click_correction(configuration, files)
    return *_with_types(corrected, inputs(corrected) or files), why


def propose_click_correction(
    configuration: Configuration, files: Inputs
) -> tuple[Configuration, str]:
    """Returns the configuration that corrects a log of clicks, if the files are one, and why.

    They are if the label is 0 or 1, a number from 1 has the name of a position, and a column, which
    may be `data.query`, tells the impressions apart: no two rows of one have the same position.
    """
    data, reader = configuration.data, files.reader
    if configuration.clicks.position or data.propensity or not isinstance(reader, TableReader):
        return configuration, ""
    if not roads.exists("clicks"):
        return configuration, ""
    sample, _ = reader.sample_files(files.train_files, files.columns.required_names)
    position = _find_column(sample, POSITIONS)
    session = next((x for x in (data.query, *SESSIONS) if _is_impression(sample, x, position)), "")
    labels = np.unique(floats(sample[data.label])).tolist()
    is_log = position is not None and labels == [0.0, 1.0] and data.doc_id in sample.schema.names
    if not is_log or not session:
        return configuration, ""
    query, found = data.query, f"{data.label} is 0 or 1, {position} the place of an item"
    if query == session:
        others = constant(sample, session)[0]
        texts = sample.select([x for x in sample.schema.names if x in others])
        query = _find_column(texts, QUERIES) or ""
        if not query:
            return configuration, ""
        found += f", and {session} an impression of {query}"
    sections = {"clicks": {"position": position, "session": session}, "data": {"query": query}}
    update = {
        name: getattr(configuration, name).model_copy(update=keys)
        for name, keys in sections.items()
    }
    why = f"Proposed, since {found}: users examine the first places most."
    return configuration.model_copy(update=update), why


def _find_column(sample: Any, names: Sequence[str]) -> str | None:
    """The first column of a sample with one of these names, in their order."""
    columns = {x.lower(): x for x in sample.schema.names}
    return next((columns[x] for x in names if x in columns), None)


def find_session(configuration: Configuration, files: Inputs) -> str:
    """Returns a column of a log of clicks that tells the impressions apart; empty if none does.

    Args:
        configuration: The configuration, with the position.
        files: The files of the log.
    """
    position, reader = configuration.clicks.position, cast(TableReader, files.reader)
    sample, _ = reader.sample_files(files.train_files, files.columns.required_names)
    names = (x for x in SESSIONS if x != configuration.data.query)
    return next((x for x in names if _is_impression(sample, x, position)), "")


def _is_impression(sample: Any, name: str, position: str | None) -> bool:
    """Whether no two rows of a value of a column have one position, and some have several rows."""
    if position is None or position == name or name not in sample.schema.names:
        return False
    places = floats(sample[position])
    if not (places >= 1.0).all() or (places % 1.0).any():
        return False
    keys = encode(strings(sample[name]))[1]
    pairs = len(np.unique(np.stack([keys, places]), axis=1).T)
    return 2 * (keys.max(initial=0) + 1) <= len(keys) == pairs


def _with_types(
    configuration: Configuration, files: Inputs
) -> tuple[Configuration, dict[str, str]]:
    types, left_out = files.reader.propose(files.train_files)
    for name in configuration.data.omit:
        if types.pop(name, None):
            left_out[name] = "data.omit"
    for key, name in configuration.clicks.roles.items():
        if types.pop(name, None):
            left_out[name] = key
    if session := configuration.clicks.session:
        sample, _ = cast(TableReader, files.reader).sample_files(files.train_files, [session])
        for name in constant(sample, session)[0] & {x for x, y in types.items() if y.of == "item"}:
            left_out[name] = f"it is of {session}; labels are one for each query and item"
            del types[name]
    for name in [x for x in types if x.lower() in POSITIONS]:
        left_out[name] = "a server does not know it before it ranks; see clicks.position"
        del types[name]
    features = {name: _brief(feature) for name, feature in types.items()}
    features.update(configuration.features)
    return configuration.model_copy(update={"features": features}), left_out


def _brief(feature: Feature) -> str | dict[str, Any]:
    """Returns the config of a feature without options equal to their defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(feature)}
    config = {x: y for x, y in feature.config().items() if x == "type" or y != defaults[x]}
    return config if len(config) > 1 else feature.type


@dataclasses.dataclass(frozen=True)
class Job:
    """What a run is given.

    Args:
        configuration: The configuration, with types for all features.
        inputs: Input files; None for synthetic data.
        output: Path or URL of the folder.
        left_out: The omitted columns, with the reasons.
    """

    configuration: Configuration
    inputs: Inputs | None
    output: str | Path
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, configuration: Configuration, output: str | Path) -> Self:
        """Returns the job of a configuration, with its files, and feature types if they are tables.

        The types are its own, or `propose`. Its trees are false in place of "auto" if LightGBM is
        not installed.

        Raises:
            ConfigurationError: As `inputs`, as `tfrank_sel.data.InputError`; or if the packages of
                the export are not installed.
        """
        if configuration.model.trees == "auto" and not has_lightgbm():
            model = configuration.model.model_copy(update={"trees": False})
            configuration = configuration.model_copy(update={"model": model})
        if configuration.export.onnx and not roads.exists("onnx"):
            raise configuration.error(
                "export.onnx", f"needs {roads.PACKAGES['onnx']}", "an installation without it"
            )
        for name in ("onnx", "onnxruntime") if configuration.export.onnx else ():
            if importlib.util.find_spec(name) is None:
                raise configuration.error(
                    "export.onnx", f"needs {name}: pip install 'tfrank_sel[onnx]'", f"no {name}"
                )
        files = inputs(configuration)
        if (files is None) != configuration.data.synthetic:
            reason = "must name files, or `data.synthetic` must be true (`--synthetic`), not both"
            given = "no files" if files is None else "files and data.synthetic"
            raise configuration.error("data", reason, given)
        if files is None or configuration.features or not isinstance(files.reader, TableReader):
            return cls(configuration, files, output)
        configuration, left_out = _with_types(configuration, files)
        if (omit := configuration.data.omit) and not configuration.features:
            raise configuration.error("data.omit", "must leave a feature", ", ".join(omit))
        return cls(configuration, inputs(configuration), output, left_out)

    @functools.cached_property
    def mirror(self) -> Mirror:
        """The folder on this machine, and its place in a store."""
        return Mirror.of(self.output)

    @property
    def path(self) -> Path:
        """The folder on this machine."""
        return self.mirror.path

    @property
    def place(self) -> str:
        """Folder or URL of the run."""
        return self.mirror.url or str(self.path)

    @property
    def serving_folder(self) -> str:
        """Folder or URL of all served models."""
        folder = self.configuration.serving.folder
        if folder is None:
            return stores.join(self.place, "serving")
        return folder if stores.is_remote(folder) else os.path.abspath(folder)

    def files(self, split: str) -> str:
        """The files of a split, for errors."""
        sources = self.inputs.sources if self.inputs else ()
        return ", ".join(x.path for x in sources if x.split in (None, split)) or split
