"""Rows of arrays and frames grouped by query, and padded batches of them."""

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from tfrank_sel.data.arrays import array
from tfrank_sel.data.formats import tables
from tfrank_sel.data.lists import InputError, groups
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.data.table import check, of_frame, readable
from tfrank_sel.features import Feature
from tfrank_sel.refusals import refusal

BLOCK = 2**16  # items of a padded batch


class RowGroups(NamedTuple):
    """The lists that rows belong to.

    Args:
        sizes: Number of rows of each list, by the first row of each list.
        order: Indices of the rows, list by list.
    """

    sizes: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, rows: int, qid: Any, group: Any) -> Self:
        """Groups rows by query.

        Args:
            rows: Number of rows.
            qid: Identifier of the query of each row, `[rows]`; None if there is none.
            group: Number of rows of each list, if its rows are adjacent; None if there is none.
                Without both, all rows are one list.

        Raises:
            ValueError: If both are given, an identifier is missing, or the sizes are not positive
                integers whose sum is `rows`.
        """
        if qid is not None and group is not None:
            raise refusal("pass `qid` or `group`", "both")
        if qid is not None:
            return cls._by_query(rows, qid)
        sizes = np.array([rows]) if group is None else column_or_1d(np.asarray(group))
        if sizes.dtype.kind not in "iu" or (sizes < 1).any() or sizes.sum() != rows:
            raise refusal(
                f"`group` must hold positive integers whose sum is the number of rows, {rows}",
                f"{len(sizes)} values of type {sizes.dtype}, with the sum {sizes.sum()}",
            )
        return cls(sizes, np.arange(rows))

    @classmethod
    def _by_query(cls, rows: int, qid: Any) -> Self:
        names = column_or_1d(np.asarray(qid))
        if len(names) != rows:
            raise ValueError(f"`qid` must have a value for each of {rows} rows. Got {len(names)}")
        if names.dtype == object:  # `pd.NA == pd.NA` is no Boolean
            is_missing = any(
                x is None or type(x == x) not in (bool, np.bool_) or x != x for x in names
            )
        else:
            is_missing = bool(np.any(names != names))
        if is_missing:
            raise refusal("`qid` must name the query of each row", "a missing value")
        return cls(*groups(names.tolist()))


class Matrices(NamedTuple):
    """The features of rows.

    Args:
        numbers: `[rows, num_features]`, float32; NaN for a missing one.
        texts: `[rows, num_texts]`, strings, empty for a missing one; None without such features.
    """

    numbers: np.ndarray
    texts: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class FlatLists:
    """Lists of items, one after the other, without padding.

    Args:
        matrices: The features of the items.
        sizes: Number of items of each list.
        labels: Relevance of each item, float32; None if unknown.
        weights: Weight of each item, float32; None for 1.
    """

    matrices: Matrices
    sizes: np.ndarray
    labels: np.ndarray | None = None
    weights: np.ndarray | None = None

    def take(self, lists: np.ndarray) -> "FlatLists":
        """Returns some of the lists, in the order they have here.

        Args:
            lists: True for a list to take, `[num_lists]`.
        """
        rows = np.repeat(lists, self.sizes)
        numbers, texts = self.matrices
        return FlatLists(
            Matrices(numbers[rows], None if texts is None else texts[rows]),
            self.sizes[lists],
            None if self.labels is None else self.labels[rows],
            None if self.weights is None else self.weights[rows],
        )

    def batches(self) -> Iterator[tuple[np.ndarray, dict[str, tf.Tensor], np.ndarray]]:
        """Yields batches of lists of about the same size.

        Yields:
            The indices of the items, `[items]`; the inputs of a model, of which `mask` is True for
            an item; and the same mask as an array.
        """
        by_size = np.argsort(self.sizes, kind="stable")
        sizes, starts = self.sizes[by_size], (np.cumsum(self.sizes) - self.sizes)[by_size]
        begin = 0
        while begin < len(sizes):
            end = begin + 1
            while end < len(sizes) and (end - begin + 1) * sizes[end] <= BLOCK:
                end += 1
            # of one item, formulas that compare items would warn
            places = np.arange(max(sizes[end - 1], 2))
            mask = places < sizes[begin:end, np.newaxis]
            rows = (starts[begin:end, np.newaxis] + places)[mask]
            inputs = {"features": padded(self.matrices.numbers[rows], mask, 0.0)}
            if self.matrices.texts is not None:
                inputs["texts"] = padded(self.matrices.texts[rows], mask, "")
            tensors = {name: tf.constant(x) for name, x in inputs.items()}
            yield rows, {**tensors, "mask": tf.constant(mask)}, mask
            begin = end

    def dataset(self) -> tf.data.Dataset:
        """Returns batches of inputs, labels and, if there are any, weights, to train on."""

        def made() -> Iterator[tuple[Any, ...]]:
            for rows, inputs, mask in self.batches():
                others = [x for x in (self.labels, self.weights) if x is not None]
                yield inputs, *(padded(x[rows], mask, 0.0) for x in others)

        kinds = tf.nest.map_structure(
            lambda x: tf.TensorSpec([None, None, *x.shape[2:]], x.dtype), next(made())
        )
        return tf.data.Dataset.from_generator(made, output_signature=kinds)


def padded(values: np.ndarray, mask: np.ndarray, fill: Any) -> np.ndarray:
    """Returns values of items as `[batch_size, list_size, ...]`, with `fill` at padding."""
    filled = np.full([*mask.shape, *values.shape[1:]], fill, values.dtype)
    filled[mask] = values
    return filled


def labels_of(y: Any, rows: int) -> np.ndarray:
    """Returns the labels of rows as float32.

    Raises:
        ValueError: If they are not one finite number a row, or one is negative.
    """
    labels: np.ndarray = column_or_1d(
        check_array(y, ensure_2d=False, dtype=np.float32, input_name="y"), warn=True
    )
    check_consistent_length(np.empty(rows), labels)
    if (labels < 0.0).any():
        raise refusal(
            "`y` must not be negative",
            f"{labels.min():g}. Subtract the smallest value, or map -1 and 1 to 0 and 1.",
        )
    return labels


def weights_of(sample_weight: Any, groups: RowGroups) -> np.ndarray | None:
    """Returns the weights of items, list by list, as float32; None for none.

    Args:
        sample_weight: A weight for each row or, if there are as many as lists, for each list, by
            its first row.
        groups: The lists.

    Raises:
        ValueError: If their number is neither, one is negative or not finite, or all are 0.
    """
    if sample_weight is None:
        return None
    weights: np.ndarray = column_or_1d(
        check_array(sample_weight, ensure_2d=False, dtype=np.float32, input_name="sample_weight")
    )
    sizes, order = groups
    if len(weights) not in (len(order), len(sizes)):
        raise refusal(
            f"`sample_weight` must have a value for each of {len(order)} rows, or for each of "
            f"{len(sizes)} lists",
            f"{len(weights)} values",
        )
    if (weights < 0.0).any() or not weights.any():
        raise refusal(
            "`sample_weight` must not be negative, and one weight must not be zero",
            f"values from {weights.min():g} to {weights.max():g}",
        )
    return weights[order] if len(weights) == len(order) else np.repeat(weights, sizes)


def split(lists: FlatLists, share: float | None, seed: int) -> tuple[FlatLists, FlatLists | None]:
    """Divides lists at random into those to learn from and those held out.

    Args:
        lists: The lists.
        share: Share of the lists to hold out, at least one list and never all; None to hold out
            none, as of a single list.
        seed: Seed of the choice.
    """
    count = len(lists.sizes)
    if share is None or count == 1:
        return lists, None
    held_out = min(max(1, round(share * count)), count - 1)
    chosen = np.random.default_rng(seed).permutation(count)[:held_out]
    is_held_out = np.isin(np.arange(count), chosen)
    return lists.take(~is_held_out), lists.take(is_held_out)


def check_comparable(lists: FlatLists) -> None:
    """Raises a `ValueError` if no list has two different labels."""
    assert lists.labels is not None
    starts = np.cumsum(lists.sizes) - lists.sizes
    lowest, highest = (at.reduceat(lists.labels, starts) for at in (np.minimum, np.maximum))
    if (lowest == highest).all():
        raise refusal(
            "a list must have two different labels",
            f"{len(lists.labels)} samples in {len(starts)} lists, each with one label",
        )


# a frame has no columns of these names
ONLY_FEATURES = Columns("\0query", None, "\0item")


def types_of(frame: Any) -> dict[str, Feature]:
    """Returns a type for each column of a frame, and warns of columns that can have none.

    Args:
        frame: As in `tfrank_sel.data.frames.lists`.

    Raises:
        ValueError: If no column can have a type.
    """
    with readable("X"):
        table = of_frame(frame, array)
    types, left_out = tables.propose(table.schema, table, ONLY_FEATURES)
    if left_out:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        warnings.warn(
            f"columns are left out. Give `features` a type to keep them. {reasons}", stacklevel=5
        )
    if not types:
        raise refusal("`X` must have a column of features", table.schema.names)
    return types


def matrices(frame: Any, features: Mapping[str, Feature], groups: RowGroups) -> Matrices:
    """Returns the features of a frame, list by list.

    What belongs to the query is that of the first row of its list.

    Args:
        frame: As in `tfrank_sel.data.frames.lists`.
        features: Type of each feature.
        groups: The lists that the rows belong to.

    Raises:
        InputError: If a column is missing, cannot be of its type, or a value is not.
    """
    schema = Schema(features, columns=dataclasses.replace(ONLY_FEATURES, features=features))
    with readable("X"):
        table = of_frame(frame, array)
        check("X", table.schema.names, list(features))
        rows = tables.of_table(("X", np.arange(table.num_rows)), table, schema)
    for row, reason in sorted(rows.faults.items()):
        raise InputError(f"X, row {row}", reason)
    sizes, order = groups
    first = np.repeat(order[np.cumsum(sizes) - sizes], sizes)

    def of_lists(values: np.ndarray, of_query: np.ndarray) -> np.ndarray:
        taken = values[order]
        taken[:, of_query] = values[:, of_query][first]
        return taken

    numbers, texts = schema.of_query
    of_texts = None if rows.texts is None else of_lists(rows.texts, texts)
    return Matrices(of_lists(rows.features, numbers), of_texts)
