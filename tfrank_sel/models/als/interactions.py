"""Conversion of user-item interactions to a checked sparse matrix."""

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tfrank_sel.refusals import received, refusal

Matrix: TypeAlias = Any  # SciPy's sparse matrices have no types

_COLUMNS = ("user", "item", "gain")
_TIME = 1e7  # days written as numbers, and seconds since 1970, are above
# most indices that a column may have: so many per interaction, and so many more
_GAPS, _FREE = 10, 100_000


def as_matrix(interactions: Any, shape: tuple[int, int] | None = None) -> Matrix:
    """Reads interactions into a CSR matrix of gains, one row per user.

    Gains of duplicate pairs are summed, and gains of 0 are dropped.

    Args:
        interactions: One of: a SciPy sparse matrix `[users, items]` of gains; a pandas frame or an
            Arrow table with columns `user`, `item` and optionally `gain`, or with two or three
            columns of other names in that order; a tuple of two or three NumPy arrays; or an array
            `[count, 2 or 3]` of such columns. Users and items are indices from 0 without large
            gaps. The default gain is 1.
        shape: The numbers of users and items; if `None`, inferred from the interactions.

    Raises:
        TypeError: If the interactions have another type.
        ValueError: If a user, an item or a gain is out of range, or columns differ in length.
    """
    matrix = with_zeros(interactions, shape)
    matrix.eliminate_zeros()
    return matrix


def with_zeros(interactions: Any, shape: tuple[int, int] | None = None) -> Matrix:
    """Reads interactions as `as_matrix`, with gains of 0."""
    if sp.issparse(interactions):
        matrix = sp.csr_matrix(interactions.astype(_wide(interactions.dtype)), copy=True)
        if shape is not None and matrix.shape != tuple(shape):
            raise refusal(f"`interactions` must have shape {tuple(shape)}", shape=matrix.shape)
    else:
        users, items, gains = split_columns(interactions)
        _check_ids("user", users, None if shape is None else shape[0])
        _check_ids("item", items, None if shape is None else shape[1])
        gains = gains.astype(_wide(gains.dtype))
        matrix = sp.csr_matrix((gains, (users, items)), shape=shape)
    matrix.sum_duplicates()
    if not np.all(np.isfinite(matrix.data)) or np.any(matrix.data < 0):
        raise refusal(
            "Gains must be finite and not negative",
            f"gains from {matrix.data.min()} to {matrix.data.max()}",
        )
    return matrix


def merged(old: Matrix, new: Matrix) -> Matrix:
    """Returns the interactions of both matrices; for a pair in both, the gain is that of `new`.

    A pair of gain 0 in `new` is left out.
    """
    shape = tuple(map(max, zip(old.shape, new.shape, strict=True)))
    old, new = old.copy(), new.copy()
    old.resize(shape)
    new.resize(shape)
    is_new = sp.csr_matrix((np.ones(new.nnz, bool), new.indices, new.indptr), shape)
    union = sp.csr_matrix(old - old.multiply(is_new) + new)
    union.eliminate_zeros()
    return union


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of gains, in which duplicates are summed."""
    return np.dtype(np.float64 if dtype.itemsize > 4 else np.float32)


def names_of(interactions: Any) -> list[str] | None:
    """Returns the names of the columns of a frame or table; None for other interactions."""
    names = getattr(interactions, "column_names", getattr(interactions, "columns", None))
    return None if names is None else list(names)


def split_columns(interactions: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns users, items and gains of interactions, in the order that these have."""
    if sp.issparse(interactions):
        pairs = interactions.tocoo()
        return pairs.row, pairs.col, pairs.data
    names = names_of(interactions)
    if names is not None:
        if {"user", "item"} <= set(names):
            names = [name for name in _COLUMNS if name in names]
        elif len(names) not in (2, 3):
            raise refusal(
                "`interactions` must have columns `user`, `item` and maybe `gain`, or only "
                "columns of these, in this order: `frame[[users, items]]`",
                columns=names,
            )
        columns = [np.asarray(interactions[name]) for name in names]
        if names[2:] not in ([], ["gain"]) and _are_times(columns[2]):
            raise refusal(
                "`interactions` must have gains as third column: rename columns to `user`, `item` "
                "and `time`, or `gain`",
                f"{names[2]!r}, such as {columns[2][0]}",
            )
    elif isinstance(interactions, np.ndarray) and interactions.ndim == 2:
        columns = list(interactions.T)
        if len(columns) > 2:  # gains make numbers of the other columns, too
            columns[:2] = map(_as_integers, columns[:2])
    elif isinstance(interactions, tuple):
        columns = [np.asarray(column) for column in interactions]
    else:
        expected = (
            "`interactions` must be a SciPy sparse matrix, a frame or table with columns "
            "`user` and `item`, a tuple of arrays, or an array with one row per pair"
        )
        raise TypeError(received(expected, type(interactions).__name__))
    if len(columns) not in (2, 3) or len({column.shape for column in columns}) != 1:
        raise refusal(
            "Users, items and gains (if given) must be columns of equal length",
            f"shapes {[column.shape for column in columns]}",
        )
    gains = columns[2] if len(columns) == 3 else np.ones(len(columns[0]), np.float32)
    return columns[0], columns[1], gains


def _as_integers(column: NDArray[Any]) -> NDArray[Any]:
    """The integers of a column of floats, if it has no others."""
    if column.dtype.kind != "f":
        return column
    with np.errstate(invalid="ignore"):
        integers = column.astype(np.int64)
    return integers if np.array_equal(integers, column) else column


def _are_times(column: NDArray[Any]) -> bool:
    """Whether numbers are more likely times, from 20240229 on, than gains."""
    is_number = column.dtype.kind in "iuf"
    return column.dtype.kind == "M" or bool(is_number and column.size and column.min() >= _TIME)


def times_of(interactions: Any) -> NDArray[Any] | None:
    """Returns the column `time` of a frame or table with columns `user` and `item`, if any."""
    if not {"user", "item", "time"} <= set(names_of(interactions) or ()):
        return None
    return np.asarray(interactions["time"])


def divided(
    interactions: Any, times: Any, share: float, random: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Divides interactions in those to fit and those held out.

    Held-out pairs that are also among the others are left out, and so are users without others.

    Args:
        interactions: As in `as_matrix`.
        times: Time of each interaction: the latest are held out. If `None`, random ones are.
        share: Share of the interactions that is held out.
        random: Source of random numbers.

    Raises:
        ValueError: If there is not a time for each interaction.
    """
    matrix = as_matrix(interactions)
    columns = split_columns(matrix if times is None else interactions)
    if times is None:
        is_held_out = random.random(matrix.nnz) < share
    else:
        when = np.asarray(times)
        if when.shape != columns[0].shape:
            raise refusal(
                "`times` must have a value for each interaction",
                f"shape {when.shape}, of {len(columns[0])} interactions",
            )
        if _is_unknown(when).any():
            raise refusal("`times` must have a value for each interaction", "missing values")
        _, order = np.unique(when, return_inverse=True)  # of any type that can be compared
        latest = np.quantile(order, 1.0 - share, method="lower")
        # those of the last time, however many, rather than none
        is_held_out = order > min(latest, order.max(initial=0) - 1)
    train, held_out = (
        as_matrix(tuple(column[chosen] for column in columns), matrix.shape)
        for chosen in (~is_held_out, is_held_out)
    )
    has_others = train.getnnz(axis=1)[:, np.newaxis] > 0
    held_out = as_matrix(held_out.multiply(has_others) - held_out.multiply(train != 0))
    return train, held_out


def _is_unknown(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where values are None, NaN or NaT, which are not equal to themselves, or pandas' NA."""
    if values.dtype.kind != "O":
        return np.asarray(values != values)
    return np.array([x is None or str(x) in ("<NA>", "NaT", "nan") for x in values.tolist()], bool)


def _check_ids(name: str, ids: NDArray[Any], count: int | None) -> None:
    if not np.issubdtype(ids.dtype, np.integer):
        raise refusal(f"`{name}` must be integers from 0, or ids in a frame", dtype=ids.dtype)
    if len(ids) and (ids.min() < 0 or (count is not None and ids.max() >= count)):
        raise refusal(
            f"`{name}` must be from 0 to {'any' if count is None else count - 1}",
            f"from {ids.min()} to {ids.max()}",
        )
    if count is None and len(ids) and ids.max() >= _GAPS * len(ids) + _FREE:
        raise refusal(
            f"`{name}` must be indices from 0 without large gaps",
            f"{len(ids)} interactions, indices up to {ids.max()}. Pass a frame: its columns are "
            "ids, which may be any texts or integers",
        )
