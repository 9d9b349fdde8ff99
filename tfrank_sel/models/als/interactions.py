"""User-item interactions, and their conversion to a checked sparse matrix."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.data import arrays, arrow_types, formats, table
from tfrank_sel.errors import received, refusal
from tfrank_sel.models.als import ids

Matrix: TypeAlias = Any  # SciPy's sparse matrices have no types

_COLUMNS = ("user", "item", "gain")
_PLACE = "interactions"
_TIME = 1e7  # days written as numbers, such as 20240229, and seconds since 1970, are above
_DAYS = (7_305, 29_220)  # since 1970: 1990 to 2050
# most indices that a column may have: so many per interaction, and so many more
_GAPS, _FREE = 10, 100_000


@dataclasses.dataclass(frozen=True, eq=False)
class Interactions:
    """Users and items of interactions by index, in the order in which they were given.

    Args:
        pairs: A SciPy sparse matrix `[users, items]` of gains; or the users, the items and the
            gains, each `[count]`.
        numberings: The ids of the users and of the items; None if they are indices.
        times: Times, `[count]`, as `data.arrays.moments`, if any.
    """

    pairs: Any
    numberings: ids.Pair = (None, None)
    times: NDArray[Any] | None = None

    def matrix(
        self, shape: tuple[int, int] | None = None, fitted: tuple[int, int] = (0, 0)
    ) -> Matrix:
        """Returns the gains as a CSR matrix, also those of 0; otherwise as `as_matrix`.

        Args:
            shape: As in `as_matrix`.
            fitted: The numbers of users and items of the fit, whose indices make no gaps.
        """
        if sp.issparse(self.pairs):
            matrix = sp.csr_matrix(self.pairs.astype(_wide(self.pairs.dtype)), copy=True)
            if shape is not None and matrix.shape != tuple(shape):
                raise refusal(f"`interactions` must have shape {tuple(shape)}", shape=matrix.shape)
        else:
            users, items, gains = self.pairs
            if shape is None and not len(users):
                raise refusal("`interactions` must have at least one", "none")
            for side, (name, indices) in enumerate((("user", users), ("item", items))):
                numbering = self.numberings[side]
                known = fitted[side] if numbering is None else len(numbering.ids)
                _check_indices(name, indices, None if shape is None else shape[side], known)
            matrix = sp.csr_matrix((gains.astype(_wide(gains.dtype)), (users, items)), shape=shape)
        matrix.sum_duplicates()
        if not np.all(np.isfinite(matrix.data)) or np.any(matrix.data < 0):
            raise refusal(
                "Gains must be finite and not negative",
                f"gains from {matrix.data.min()} to {matrix.data.max()}",
            )
        return matrix

    def among(self, fitted: ids.Pair) -> "Interactions":
        """Returns the interactions of users and items of the fit; the indices of others are larger.

        Warns of others.

        Raises:
            ValueError: If more than half are of others.
        """
        if fitted[0] is None or fitted[1] is None:
            return self
        users, items, gains = self.pairs
        is_known = (users < len(fitted[0].ids)) & (items < len(fitted[1].ids))
        others = "those of the users and items of the fit"
        table.tell_partners("interactions for validation", is_known, others)
        return Interactions((users[is_known], items[is_known], gains[is_known]), fitted)

    def divide(self, share: float, random: np.random.Generator) -> tuple[Matrix, Matrix]:
        """Divides the interactions in those to fit and those held out.

        The latest are held out; without times, random ones are. Held-out pairs that are also among
        the others are left out, and so are users without others.

        Args:
            share: Share of the interactions that is held out.
            random: Source of random numbers.

        Raises:
            ValueError: If there is not a time for each interaction.
        """
        matrix = as_matrix(self)
        pairs = matrix if self.times is None else self.pairs
        if sp.issparse(pairs):
            pairs = pairs.tocoo()
            pairs = pairs.row, pairs.col, pairs.data
        if self.times is None:
            is_held_out = random.random(matrix.nnz) < share
        else:
            if self.times.shape != pairs[0].shape:
                raise refusal(
                    "`times` must have a value for each interaction",
                    f"shape {self.times.shape}, of {len(pairs[0])} interactions",
                )
            _, order = np.unique(self.times, return_inverse=True)
            latest = np.quantile(order, 1.0 - share, method="lower")
            # those of the last time, however many, rather than none
            is_held_out = order > min(latest, order.max(initial=0) - 1)
        train, held_out = (
            as_matrix(tuple(column[chosen] for column in pairs), matrix.shape)
            for chosen in (~is_held_out, is_held_out)
        )
        has_others = train.getnnz(axis=1)[:, np.newaxis] > 0
        held_out = as_matrix(held_out.multiply(has_others) - held_out.multiply(train != 0))
        return train, held_out


def as_matrix(interactions: Any, shape: tuple[int, int] | None = None) -> Matrix:
    """Reads interactions into a CSR matrix of gains, one row per user.

    Gains of duplicate pairs are summed, and gains of 0 are dropped.

    Args:
        interactions: One of: a SciPy sparse matrix `[users, items]` of gains; a table in memory as
            in `read`; a tuple of two or three NumPy arrays; or an array `[count, 2 or 3]` of such
            columns. Users and items are indices from 0 without large gaps. The default gain is 1.
        shape: The numbers of users and items; if `None`, inferred from the interactions.

    Raises:
        TypeError: If the interactions have another type.
        ValueError: If a user, an item or a gain is out of range, or columns differ in length.
    """
    if not isinstance(interactions, Interactions):
        interactions = read(interactions, timed=False)
        users, items = interactions.numberings
        # The ids of such a table are indices, so they replace its numbering.
        if users is not None and items is not None:
            of_users, of_items, gains = interactions.pairs
            interactions = Interactions((users.ids[of_users], items.ids[of_items], gains))
    matrix = interactions.matrix(shape)
    matrix.eliminate_zeros()
    return matrix


def read(
    interactions: Any,
    fitted: ids.Pair | None = None,
    times: ArrayLike | None = None,
    *,
    timed: bool = True,
    user: str = "user",
    item: str = "item",
) -> Interactions:
    """Reads interactions, and numbers the users and the items of a table.

    Args:
        interactions: As in `as_matrix`. A table is a pandas or polars frame, an Arrow table, a
            mapping of columns or a list of dicts. It has columns `user`, `item` and maybe `gain`
            and `time`, or two or three columns of other names, for user, item and gain in that
            order. Ids are as in all tables: texts or integers, and 12.0 is 12.
        fitted: The ids of the fit, which new ones follow; None before it.
        times: Time of each interaction; the column `time` if None.
        timed: Whether to read the column `time`.
        user: Name of the column of users.
        item: Name of the column of items.

    Raises:
        ImportError: If a table is given without pyarrow.
        TypeError: If the interactions have another type.
        ValueError: If columns are missing or differ in length, or an id, a gain or a time is none.

    Warns of further columns of numbers or times, which are left out.
    """
    if isinstance(interactions, Interactions):
        return interactions
    if times is not None:
        raw_times = times if np.ndim(times) else [times]
        times = formats.table({"times": raw_times}, {"time": "times"}, place="`times`")["time"]
    pairs = _pairs(interactions)
    if fitted is not None and (pairs is None) != (fitted[0] is not None):
        raise refusal(
            "Interactions must be a frame of ids if, and only if, those of the fit were one",
            type(interactions).__name__,
        )
    if pairs is None:
        is_timed = timed and times is None
        return _of_table(interactions, fitted or (None, None), times, is_timed, (user, item))
    if (user, item) != ("user", "item"):
        reason = "`user` and `item` name columns: interactions must be a frame or table"
        raise refusal(reason, type(interactions).__name__)
    return Interactions(pairs, times=times)


def _of_table(
    source: Any,
    fitted: ids.Pair,
    times: NDArray[Any] | None,
    timed: bool,
    columns: tuple[str, str],
) -> Interactions:
    try:
        if not _is_of_columns(source):
            source = table.of_frame(source)
        names = [*map(str, source if _is_of_columns(source) else source.schema.names)]
        roles = _roles(names, *columns)
        if not timed:
            roles.pop("time", None)
        whole = table.of_frame(source, names={*roles.values()})
    except TypeError as error:
        expected = (
            "`interactions` must be a SciPy sparse matrix, a frame or table with columns "
            "`user` and `item`, a tuple of arrays, or an array with one row per pair"
        )
        raise TypeError(received(expected, type(source).__name__)) from error
    table.check(_PLACE, whole.schema.names, roles.values())
    if {*columns} <= {*names}:
        of_roles = (*columns, "gain", "time")
        _warn_of_rest(source, [name for name in names if name not in of_roles])
    elif roles.get("gain", "gain") != "gain" and _are_times(whole[roles["gain"]]):
        raise refusal(
            "`interactions` must have gains as third column: name the others by `user=` and "
            "`item=`, and rename the third to `time`, or to `gain` if it is one",
            f"{roles['gain']!r}, such as {whole[roles['gain']][0]}",
        )
    gains = np.ones(whole.num_rows, np.float32)
    if others := {role: name for role, name in roles.items() if role in ("gain", "time")}:
        values = formats.table(whole.select(list(others.values())), others, place=_PLACE).roles
        if "gain" in others:
            kind = arrow_types.plain_type(whole.schema.field(others["gain"]).type)
            is_plain = arrow_types.arrow().types.is_primitive(kind)
            gains = values["gain"].astype(_wide(kind.to_pandas_dtype()) if is_plain else float)
        times = values.get("time") if times is None else times
    users, items = (
        ids.number_ids(roles[role], whole[roles[role]], _PLACE, known)
        for role, known in zip(("user", "item"), fitted, strict=True)
    )
    return Interactions((users[0], items[0], gains), (users[1], items[1]), times)


def _is_of_columns(source: Any) -> bool:
    """Whether a table is a mapping or a pandas frame, of which a column may not be convertible."""
    return isinstance(source, Mapping) or hasattr(source, "iterrows")


def _warn_of_rest(source: Any, names: list[str]) -> None:
    """Warns of columns that are left out but may have been meant: those of numbers or times."""
    if rest := _of_numbers(source, names):
        warnings.warn(
            f"`interactions` have columns {rest}, which are left out: rename a column to "
            "`gain` or `time` if it is one, or pass only the columns to use",
            stacklevel=5,
        )


def _of_numbers(source: Any, names: list[str]) -> list[str]:
    """Those of some columns that are numbers or times; what cannot be converted is neither."""
    try:
        schema = table.of_frame(source, names=names).schema
    except (TypeError, ValueError, NotImplementedError, OverflowError):
        return [x for name in names for x in _of_numbers(source, [name])] if names[1:] else []
    return [x.name for x in schema if _is_of_numbers(x.type)]


def _roles(names: list[str], user: str, item: str) -> dict[str, str]:
    """The column of each role of a table, by name or by order."""
    if {user, item} <= set(names) and user != item:
        by_name = {"user": user, "item": item}
        return by_name | {x: x for x in ("gain", "time") if x in names and x not in (user, item)}
    if len(names) not in (2, 3) or (user, item) != ("user", "item"):
        raise refusal(
            f"`interactions` must have columns `{user}`, `{item}` and maybe `gain`, or others "
            "named by `user=` and `item=`, or only columns of these, in this order: "
            "`frame[[users, items]]`",
            columns=names,
        )
    return dict(zip(_COLUMNS, names, strict=False))


def _is_of_numbers(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers or of times."""
    kind = arrow_types.plain_type(kind)
    return arrow_types.is_number(kind) or bool(arrow_types.arrow().types.is_temporal(kind))


def _are_times(column: Any) -> bool:
    """Whether values are more likely times, such as numbers of days, than gains."""
    kind = arrow_types.plain_type(column.type)
    if not arrow_types.is_number(kind) or not len(column):
        return _is_of_numbers(kind) and not arrow_types.is_number(kind)
    numbers = arrays.doubles(column)
    is_of_days = _DAYS[0] <= np.median(numbers) and numbers.max() <= _DAYS[1]
    return bool(numbers.min() >= _TIME or is_of_days)


def _pairs(interactions: Any) -> Any:
    """A sparse matrix as it is, or users, items and gains as arrays; None of a table."""
    if sp.issparse(interactions):
        return interactions
    if isinstance(interactions, np.ndarray) and interactions.ndim == 2:
        columns = list(interactions.T)
        if len(columns) > 2:  # gains make numbers of the other columns, too
            columns[:2] = map(_as_integers, columns[:2])
    elif isinstance(interactions, tuple):
        columns = [np.asarray(column) for column in interactions]
    else:
        return None
    if len(columns) not in (2, 3) or len({column.shape for column in columns}) != 1:
        raise refusal(
            "Users, items and gains (if given) must be columns of equal length",
            f"shapes {[column.shape for column in columns]}",
        )
    return columns[0], columns[1], columns[2] if columns[2:] else np.ones(len(columns[0]), "f4")


def _as_integers(column: NDArray[Any]) -> NDArray[Any]:
    """The integers of a column of floats, if it has no others."""
    if column.dtype.kind != "f":
        return column
    with np.errstate(invalid="ignore"):
        integers = column.astype(np.int64)
    return integers if np.array_equal(integers, column) else column


def merge(old: Matrix, new: Matrix) -> Matrix:
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


def _wide(dtype: Any) -> type[np.floating]:
    """The dtype of gains, in which duplicates are summed: float32 if it holds each of them."""
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


def _check_indices(name: str, indices: NDArray[Any], count: int | None, known: int) -> None:
    if not np.issubdtype(indices.dtype, np.integer):
        raise refusal(f"`{name}` must be integers from 0, or ids in a frame", dtype=indices.dtype)
    if len(indices) and (indices.min() < 0 or (count is not None and indices.max() >= count)):
        raise refusal(
            f"`{name}` must be from 0 to {'any' if count is None else count - 1}",
            f"from {indices.min()} to {indices.max()}",
        )
    if count is None and len(indices) and indices.max() >= known + _GAPS * len(indices) + _FREE:
        raise refusal(
            f"`{name}` must be indices from 0 without large gaps",
            f"{len(indices)} interactions, indices up to {indices.max()}. Pass a frame: its "
            "columns are ids, which may be any texts or integers",
        )
