"""Statistics for a preparation: moments of numbers, and vocabularies of texts."""

import collections
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tfrank_sel.canonical_text import canonical
from tfrank_sel.errors import refusal
from tfrank_sel.features import DAY, MEAN, Category, FeatureTypes, Timestamp, spans

BLOCK = 2**16  # items at a time that are copied to float64


def moments(
    features: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> tuple[list[float], list[float]]:
    """Returns the mean and variance with which `Preparation` standardises features.

    They are the moments of `sign(x) * log(1 + abs(x))` over the items, in float64. If float32 can
    hardly distinguish the values of a feature, its variance is 0 and scorers ignore it.

    Args:
        features: Features of items, `[..., num_features]`, as an array; `Preparation.of` takes a
            dataset with a mask.
        mask: True for an item, False for padding, `[...]`; None if there is no padding.

    Raises:
        ValueError: If there is no item, a feature is not finite, or `features` is no array.

    Example:
        >>> mean, variance = moments([[0.0, 3.0], [1.0, 3.0]])
        >>> [f"{value:.4f}" for value in (*mean, *variance)]
        ['0.3466', '1.3863', '0.1201', '0.0000']
    """
    values = np.asarray(features)
    if not values.ndim:
        raise refusal("`features` must be an array", type(features).__name__)
    rows = (
        values.reshape([-1, values.shape[-1]]) if mask is None else values[np.asarray(mask, bool)]
    )
    if not rows.size or not np.isfinite(rows).all():
        raise refusal(
            "`features` must have at least one item and finite values",
            f"{len(rows)} items, {int((~np.isfinite(rows)).sum())} values not finite",
        )
    blocks = (rows[i : i + BLOCK].astype(np.float64) for i in range(0, len(rows), BLOCK))
    total = functools.reduce(Moments.merge, (Moments.of(compress(x)) for x in blocks))
    return total.mean.tolist(), distinguishable(total.mean, total.variance()).tolist()


@dataclasses.dataclass
class Moments:
    """Moments of columns, merged without cancellation; NaN is ignored.

    Args:
        count: Number of values of each column.
        mean: Mean of the values; 0 if there is none.
        squares: Sum of the squared deviations from the mean.
    """

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Self:
        """Returns the moments of each column of rows."""
        is_there = ~np.isnan(rows)
        count = np.count_nonzero(is_there, axis=0)
        mean = np.where(is_there, rows, 0.0).sum(axis=0) / np.maximum(count, 1)
        gaps = np.where(is_there, rows - mean, 0.0)
        return cls(count, mean, np.einsum("ij,ij->j", gaps, gaps))

    def merge(self, other: "Moments") -> "Moments":
        """Returns the moments of the values of both objects together."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + gap**2 * self.count * share
        return Moments(count, self.mean + gap * share, squares)

    def variance(self) -> np.ndarray:
        """Returns the variance of each column; 0 if it has no value."""
        variances: np.ndarray = self.squares / np.maximum(self.count, 1)
        return variances


def compress(values: npt.ArrayLike) -> np.ndarray:
    """Compresses features to `sign(x) * log(1 + abs(x))`, outside of a model."""
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))


def column_names(features: FeatureTypes) -> list[str]:
    """Returns a name for each of `columns`."""
    return [x for name, feature in features.items() for x in feature.columns(name)]


def columns(features: FeatureTypes, numbers: Any, xp: Any = np) -> list[Any]:
    """Returns the columns to standardise from the numbers of items, feature by feature.

    A missing number becomes the constant of its type. A timestamp becomes its age in days, or the
    sines and cosines of its time of day and day of the week.

    Args:
        features: Type of each feature.
        numbers: Raw numbers, float64 `[..., num_features]`, NaN if missing.
        xp: Package of the functions: `np`, or `tf` in a graph.

    Returns:
        Parts of the columns, in the order of `column_names`, to be joined along the last axis; NaN
        if missing.
    """
    by_name = {
        name: numbers[..., :0] if is_text else numbers[..., span]
        for name, _, is_text, span in spans(features)
    }
    parts = []
    for name, feature in features.items():
        x = by_name[name]
        if isinstance(feature, Timestamp):
            if feature.since is not None:
                gap = by_name[feature.since] - x
                parts.append(gap[..., :1] + gap[..., 1:] / DAY)
            if feature.parts:
                day, second = x[..., :1], x[..., 1:]
                # 1970-01-01 was a Thursday, and a week begins on Monday
                of_week = ((day + 3.0) % 7.0 + second / DAY) / 7.0
                for turn in (second / DAY, of_week):
                    parts += [xp.sin(2.0 * np.pi * turn), xp.cos(2.0 * np.pi * turn)]
        elif not isinstance(getattr(feature, "missing", MEAN), str):
            constant = np.float64(feature.missing)  # type: ignore[attr-defined]
            parts.append(xp.where(x == x, x, constant))
        else:
            parts.append(x)
    return parts or [numbers]


def joined_columns(features: FeatureTypes, numbers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Returns the `columns` of numbers of items as an array."""
    return np.concatenate(columns(features, numbers.astype(np.float64)), axis=-1)


def distinguishable(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Returns variances, with 0 if float32, the dtype of models, can hardly distinguish the values.

    Dividing by the rounding error of a constant would turn it into noise.
    """
    return np.where(np.sqrt(variance) < 2.0**-20 * np.abs(mean), 0.0, variance)


def decode_texts(octets: np.ndarray) -> np.ndarray:
    """Returns bytes of TensorFlow as texts."""
    texts: np.ndarray = np.vectorize(bytes.decode, otypes=[object])(octets)
    return texts


def by_feature(texts: np.ndarray, features: FeatureTypes) -> dict[str, collections.Counter[str]]:
    """Counts the values of each feature of texts.

    Args:
        texts: The texts of items, or their bytes, `[items, num_texts]`.
        features: Type of each feature.

    Returns:
        The count of each value; an empty text means a missing value.
    """
    counters = {}
    for name, of_feature in of_features(texts, features).items():
        counted = collections.Counter(of_feature.ravel().tolist())
        counts = {x if isinstance(x, str) else x.decode(): n for x, n in counted.items()}
        if counts.pop("", 0) and (missing := int(np.sum(~of_feature.astype(bool).any(axis=1)))):
            counts[""] = missing
        counters[name] = collections.Counter(counts)
    return counters


def of_features(texts: np.ndarray, features: FeatureTypes) -> dict[str, np.ndarray]:
    """Splits the texts of items, `[items, num_texts]`, by feature, `[items, its texts]`."""
    return {name: texts[:, span] for name, _, is_text, span in spans(features) if is_text}


def vocabulary(counts: Mapping[str, int], feature: Category) -> list[str]:
    """Returns the vocabulary of a feature, most frequent value first.

    Args:
        counts: Count of each value.
        feature: The feature, with the minimum count and the maximum size.

    Example:
        >>> vocabulary({"a": 2, "b": 5, "c": 1, "": 9}, Category(min_count=2))
        ['b', 'a']
    """
    spellings = collections.Counter[str]()
    for value, count in counts.items():
        spellings[canonical(value)] += count
    often = [
        (-count, value)
        for value, count in spellings.items()
        if count >= feature.min_count and value and not {"\n", "\r"} & {*value}
    ]
    return [value for _, value in sorted(often)[: feature.max_size]]
