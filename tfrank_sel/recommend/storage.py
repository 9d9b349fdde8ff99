"""Recommenders on disk: a folder of the configuration, arrays and trees."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tfrank_sel.models.als import ids
from tfrank_sel.recommend.scores import Array

CONFIG, ARRAYS, TREES = "config.json", "arrays.npz", "trees.txt"
_PARTS = ("data", "indices", "indptr", "shape")  # of a CSR matrix


def write(folder: Path, config: Mapping[str, Any], arrays: Mapping[str, Any], trees: Any) -> None:
    """Writes the files of a recommender.

    Args:
        folder: The folder.
        config: The configuration, JSON-ready.
        arrays: Arrays of numbers, or of texts, and CSR matrices, by name.
        trees: A `lightgbm.Booster`.
    """
    (folder / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / TREES).write_text(trees.model_to_string(), encoding="utf-8")
    np.savez(
        folder / ARRAYS, **dict(x for name, value in arrays.items() for x in _flat(name, value))
    )


def read_arrays(path: Path) -> dict[str, Any]:
    """Reads the arrays that `write` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        flat = dict(stored)
    arrays: dict[str, Any] = {}
    for name in flat:
        base, _, part = name.rpartition("|")
        if part == "values":
            arrays[base] = flat[name]
        elif part == "text":
            numbering = ids.from_arrays(name, flat)
            arrays[base] = numbering and numbering.ids
        elif part == "data":
            data, indices, indptr, shape = (flat[f"{base}|{part}"] for part in _PARTS)
            arrays[base] = sp.csr_matrix((data, indices, indptr), tuple(shape))
            arrays[base].check_format()
    return arrays


def _flat(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if sp.issparse(value):
        for part in _PARTS:
            yield f"{name}|{part}", np.asarray(getattr(value, part))
    elif value.dtype == object:
        yield from ids.to_arrays(f"{name}|text", ids.Numbering(value)).items()
    else:
        yield f"{name}|values", value
