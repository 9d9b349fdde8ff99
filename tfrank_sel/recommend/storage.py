"""Recommenders on disk: a folder of the configuration, arrays and trees."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tfrank_sel.models.als import ids
from tfrank_sel.recommend.scores import Array

CONFIG, ARRAYS, TREES = "config.json", "arrays.npz", "trees.txt"
_PARTS = ("data", "indices", "indptr", "shape")  # of a CSR matrix


def write(folder: Path, config: Mapping[str, Any], arrays: Sequence[Any], trees: Any) -> None:
    """Writes the files of a recommender.

    Args:
        folder: The folder.
        config: The configuration, JSON-ready.
        arrays: Arrays of numbers, or of texts, and CSR matrices.
        trees: A `lightgbm.Booster`.
    """
    (folder / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / TREES).write_text(trees.model_to_string(), encoding="utf-8")
    named: dict[str, Any] = dict(flatten(arrays))
    np.savez(folder / ARRAYS, **named)


def flatten(arrays: Iterable[Any]) -> Iterator[tuple[str, Array]]:
    """Yields names and arrays of numbers that hold arrays, also of texts, and CSR matrices."""
    for i, value in enumerate(arrays):
        yield from _flat(f"{i:06}", value)


def read_arrays(path: Path) -> list[Any]:
    """Returns the arrays that `write` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        flat = dict(stored)
    return [_array(number, flat) for number in sorted({name[:6] for name in flat})]


def _flat(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if sp.issparse(value):
        yield from ((f"{name}{part}", np.asarray(getattr(value, part))) for part in _PARTS)
    elif value.dtype == object:
        yield from ids.to_arrays(f"{name}text", ids.Numbering(value)).items()
    else:
        yield name, value


def _array(name: str, flat: dict[str, Array]) -> Any:
    if name in flat:
        return flat[name]
    numbering = ids.from_arrays(f"{name}text", flat)
    if numbering is not None:
        return numbering.ids
    data, indices, indptr, shape = (flat[f"{name}{part}"] for part in _PARTS)
    matrix = sp.csr_matrix((data, indices, indptr), tuple(shape))
    matrix.check_format()
    return matrix
