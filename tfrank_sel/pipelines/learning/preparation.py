"""Preparation of features from statistics."""

from collections.abc import Mapping, Sequence

import numpy as np

from tfrank_sel import models
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.lists import InputError
from tfrank_sel.features import Category
from tfrank_sel.models import summary
from tfrank_sel.pipelines.analysis.statistics import Statistics


def prepared(
    found: Statistics, layout: Schema, within_list: bool, before: models.Preparation | None = None
) -> models.Preparation:
    """Returns the preparation of features for a network, from the training statistics.

    Args:
        found: Statistics of the training split.
        layout: Schema of a list.
        within_list: As in `models.Preparation`.
        before: The preparation of a model for a warm start. Its vocabularies are kept, and new
            values are appended up to `max_size`. Features with missing values before keep their
            indicator column.

    Raises:
        tfrank_sel.data.InputError: If a feature is constant, or if it has no earlier vocabulary and
            no value reaches the minimum count.
    """
    known = (before and before.vocabularies) or {}
    vocabularies = {
        name: _grown(known[name], feature, found.texts[name])
        if name in known
        else _vocabulary(name, feature, found.texts[name])
        for name, feature in layout.features.items()
        if isinstance(feature, Category)
    }
    measures = {name: np.array(values) for name, values in found.features.items()}
    missing = dict(zip(found.names, measures["missing"], strict=True))
    mean = measures["compressed_mean"]
    variance = summary.distinguishable(mean, measures["compressed_variance"])
    missing_before = before.missing if before else ()
    return models.Preparation(
        mean.tolist(),
        np.where(measures["min"] == measures["max"], 0.0, variance).tolist(),
        within_list,
        layout.features,
        vocabularies,
        [
            name
            for name, feature in layout.features.items()
            if any(missing[x] or name in missing_before for x in feature.columns(name))
        ],
    )


def _grown(known: Sequence[str], feature: Category, counts: Mapping[str, int]) -> list[str]:
    new = [value for value in summary.vocabulary(counts, feature) if value not in {*known}]
    return [*known, *new[: max(0, feature.max_size - len(known))]]


def _vocabulary(name: str, feature: Category, counts: Mapping[str, int]) -> list[str]:
    place = "the training split"
    if len(counts) == 1:
        [[value, count]] = counts.items()
        wanted = f"expected two values of {name!r}, or one and items without"
        raise InputError(place, f"{wanted}. Received: {value!r} for all {count} items")
    known = summary.vocabulary(counts, feature)
    if not known:
        wanted = f"expected a value of {name!r} that occurs {feature.min_count} times"
        most = max(count for value, count in counts.items() if value)
        raise InputError(place, f"{wanted}. Received: at most {most}")
    return known
