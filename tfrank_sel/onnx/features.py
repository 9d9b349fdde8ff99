"""Nodes of ONNX for the preparation of features, typed or packed."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel.canonical_text import canonical
from tfrank_sel.data import typed
from tfrank_sel.features import (
    DAY,
    MEAN,
    MISSING_INTEGER,
    Category,
    Feature,
    Hash,
    Set,
    Timestamp,
    Vector,
)
from tfrank_sel.models.preparation import FARTHEST, ROUNDING
from tfrank_sel.onnx import standard
from tfrank_sel.onnx.graph import Graph, GraphLists, concatenate, indices, no_form, part

_INTEGER = re.compile("0|-?[1-9][0-9]*")
_ZERO, _NONE = np.float32(0.0), np.float64(0.0)


def inputs(graph: Graph, features: Mapping[str, Feature]) -> dict[str, str]:
    """Adds an input for each feature, as the signature `predict` has it.

    Returns:
        The features by name: numbers, float32 `[batch_size, list_size, its numbers]`, or its texts
        or integers, of the same shape.
    """
    specs = typed.structure(features)
    values = {name: graph.input(spec, spec.name) for name, spec in specs.items()}
    item = next(name for name, feature in features.items() if feature.of == "item")
    lists = graph.lists(values[item])
    prepared = {}
    for name, feature in features.items():
        value = values[name]
        if feature.of == "query":
            value = graph("Unsqueeze", value, indices(1))
            tail = graph("Shape", value, start=2)
            value = graph("Expand", value, graph("Concat", lists, tail, axis=0))
        if not isinstance(feature, Vector | Set):
            value = graph("Unsqueeze", value, indices(-1))
        prepared[name] = _days(graph, value) if isinstance(feature, Timestamp) else value
    return prepared


def _days(graph: Graph, seconds: str) -> str:
    """Splits seconds into days and seconds of the day, NaN if missing."""
    second = graph("Mod", seconds, indices(DAY))
    day = graph("Div", graph("Sub", seconds, second), indices(DAY))
    is_missing = graph("Equal", seconds, indices(MISSING_INTEGER))
    return str(
        graph(
            "Where", is_missing, np.float32(np.nan), graph.cast(concatenate(graph, [day, second]))
        )
    )


def preparation(graph: Graph, layer: Any, lists: Any) -> Any:
    """The prepared features, with their mask if the features have it."""
    values = lists.features if isinstance(lists, GraphLists) else lists
    values = values if isinstance(values, dict) else {"features": values}
    mask = lists.mask if isinstance(lists, GraphLists) else None
    types = layer._types
    x = concatenate(graph, _columns(graph, types, values))
    is_missing = graph("IsNaN", x)
    mean, deviation = np.array(layer.mean), np.sqrt(np.array(layer.variance))
    x = graph("Sub", _compress(graph, x), mean)
    x = graph("Div", x, np.where(deviation > 0.0, deviation, np.inf))
    numbers = graph("Where", is_missing, _ZERO, graph.cast(x))
    parts = [numbers]
    if layer._places is not None:
        places = layer._standing
        mask = all_items(graph, numbers) if mask is None else mask
        chosen = graph("Gather", numbers, places.astype(np.int64), axis=-1)
        is_item = graph("Unsqueeze", mask, indices(-1))
        parts = [graph("Where", is_item, numbers, _ZERO), *_within_list(graph, chosen, is_item)]
    if len(layer._indicated):
        lacks = graph("Gather", is_missing, layer._indicated.astype(np.int64), axis=-1)
        mask = all_items(graph, numbers) if mask is None else mask
        parts.append(graph.cast(graph("And", lacks, graph("Unsqueeze", mask, indices(-1)))))
    parts += _texts(graph, layer, values)
    prepared = concatenate(graph, parts)
    return GraphLists(prepared, mask) if isinstance(lists, GraphLists) else prepared


def all_items(graph: Graph, values: str) -> str:
    """A mask of lists without padding."""
    return str(graph("Expand", np.array([[True]]), graph.lists(values)))


def _columns(graph: Graph, types: Mapping[str, Feature], values: Mapping[str, str]) -> list[str]:
    """The columns to standardise, float64: see `tfrank_sel.models.preparation.columns`."""
    parts = []
    numbers = {
        name: graph.cast(values[name], tf.float64)
        for name, feature in types.items()
        if feature.numbers(name)
    }
    for name, x in numbers.items():
        feature = types[name]
        if isinstance(feature, Timestamp):
            if feature.since is not None:
                gap = graph("Sub", numbers[feature.since], x)
                days = graph("Div", part(graph, gap, 1, 2), np.float64(DAY))
                parts.append(graph("Add", part(graph, gap, 0, 1), days))
            if feature.parts:
                of_day = graph("Div", part(graph, x, 1, 2), np.float64(DAY))
                day = graph("Add", part(graph, x, 0, 1), np.float64(3.0))
                weeks = graph("Floor", graph("Div", day, np.float64(7.0)))
                day = graph("Sub", day, graph("Mul", weeks, np.float64(7.0)))
                of_week = graph("Div", graph("Add", day, of_day), np.float64(7.0))
                for turn in (of_day, of_week):
                    angle = graph("Mul", turn, np.float64(2.0 * np.pi))
                    # runtimes have no cosine of float64
                    quarter = graph("Add", angle, np.float64(0.5 * np.pi))
                    parts += [graph("Sin", angle), graph("Sin", quarter)]
        elif not isinstance(missing := getattr(feature, "missing", MEAN), str):
            parts.append(graph("Where", graph("IsNaN", x), np.float64(missing), x))
        else:
            parts.append(x)
    return parts


def _compress(graph: Graph, x: str) -> str:
    """sign(x) * log1p(abs(x)): the rounding of u = 1 + a cancels in a * log(u) / (u - 1)."""
    a = graph("Abs", x)
    u = graph("Add", a, np.float64(1.0))
    gap = graph("Sub", u, np.float64(1.0))
    is_tiny = graph("Equal", gap, _NONE)
    ratio = graph("Div", graph("Log", u), graph("Where", is_tiny, np.float64(1.0), gap))
    return str(graph("Where", is_tiny, x, graph("Mul", x, ratio)))


def standardise(graph: Graph, x: str, is_item: str) -> str:
    """Values less their mean in the list, by their deviation: see `preparation.standardise`."""
    size = graph("ReduceSum", graph.cast(is_item, tf.float64), indices(1), keepdims=1)
    size = graph("Max", size, np.float64(1.0))

    def mean(values: str) -> str:
        return str(graph("Div", graph("ReduceSum", values, indices(1), keepdims=1), size))

    exact = graph("Where", is_item, graph.cast(x, tf.float64), _NONE)
    gaps = graph("Where", is_item, graph("Sub", exact, mean(exact)), _NONE)
    deviation = graph("Sqrt", mean(graph("Mul", gaps, gaps)))
    largest = graph("ReduceMax", graph("Abs", exact), indices(1), keepdims=1)
    is_spread = graph("Greater", deviation, graph("Mul", largest, np.float64(ROUNDING)))
    return str(graph("Div", gaps, graph("Where", is_spread, deviation, np.float64(np.inf))))


def _within_list(graph: Graph, x: str, is_item: str) -> list[str]:
    """Values relative to the list, and centred ranks: see `WithinList`."""
    size = graph("ReduceSum", graph.cast(is_item, tf.float64), indices(1), keepdims=1)
    z = standardise(graph, x, is_item)
    z = graph("Clip", graph.cast(z), np.float32(-FARTHEST), np.float32(FARTHEST))
    total = graph("Where", is_item, _less_more(graph, x, is_item, size), _NONE)
    others = graph("Max", graph("Sub", size, np.float64(1.0)), np.float64(1.0))
    return [z, graph.cast(graph("Div", graph.cast(total), graph.cast(others)))]


def _less_more(graph: Graph, x: str, is_item: str, size: str) -> str:
    """The number of items below less the number above, by sorting; float64."""
    # The largest number makes padding sort last.
    x = graph("Where", is_item, x, np.float32(np.finfo(np.float32).max))
    rows = graph("Transpose", x, perm=[0, 2, 1])
    shape = graph("Shape", rows)
    count = graph("Slice", shape, indices(2), indices(3))
    ordered, order = graph("TopK", rows, count, axis=-1, largest=0, sorted=1, outputs=2)
    last = np.iinfo(np.int64).max
    before = graph("Slice", ordered, indices(0), indices(-1), indices(2))
    after = graph("Slice", ordered, indices(1), indices(last), indices(2))
    begins = graph.cast(graph("Greater", after, before), tf.int64)
    # the group of equal values of each place, from 0
    begins = graph("Pad", begins, indices(0, 0, 1, 0, 0, 0))
    group = graph("CumSum", begins, np.int64(2))
    zeros, ones = (graph("Expand", np.float32(x), shape) for x in (0.0, 1.0))
    members = graph("ScatterElements", zeros, group, ones, axis=2, reduction="add")
    first = graph("CumSum", members, np.int64(2), exclusive=1)
    # less: places before the group; more: places after it, without padding
    both = graph("Add", graph("Add", first, first), members)
    places = graph("GatherElements", both, group, axis=2)
    places = graph("ScatterElements", zeros, order, places, axis=2)
    total = graph.cast(graph("Transpose", places, perm=[0, 2, 1]), tf.float64)
    return str(graph("Sub", total, size))


def within_list(graph: Graph, layer: Any, features: str, mask: str) -> str:
    """The features and their values relative to the list."""
    is_item = graph("Unsqueeze", mask, indices(-1))
    values = graph("Where", is_item, features, _ZERO)
    return concatenate(graph, [values, *_within_list(graph, features, is_item)])


def _texts(graph: Graph, layer: Any, values: Mapping[str, str]) -> list[str]:
    """One-hot features, and then integers: see `tfrank_sel.models.preparation.Texts`."""
    hot, ids = [], []
    for name, kind in layer._types.items():
        if not kind.texts(name):
            continue
        numbers, size = _ids(graph, layer, name, values[name])
        if kind.encoding == "embedding":
            ids.append(graph.cast(numbers))
            continue
        each = graph("Equal", graph("Unsqueeze", numbers, indices(-1)), np.arange(1, size))
        each = graph("ReduceMax", graph.cast(each), indices(-2), keepdims=0)
        is_none = graph("Equal", graph("ReduceMax", numbers, indices(-1), keepdims=1), indices(0))
        hot += [graph.cast(is_none), each]
    return [*hot, *ids]


def _ids(graph: Graph, layer: Any, name: str, texts: str) -> tuple[str, int]:
    """The integers of a feature, and how many there are."""
    kind = layer._types[name]
    if isinstance(kind, Hash) or (isinstance(kind, Category) and kind.out_of_vocabulary > 1):
        accepted = "expected a Category or Set with a vocabulary and out_of_vocabulary=1"
        raise no_form(layer, f"hashes of texts, of feature {name!r}; {accepted}")
    vocabulary = layer.vocabularies[name]
    keys: dict[Any, int] = {MISSING_INTEGER if kind.dtype == "int64" else "": 0}
    for index, value in enumerate(vocabulary, 2):
        for spelling in _spellings(value):
            if kind.dtype == "string":
                keys.setdefault(spelling, index)
            elif _INTEGER.fullmatch(spelling):
                keys.setdefault(int(spelling), index)
    numbers = standard.labels(graph, texts, [*keys], [*keys.values()], 1)
    return numbers, kind.ids(len(vocabulary))


def _spellings(value: str) -> list[str]:
    """The usual spellings of a value. ONNX has no regular expressions that replace texts."""
    value = canonical(value)
    iso = value.replace(" ", "T", 1)
    times = [f"{x}{zone}" for x in (value, iso) for zone in ("Z", "+00:00")]
    dates = [f"{value}{gap}00:00:00{zone}" for gap in " T" for zone in ("", "Z", "+00:00")]
    others = [value.title(), value.upper(), f"{value}.0", iso, *times, *dates]
    return [value, *(x for x in others if canonical(x) == value)]
