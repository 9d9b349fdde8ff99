"""Preparation of features from statistics."""

from collections.abc import Mapping

import numpy as np

from tfrank_sel import models
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.rejections import rejection
from tfrank_sel.features import Category
from tfrank_sel.models import summary
from tfrank_sel.pipelines.analysis.statistics import Statistics


def fit_preparation(
    train: Statistics,
    layout: Schema,
    within_list: bool,
    before: models.Preparation | None = None,
) -> models.Preparation:
    """Returns the preparation of features for a network, from the training statistics.

    Args:
        train: Statistics of the training split.
        layout: Schema of a list.
        within_list: As in `models.Preparation`.
        before: The preparation of a model for a warm start. Its vocabularies are kept, and new
            values are appended up to `max_size`. Features with missing values before keep their
            indicator column.

    Raises:
        tfrank_sel.data.InputError: If a feature is constant, or if it has no earlier vocabulary and
            no value reaches the minimum count.
    """
    old = (before and before.vocabularies) or {}
    vocabularies = {}
    for name, feature in layout.features.items():
        if isinstance(feature, Category) and name in old:
            words = summary.vocabulary(train.texts[name], feature)
            new = [value for value in words if value not in {*old[name]}]
            vocabularies[name] = [*old[name], *new[: max(0, feature.max_size - len(old[name]))]]
        elif isinstance(feature, Category):
            vocabularies[name] = _vocabulary(name, feature, train.texts[name])
    measures = {name: np.array(values) for name, values in train.features.items()}
    missing = dict(zip(train.names, measures["missing"], strict=True))
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


def _vocabulary(name: str, feature: Category, counts: Mapping[str, int]) -> list[str]:
    where = "the training split"
    if len(counts) == 1:
        [[value, count]] = counts.items()
        reason = f"expected two values of {name!r}, or one and items without"
        raise rejection(where, reason, f"{value!r} for all {count} items")
    words = summary.vocabulary(counts, feature)
    if not words:
        expected = f"expected a value of {name!r} that occurs {feature.min_count} times"
        most = max(count for value, count in counts.items() if value)
        raise rejection(where, expected, f"at most {most}")
    return words
