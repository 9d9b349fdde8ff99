"""Leakage: features that order the items as the label does, and queries in several splits."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfrank_sel.data import arrays
from tfrank_sel.data.formats import Schema, TableReader, rows, tables
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.features import whole
from tfrank_sel.models.summary import column_names, joined_columns
from tfrank_sel.pipelines.analysis.gates import WARN_ALL, Anomaly, check_rule
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.configuration.data import Gates
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion.inputs import inputs

PAIRS = 100  # fewer may agree by chance
LONGEST = 50  # items of a list that are compared
VALUES = 10  # of a feature, the most frequent ones, that are tried one by one
PART = 0.01  # fewer of the pairs do little harm
SURE = 0.9  # lower confidence bound of the share of right pairs
Z = 1.96


def of_features(
    names: Sequence[str],
    rows: np.ndarray,
    labels: np.ndarray,
    lists: np.ndarray,
    gates: Gates = WARN_ALL,
) -> Iterator[Anomaly]:
    """Finds features that alone order the items of lists as the label does, or the reverse.

    The measure is the absolute value of Somers' D of a feature, or of whether it is missing, given
    the label: `agreement` as a share of the pairs. Otherwise it is that of a single value, or of
    all but one, on the pairs that it decides: see `in_part`.

    Args:
        names: Names of the columns.
        rows: Values `[items, columns]`; NaN if missing.
        labels: Label of each item.
        lists: Number of the list of each item; those of a list stand together.
        gates: Action and threshold of the rule `leak`.

    Example:
        >>> labels = np.tile([0.0, 1.0, 2.0], 40)
        >>> rows, lists = np.stack([10.0 - labels, 0.0 * labels], axis=1), np.arange(120) // 3
        >>> [(x.feature, x.distance) for x in of_features(["a", "b"], rows, labels, lists)]
        [('a', 1.0)]
    """
    agree, total = agreement(rows, labels, lists)
    expected = "a rank correlation with the label of at most {}, if it is known before"
    whole = set()
    for i, how in enumerate(("its values", "whether it is missing")):
        values = np.abs(agree[i]).tolist(), total[i].tolist()
        for name, net, pairs in zip(names, *values, strict=True):
            if pairs >= PAIRS:
                received = f"{net / pairs:.3f} by {how} alone, over {pairs} pairs of items"
                for anomaly in check_rule(
                    gates, "leak", name, expected, received, pairs, net / pairs
                ):
                    whole.add(name)
                    yield anomaly
    for name, part in zip(names, in_part(rows, labels, lists), strict=True):
        if part is not None and name not in whole:
            right, share, pairs = part
            received = f"{right:.3f} on {share:.0%} of the pairs by one value alone, over {pairs}"
            received += " pairs of items"
            yield from check_rule(gates, "leak", name, expected, received, pairs, right)


def agreement(
    rows: np.ndarray, labels: np.ndarray, lists: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Counts the pairs of items of a list that features order as the labels do.

    Args:
        rows: Values `[items, columns]`; NaN if missing.
        labels: Label of each item.
        lists: Number of the list of each item; those of a list stand together.

    Returns:
        The pairs of different labels in the same order less those in the opposite order, and the
        compared pairs, both `[2, columns]`: by the values, if both items have one, and by whether
        they are missing. Items of equal values count as neither order.
    """
    agree, total = np.zeros([2, rows.shape[1]]), np.zeros([2, rows.shape[1]], int)
    for list_rows in np.split(np.arange(len(lists)), np.flatnonzero(np.diff(lists)) + 1):
        if len(list_rows) > LONGEST:  # also the last: lists may end with what was clicked
            list_rows = list_rows[np.linspace(0, len(list_rows) - 1, LONGEST).astype(int)]
        first, second = np.triu_indices(len(list_rows), 1)
        sign = np.sign(labels[list_rows[first]] - labels[list_rows[second]])
        differ = sign != 0.0
        above, below = (rows[list_rows[x[differ]]] for x in (first, second))
        present = ~np.isnan(above) & ~np.isnan(below)
        for i, (a, b, counted) in enumerate(
            ((above, below, present), (1.0 * np.isnan(above), np.isnan(below), True))
        ):
            agree[i] += np.where(counted, sign[differ, np.newaxis] * np.sign(a - b), 0.0).sum(0)
            total[i] += np.sum(np.broadcast_to(counted, above.shape), axis=0)
    return agree, total


class DecidedPairs(NamedTuple):
    """The pairs of items that one value of a feature decides.

    Attributes:
        correlation: The right pairs less the wrong ones, as a share of these pairs; mean of lists.
        share: The pairs, as a share of those with different labels.
        pairs: Their number.
    """

    correlation: float
    share: float
    pairs: int


def in_part(rows: np.ndarray, labels: np.ndarray, lists: np.ndarray) -> list[DecidedPairs | None]:
    """Finds features of which one value, or any other than that, implies a higher label.

    Such as a feature that is 1 for a third of the clicked items, and never for others. A pair is
    decided if one item has the value (also: a missing one) and the other does not, and right if
    the item of the smaller group has the higher label: a value that implies a low label, such as
    "sold out", may well be known before. Lists, not pairs, count as independent: a rare value is
    not called a leak by luck.

    Args:
        rows: Values `[items, columns]`; NaN if missing.
        labels: Label of each item. Pairs above and below each grade, or of many labels each of the
            upper deciles, are tried as well.
        lists: Number of the list of each item; those of a list stand together.

    Returns:
        For each column, what its value with the highest correlation decides; None if nothing.
    """
    grades = np.unique(labels)
    cuts = grades[:-1] if len(grades) <= VALUES else np.quantile(labels, [0.5, 0.6, 0.7, 0.8, 0.9])
    compared = [
        _Pairs(lists, x) for x in (labels, *(labels > cut for cut in cuts[len(grades) == 2 :]))
    ]
    decided = []
    for column in rows.T:
        values, often = np.unique(column, return_counts=True)
        tried = values[np.argsort(-often, kind="stable")[:VALUES]] if len(values) > 1 else ()
        groups = [np.isnan(column) if np.isnan(x) else column == x for x in tried]
        smaller = [np.flatnonzero(x if x.mean() <= 0.5 else ~x) for x in groups]
        parts = (pairs.decisions(group) for group in smaller for pairs in compared)
        decided.append(max((x for x in parts if x is not None), default=None))
    return decided


class _Pairs:
    """The pairs of items of lists with different labels."""

    def __init__(self, lists: np.ndarray, labels: np.ndarray) -> None:
        self.own = np.unique(lists, return_inverse=True)[1]
        grades = np.unique(labels, return_inverse=True)[1]
        alike, group = np.unique([self.own, grades], axis=1, return_inverse=True)
        self.group, self.list_of_group = group.ravel(), alike[0]
        counts, self.sizes = np.bincount(self.group), np.bincount(self.own)
        self.differ = (self.sizes[self.own] - counts[self.group]).astype(float)
        # groups are in the order of lists and labels
        below = (np.cumsum(counts) - counts) - (np.cumsum(self.sizes) - self.sizes)[alike[0]]
        self.ahead = 2.0 * below[self.group] - self.differ  # lower labels less higher ones
        self.total = self.differ.sum() / 2.0

    def decisions(self, items: np.ndarray) -> DecidedPairs | None:
        """What it decides whether an item is among some; None if nothing that is sure."""
        count, lists = len(self.sizes), self.own[items]
        right = np.bincount(lists, self.ahead[items], count)
        if right.sum() <= 0.0:
            return None
        # pairs of these items and others: without those of two of these items
        among = np.bincount(lists, minlength=count) ** 2
        alike = np.bincount(self.group[items], minlength=len(self.list_of_group)) ** 2
        pairs = np.bincount(lists, self.differ[items], count)
        pairs -= among - np.bincount(self.list_of_group, alike, count)
        some = pairs > 0.0
        correlation = float(np.mean(right[some] / pairs[some]))
        share = float(pairs.sum() / self.total)
        if share < PART or _lower((1.0 + correlation) / 2.0, int(some.sum())) < SURE:
            return None
        return DecidedPairs(correlation, share, int(pairs.sum()))


def _lower(share: float, count: int) -> float:
    """Wilson's lower confidence bound of a share."""
    spread = np.sqrt(share * (1.0 - share) / count + (Z / (2.0 * count)) ** 2)
    return float((share + Z * Z / (2.0 * count) - Z * spread) / (1.0 + Z * Z / count))


def of_texts(texts: np.ndarray, labels: np.ndarray, lists: np.ndarray) -> np.ndarray:
    """Returns texts as numbers: the mean label of the items of other lists with the same text.

    Args:
        texts: Texts `[items, columns]`; empty if missing.
        labels: Label of each item.
        lists: Number of the list of each item. Lists of an even number are the others of those of
            an odd number, and the reverse.

    Returns:
        Values `[items, columns]`; NaN if missing, and the mean label of all items if no other list
        has the text.
    """
    means = np.full(texts.shape, labels.mean())
    for column, column_texts in zip(means.T, texts.T, strict=True):
        _, values = np.unique(column_texts, return_inverse=True)
        for half in (lists % 2 == 0, lists % 2 == 1):
            counts = np.bincount(values[~half], minlength=values.max() + 1)
            sums = np.bincount(values[~half], labels[~half], minlength=len(counts))
            is_common = half & (counts[values] > 0)
            column[is_common] = sums[values[is_common]] / counts[values[is_common]]
    return np.where(texts == b"", np.nan, means)


def of_items(
    schema: Schema,
    numbers: np.ndarray,
    texts: np.ndarray | None,
    labels: np.ndarray,
    lists: np.ndarray,
    gates: Gates = WARN_ALL,
) -> Iterator[Anomaly]:
    """Finds features of numbers and texts that leak the label: see `of_features` and `of_texts`."""
    by_kind = [joined_columns(schema.features, numbers)]
    if texts is not None:
        by_kind.append(of_texts(texts, labels, lists))
    names = [*column_names(schema.features), *schema.texts]
    return of_features(names, np.hstack(by_kind), labels, lists, gates)


def of_table(origin: str, table: Any, schema: Schema, gates: Gates = WARN_ALL) -> list[Anomaly]:
    """Finds features of a table that leak the label; invalid rows are left out.

    Args:
        origin: Name of the table.
        table: The Arrow table.
        schema: The schema of its rows.
        gates: As in `of_features`.
    """
    read = tables.of_table((origin, np.arange(table.num_rows)), table, schema)
    lists = Lists.group([x for x in rows.check_rows([read]) if not isinstance(x, Rejected)])
    texts = lists.texts
    if texts is not None:
        texts = np.array([[x.encode() for x in row] for row in texts], object)
    of_list = np.repeat(np.arange(len(lists)), lists.sizes)
    return [*of_items(schema, lists.features, texts, lists.labels, of_list, gates)]


def suspects(configuration: Configuration) -> dict[str, str]:
    """Returns the features that leak the label in a sample of the training files, with the reasons.

    Args:
        configuration: The configuration, with the types of the features.

    Raises:
        tfrank_sel.data.InputError: If a file cannot be read.
    """
    files = inputs(configuration)
    if files is None or not isinstance(files.reader, TableReader):
        return {}
    schema, session = files.schema(), configuration.clicks.session
    if session:  # labels are of the impression
        schema = dataclasses.replace(
            schema, columns=dataclasses.replace(schema.columns, query=session)
        )
    sample, _ = files.reader.sample_files(files.train_files, files.columns.required_names)
    labels, reasons = arrays.floats(sample[configuration.data.label]), dict[str, str]()
    for leak in of_table(files.train_files[0], sample, schema, configuration.gates):
        name = whole(leak.feature, sample.schema.names)
        column = sample[name]
        present = arrays.plain(column.is_valid()).to_numpy(zero_copy_only=False)
        missing = f"{1.0 - present.mean():.0%} missing, " if not present.all() else ""
        if missing and np.nanmin(labels[present]) > 0.0:
            missing += "present only on rows with a label above 0, "
        reasons[name] = f"{missing}orders the labels: {leak.received}"
    return reasons


def read(path: Path) -> list[Anomaly]:
    """Returns the leaks among the written anomalies of a split."""
    return [Anomaly(**x) for x in folders.read_json(path) if x["rule"] == "leak"]


def of_splits(
    shared: Mapping[str, int], lists: Mapping[str, int], gates: Gates = WARN_ALL
) -> dict[str, list[Anomaly]]:
    """Finds splits with queries of the training split.

    Args:
        shared: Number of lists of each split whose query is in the training split too.
        lists: Number of lists of each split.
        gates: Action and threshold of the rule `shared_queries`.

    Example:
        >>> found = of_splits({"test": 3}, {"test": 4})["test"]
        >>> found[0].expected, found[0].received
        ('a share of at most 0 of lists whose query is in train', '3 of 4 lists')
    """
    expected = "a share of at most {} of lists whose query is in train"
    return {
        split: check_rule(
            gates,
            "shared_queries",
            "query",
            expected,
            f"{n} of {lists[split]} lists",
            n,
            n / lists[split],
        )
        for split, n in shared.items()
    }
