"""Factors on disk: arrays as npz, everything else as JSON, without executable code."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


def write(
    path: str | os.PathLike[str], config: dict[str, Any], arrays: dict[str, Any], matrix: Any
) -> None:
    """Writes a temporary folder and renames it.

    Raises:
        FileExistsError: If `path` exists.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"`path` must not exist. Received: {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"indptr": matrix.indptr, "indices": matrix.indices, "gains": matrix.data}
    with tempfile.TemporaryDirectory(prefix=".save-", dir=path.parent) as aside:
        written = Path(aside) / "model"
        written.mkdir()
        (written / "config.json").write_text(json.dumps(config, indent=1))
        stored = {name: x for name, x in {**arrays, **parts}.items() if x is not None}
        np.savez(written / "arrays.npz", **stored)
        written.rename(path)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Reads the configuration, the arrays and the matrix."""
    path = Path(path)
    config = json.loads((path / "config.json").read_text())
    with np.load(path / "arrays.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    parts = [arrays.pop(name) for name in ("gains", "indices", "indptr")]
    shape = (len(arrays["user_factors"]), len(arrays["item_factors"]))
    matrix = sp.csr_matrix(tuple(parts), shape=shape)
    matrix.check_format()
    return config, arrays, matrix
