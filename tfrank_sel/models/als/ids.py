"""Ids of users and items, texts or integers, in place of indices."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.data import arrays, arrow_types, formats, table
from tfrank_sel.errors import refusal

Ids = NDArray[Any]  # int64, uint64 if one of them is beyond, or texts as objects

_LARGEST = np.iinfo(np.int64).max


class Numbering:
    """Ids by number, sorted once for all look-ups.

    Args:
        ids: The ids, each once.
    """

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._order = np.argsort(ids, kind="stable")

    def find(self, name: str, ids: Ids) -> NDArray[np.int64]:
        """Returns the numbers of ids, -1 for those that are unknown.

        Raises:
            ValueError: If ids are of another type.
        """
        dtype = self.ids.dtype
        if not ids.size or not self.ids.size:
            return np.full(ids.size, -1)
        if (ids.dtype.kind == "O") != (dtype.kind == "O"):
            expected = "texts" if dtype.kind == "O" else "integers"
            raise refusal(f"The ids of `{name}` must be {expected}, as in the fit", ids[:1])
        if dtype.kind != "O":  # of int64 and uint64 together NumPy makes floats
            limits = np.iinfo(dtype)
            if int(ids[0]) < limits.min or int(ids[-1]) > limits.max:
                raise refusal(
                    f"The ids of `{name}` must be from {limits.min} to {limits.max}, as those of "
                    "the fit; texts have no limits",
                    f"from {ids[0]} to {ids[-1]}",
                )
        ids = ids.astype(dtype)
        places = np.searchsorted(self.ids, ids, sorter=self._order)
        rows = self._order[np.minimum(places, len(self.ids) - 1)]
        return np.where(self.ids[rows] == ids, rows, -1)

    def rows(self, name: str, wanted: ArrayLike) -> NDArray[np.int64]:
        """Returns the numbers of ids, of any shape.

        Raises:
            ValueError: If an id is of another type, or unknown.
        """
        values = np.asarray(wanted)
        # an array has its type, which tells what its numbers hold; NumPy makes one type of a list
        if values.dtype.kind not in "iu" and not hasattr(wanted, "dtype"):
            values = np.asarray(wanted, object)
        ids, codes = distinct(name, arrays.array(values.ravel()), name)
        rows = self.find(name, ids)
        if unknown := ids[rows < 0].tolist():
            shown = f"{len(unknown)} others, such as {unknown[:5]}"
            raise refusal(f"`{name}` must be ids of the fit", shown)
        return rows[codes].reshape(values.shape)


Pair = tuple[Numbering | None, Numbering | None]  # of users and of items; None if they are indices


def distinct(name: str, column: Any, table_name: str) -> tuple[Ids, NDArray[np.int64]]:
    """Returns the different ids of an Arrow column, sorted, and the index among them of each row.

    Numbers are integers; values of other types are texts, as in all tables.

    Raises:
        ValueError: If an id is missing or empty, or a number is no integer of 64 bits.
    """
    pa = arrow_types.arrow()
    values = arrays.plain(column)
    kind = values.type
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if arrow_types.is_text(kind):
        texts, codes = arrays.encode(values.fill_null(""), sort=True)
        # sorted: an empty one is the first, and invalid ones follow each other
        bounds = np.searchsorted(texts, np.array([arrays.INVALID, "\U00010000"], object))
        if texts[0] and bounds[0] == bounds[1]:
            return texts, codes
    if not pa.types.is_integer(kind) or values.null_count:
        values = formats.table(pa.table({name: column}), {"user": name}, place=table_name)["user"]
        if arrow_types.is_number(kind):
            values = table.parse_numbers(pa.array(values, pa.string()))
            if not pa.types.is_integer(values.type):
                raise refusal(f"The ids of {name!r} must be all texts or all integers", kind)
    ids, codes = arrays.encode(values, sort=True)
    if ids.dtype.kind in "iu" and int(ids.max(initial=0)) <= _LARGEST:
        ids = ids.astype(np.int64)
    return ids, codes


def number_ids(
    name: str, column: Any, table_name: str, fitted: Numbering | None
) -> tuple[NDArray[np.int64], Numbering]:
    """Numbers the ids of an Arrow column; new ones follow those of the fit, sorted.

    Raises:
        ValueError: As `distinct`, or if ids are of another type than those of the fit.
    """
    ids, codes = distinct(name, column, table_name)
    if fitted is None or not fitted.ids.size:
        return codes, Numbering(ids)
    rows = fitted.find(name, ids)
    is_new = rows < 0
    if is_new.any():
        rows[is_new] = len(fitted.ids) + np.arange(np.sum(is_new))
        fitted = Numbering(np.concatenate([fitted.ids, ids[is_new].astype(fitted.ids.dtype)]))
    return rows[codes], fitted


def ids_at(indices: NDArray[Any], numbering: Numbering | None) -> NDArray[Any]:
    """Returns the ids of indices, if there are ids; for -1, the number -1 or the empty text.

    In uint64, -1 is the largest number.
    """
    if numbering is None:
        return indices
    ids = numbering.ids
    none = np.array(-1 if ids.dtype.kind in "iu" else "").astype(ids.dtype)
    return np.where(indices < 0, none, ids[indices])


def to_arrays(name: str, numbering: Numbering | None) -> dict[str, NDArray[Any]]:
    """Returns ids as arrays to save, by name: texts are their bytes, and the ends of these."""
    if numbering is None:
        return {}
    if numbering.ids.dtype.kind != "O":
        return {name: numbering.ids}
    octets = [text.encode() for text in numbering.ids.tolist()]
    ends = np.cumsum([len(x) for x in octets], dtype=np.int64)
    return {name: np.frombuffer(b"".join(octets), np.uint8), f"{name}_ends": ends}


def from_arrays(name: str, arrays: dict[str, NDArray[Any]]) -> Numbering | None:
    """Returns the ids that were saved; None if there are none."""
    if name not in arrays:
        return None
    ids = arrays[name]
    if f"{name}_ends" in arrays:
        octets, ends = ids.tobytes(), [0, *arrays[f"{name}_ends"].tolist()]
        texts = [octets[i:j].decode() for i, j in itertools.pairwise(ends)]
        return Numbering(np.array(texts, object))
    # Earlier versions saved texts as NumPy's.
    return Numbering(ids.astype(object) if ids.dtype.kind == "U" else ids)
