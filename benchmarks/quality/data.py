"""Folds of a LETOR set, in the forms for networks and for trees."""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data import ItemList, letor

PARTS = ("train", "vali", "test")
# of a list; longer ones go to the next, so that little is padding
EDGES = (8, 16, 40, 128)

Lists = Sequence[ItemList]


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Lists padded to one size.

    Args:
        places: Which lists of the part they are, `[lists]`.
        features: `[lists + 1, list_size, num_features]`, 0 at padding; the last has no items.
        labels: `[lists + 1, list_size]`, -1 at padding.
    """

    places: np.ndarray
    features: np.ndarray
    labels: np.ndarray


def folds(folder: pathlib.Path) -> list[dict[str, Lists]]:
    """Reads `Fold1/train.txt`, `vali.txt`, `test.txt`, and so on, or makes the folds of `S1.txt`.

    Files may be compressed (`.gz`). Of five parts, the first fold learns from 1 to 3, validates on
    4 and tests on 5, and the next ones begin a part later, as LETOR says.
    """
    if (folder / "Fold1").is_dir():
        return [
            {part: read(folder / f"Fold{fold}", part) for part in PARTS} for fold in range(1, 6)
        ]
    sets = [read(folder, f"S{i}") for i in range(1, 6)]
    return [
        {
            "train": [x for i in range(3) for x in sets[(fold + i) % 5]],
            "vali": sets[(fold + 3) % 5],
            "test": sets[(fold + 4) % 5],
        }
        for fold in range(5)
    ]


def read(folder: pathlib.Path, name: str) -> Lists:
    path = next(path for path in sorted(folder.glob(f"{name}.txt*")))
    return list(letor.read(path, letor.num_features(path)))


def buckets(
    lists: Lists, moments: tuple[Sequence[float], Sequence[float]], within: bool
) -> list[Bucket]:
    """Standardises lists by moments and pads them; `within` appends what `WithinList` does."""
    found = []
    sizes = np.array([len(x.labels) for x in lists])
    for low, edge in itertools.pairwise((0, *EDGES)):
        places = np.flatnonzero((sizes > low) & (sizes <= edge))
        # one more, without items, to fill batches with
        features = np.zeros([len(places) + 1, edge, len(moments[0])], np.float32)
        labels = np.full([len(places) + 1, edge], -1.0, np.float32)
        for row, place in enumerate(places):
            features[row, : sizes[place]] = lists[place].features
            labels[row, : sizes[place]] = lists[place].labels
        preparation = models.Preparation(*moments, within_list=within)
        is_item = labels >= 0.0
        values = preparation({"features": features, "mask": is_item})["features"]
        values = tf.where(is_item[..., np.newaxis], values, 0.0)
        found.append(Bucket(places, np.clip(values, -5.0, 5.0), labels))
    return found
