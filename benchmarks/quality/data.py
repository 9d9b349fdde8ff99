"""Folds of a LETOR set, in the forms for networks and for trees."""

import dataclasses
import itertools
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data import ItemList, letor

PARTS = ("train", "vali", "test")
# of a list; longer ones go to the next, so that little is padding
EDGES = (8, 16, 40, 128, 256, 512, 1024)
POOLED = 5  # parts of a folder that has no folds

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
    4 and tests on 5, and the next ones begin a part later, as LETOR says. The lists of any other
    files are divided into five parts at random.
    """
    if (folder / "Fold1").is_dir():
        count = len(list(folder.glob("Fold*")))
        return [
            {part: read(folder / f"Fold{fold}", part) for part in PARTS}
            for fold in range(1, count + 1)
        ]
    if list(folder.glob("S1.txt*")):
        sets = [read(folder, f"S{i}") for i in range(1, 6)]
    else:
        lists = pooled(folder)
        order = np.random.default_rng(0).permutation(len(lists))
        sets = [[lists[i] for i in order[part::POOLED]] for part in range(POOLED)]
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


def pooled(folder: pathlib.Path) -> list[ItemList]:
    """Reads all files of a folder, of LETOR or of LightGBM with a `.query` file of sizes."""
    with tempfile.TemporaryDirectory() as made:
        paths = []
        for path in sorted(folder.iterdir()):
            sizes = path.with_name(f"{path.name}.query")
            if sizes.exists():
                paths.append(_with_queries(path, sizes, pathlib.Path(made)))
            elif path.name.removesuffix(".gz").endswith(".txt"):
                paths.append(path)
        found = []
        width = max(map(letor.num_features, paths))
        for path in paths:
            for one in letor.read(path, width):
                found.append(dataclasses.replace(one, query_id=f"{path.name}-{one.query_id}"))
    return found


def _with_queries(path: pathlib.Path, sizes: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes a file of LightGBM's as one of LETOR."""
    counts = [int(size) for size in sizes.read_text(encoding="utf-8").split()]
    numbers = np.repeat(np.arange(len(counts)), counts)
    lines = [line.partition(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    text = "".join(
        f"{label} qid:{number} {rest}\n"
        for (label, _, rest), number in zip(lines, numbers, strict=True)
    )
    (folder / path.name).write_text(text)
    return folder / path.name


def buckets(
    lists: Lists, moments: tuple[Sequence[float], Sequence[float]], within: bool
) -> list[Bucket]:
    """Standardises lists by moments and pads them; `within` appends what `WithinList` does."""
    found = []
    sizes = np.array([len(x.labels) for x in lists])
    if sizes.max() > EDGES[-1]:
        raise ValueError(f"expected lists of at most {EDGES[-1]} items. Received: {sizes.max()}")
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
