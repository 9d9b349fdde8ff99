"""Schema of features: inferred from the training split or curated, for the validation of splits."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfrank_sel import data
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import rejection
from tfrank_sel.features import FeatureTypes, Vector
from tfrank_sel.models import summary
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis.gates import (
    NUMBERS,
    TEXTS,
    WARN_ALL,
    Anomaly,
    check_rule,
    compare_types,
)
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.configuration.data import Gates
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.runners import Options

_KINDS = {schema_pb2.FLOAT: NUMBERS, schema_pb2.INT: NUMBERS, schema_pb2.BYTES: TEXTS}


def infer(statistics: Statistics, spec: data.FeatureSpec, path: Path) -> schema_pb2.Schema:
    """Infers the schema of a split and writes it as a text proto.

    The schema has the parts of a list, with the ranges of the label (from 0) and of each feature.

    Args:
        statistics: Statistics of the training split.
        spec: Names of the parts and number of features.
        path: File to write.

    Returns:
        The schema, of tensorflow-metadata.
    """
    schema = schema_pb2.Schema()
    features = schema.feature.add(name=spec.features, type=schema_pb2.FLOAT)
    features.shape.dim.add(size=spec.num_features)
    _add_range(schema, spec.label, 0.0, max(float(label) for label in statistics.labels))
    for name in (spec.doc_id, spec.query_id):
        schema.feature.add(name=name, type=schema_pb2.BYTES).shape.dim.add(size=1)
    lows, highs = statistics.features["min"], statistics.features["max"]
    for name, low, high in zip(statistics.names, lows, highs, strict=True):
        _add_range(schema, name, low, high)
    for name in statistics.texts:
        schema.feature.add(name=name, type=schema_pb2.BYTES)
    folders.write_text(path, text_format.MessageToString(schema))
    return schema


def load(path: Path) -> schema_pb2.Schema:
    """Reads a schema: one written by `infer`, possibly edited, or one in the same form.

    Args:
        path: A text proto of tensorflow-metadata.

    Raises:
        tfrank_sel.data.InputError: If the file does not exist, is not a schema or has no feature,
            or the domain of a feature is missing.
    """
    try:
        schema = text_format.Parse(stores.read_text(path), schema_pb2.Schema())
        if not schema.feature:
            raise ValueError("no feature")
        for feature in schema.feature:
            _domain(feature, schema)
    except (OSError, ValueError, text_format.ParseError) as error:
        reason = "expected a schema of tensorflow-metadata as text"
        raise rejection(str(path), reason, " ".join(str(error).split())) from error
    return schema


def validate(
    shards: Mapping[str, Sequence[str]],
    schema: schema_pb2.Schema,
    spec: data.FeatureSpec,
    scratch: str | Path,
    *,
    features: FeatureTypes | None = None,
    gates: Gates = WARN_ALL,
    of: str = "training",
    inferred_from: Statistics | None = None,
    options: Options = None,
) -> dict[str, list[Anomaly]]:
    """Validates splits against a schema.

    The rules are `range` (of `float_domain` or `int_domain`), `domain` (of `string_domain`),
    `missing` (of `presence.min_fraction`), `type`, `new_feature` and `absent_feature`. The rules of
    a vector apply to each of its columns.

    Args:
        shards: TFRecord files of the packed layout, of each split.
        schema: The schema, from `infer` or `load`.
        spec: Names of the parts and number of features.
        scratch: Temporary folder or URL that all workers can write to.
        features: Type of each feature; by default all are numbers.
        gates: Action and threshold of each rule.
        of: Name of the schema in messages.
        inferred_from: Statistics of the split of which `schema` has the ranges. Some items of other
            splits are outside by chance, which breaks no rule.
        options: Options of Beam; None for this process.

    Returns:
        For each split, one anomaly for each rule that is broken and not off.
    """
    features = features or {spec.features: Vector(size=spec.num_features)}
    rules = _Rules.of(schema, spec, features)
    outside = _Outside(spec, features, rules)
    anomalies = runners.totals(
        shards, stored_lists.blocks, outside, np.ndarray.tolist, scratch, options
    )
    kinds = {x: TEXTS if x in rules.domains else NUMBERS for x in rules.names}
    return {
        split: [
            *rules.anomalies(counts, gates, of, inferred_from.lists if inferred_from else 0),
            *compare_types(rules.kinds, kinds, of, gates, counts[2][0]),
        ]
        for split, counts in anomalies.items()
    }


def write(anomalies: Sequence[Anomaly], path: Path) -> None:
    """Writes anomalies as JSON."""
    folders.write_json(path, [dataclasses.asdict(anomaly) for anomaly in anomalies])


@dataclasses.dataclass(frozen=True)
class _Rules:
    """Rules of a schema for the label, each column of numbers, and each text feature."""

    names: list[str]
    kinds: dict[str, str]  # of the features of the schema
    bounds: np.ndarray  # minimum and maximum, and minimum share of items, `[3, names]`
    domains: dict[str, list[str]]  # of the text features; none if any value is valid

    @classmethod
    def of(
        cls, schema: schema_pb2.Schema, spec: data.FeatureSpec, features: FeatureTypes
    ) -> "_Rules":
        roles = {spec.features, spec.doc_id, spec.query_id}
        asked = {x.name: x for x in schema.feature if x.name not in roles}
        owners = {x: name for name, kind in features.items() for x in kind.columns(name)}
        texts = [name for name, kind in features.items() if kind.texts(name)]
        names = [spec.label, *owners, *texts]
        rows = [asked.get(x, asked.get(owners.get(x, x), schema_pb2.Feature())) for x in names]
        kinds = {
            column: _KINDS.get(row.type, "")
            for name, row in {spec.label: rows[0], **asked}.items()
            for column in (features[name].columns(name) if name in features else ()) or [name]
        }
        return cls(
            names,
            kinds,
            np.array([(*_range(row), row.presence.min_fraction) for row in rows]).T,
            {x: _domain(row, schema) for x, row in zip(names, rows, strict=True) if x in texts},
        )

    def anomalies(
        self, counts: Sequence[Sequence[int]], gates: Gates, of: str, seen: int
    ) -> Iterator[Anomaly]:
        """The broken rules, from the counts of `_Outside`; ranges are of `seen` lists, or given."""
        bounds = zip(self.names, *self.bounds.tolist(), strict=True)
        for (name, low, high, present), (n, lacking, all_, of_lists, lists) in zip(
            bounds, zip(*counts, strict=True), strict=True
        ):
            if n and (not seen or of_lists > _by_chance(lists, seen)):
                rule, values = "range", f"values from {low:g} to {high:g}"
                if name in self.domains:
                    rule, values = "domain", f"one of {len(self.domains[name])} values"
                received = f"{n} of {all_} items outside"
                yield from check_rule(
                    gates, rule, name, f"{values}, as in {of}", received, n, n / all_
                )
            if lacking and (all_ - lacking) / all_ < present:
                expected = f"a value for a share of {present:g} of the items, as in {of}"
                received = f"none for {lacking} of {all_} items"
                yield from check_rule(gates, "missing", name, expected, received, lacking)


@dataclasses.dataclass
class _Outside(runners.Combiner):
    """Counts items outside of range or domain, those without a value, and all, then lists with an
    item outside of its range, and all: `[5, names]`.

    See `runners.Combiner`.
    """

    spec: data.FeatureSpec
    features: FeatureTypes
    rules: _Rules

    def count(self, element: Sequence[bytes]) -> np.ndarray:
        items = stored_lists.items(element, self.spec)
        numbers = summary.joined_columns(self.features, items.features).astype(np.float32)
        values = np.column_stack([items.labels, numbers])
        count = values.shape[1]
        low, high, _ = self.rules.bounds[:, :count].astype(np.float32)
        is_outside = (values < low) | (values > high)
        outside = np.count_nonzero(is_outside, axis=0).tolist()
        starts = np.cumsum(items.sizes) - items.sizes
        of_lists = np.count_nonzero(np.logical_or.reduceat(is_outside, starts), axis=0).tolist()
        missing = np.count_nonzero(np.isnan(values), axis=0).tolist()
        for name, texts in summary.of_features(np.asarray(items.texts), self.features).items():
            allowed = {text.encode() for text in ("", *self.rules.domains[name])}
            is_free = len(allowed) == 1
            outside.append(0 if is_free else sum(not allowed >= {*x} for x in texts.tolist()))
            missing.append(np.sum(~texts.astype(bool).any(axis=1)))
        of_lists += [0] * (len(missing) - count)
        totals = [np.full_like(missing, len(x)) for x in (values, starts)]
        return np.stack([outside, missing, totals[0], of_lists, totals[1]])


def _by_chance(lists: int, seen: int) -> int:
    """How many of some lists may exceed the range of others that are alike (p of 1e-5)."""
    share, count = lists / (lists + seen), 0
    # the numbers above the highest and below the lowest value are geometric
    while share**count * (1.0 + count * (1.0 - share)) > 1e-5:
        count += 1
    return count - 1


def _range(feature: schema_pb2.Feature) -> tuple[float, float]:
    """The minimum and the maximum number of a feature."""
    kind = feature.WhichOneof("domain_info")
    domain = getattr(feature, kind) if kind in ("float_domain", "int_domain") else None
    low = domain.min if domain is not None and domain.HasField("min") else -math.inf
    high = domain.max if domain is not None and domain.HasField("max") else math.inf
    return low, high


def _domain(feature: schema_pb2.Feature, schema: schema_pb2.Schema) -> list[str]:
    """The allowed texts of a feature; None if all are allowed."""
    if not feature.domain:
        return list(feature.string_domain.value)
    domains = {x.name: list(x.value) for x in schema.string_domain}
    if feature.domain not in domains:
        raise ValueError(f"no string_domain {feature.domain!r}, which {feature.name!r} names")
    return domains[feature.domain]


def _add_range(schema: schema_pb2.Schema, name: str, low: float, high: float) -> None:
    feature = schema.feature.add(name=name, type=schema_pb2.FLOAT)
    feature.float_domain.min, feature.float_domain.max = low, high
