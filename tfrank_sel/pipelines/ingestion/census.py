"""Counts of empty, duplicate and conflicting lists."""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np

from tfrank_sel import data

SHOWN = 10  # queries that are listed individually
PARTS = 16  # of the queries, each checked independently

# A query: a hash of its identifier, the number of its file, and its own number there.
Places = np.ndarray


@dataclasses.dataclass
class Census:
    """Counts over lists.

    Args:
        lists: Lists that were written.
        items: Items in them.
        empty_lists: Lists without items, which were dropped.
        one_item_lists: Lists of one item, which have no order to learn.
        conflicting_lists: Lists in which one identifier, or identical features, occur with two
            different labels.
    """

    lists: int = 0
    items: int = 0
    empty_lists: int = 0
    one_item_lists: int = 0
    conflicting_lists: int = 0

    def add(self, found: data.ItemList) -> None:
        """Adds a list to the counts."""
        size = len(found.labels)
        self.lists += size > 0
        self.items += size
        self.empty_lists += size == 0
        self.one_item_lists += size == 1
        self.conflicting_lists += has_conflict(found)

    def __add__(self, other: "Census") -> "Census":
        mine, theirs = vars(self), vars(other)
        return Census(**{name: mine[name] + theirs[name] for name in mine})


def has_conflict(found: data.ItemList) -> bool:
    """Whether an identifier, or identical features, occur with two different labels.

    Example:
        >>> features = np.array([[1.0], [2.0], [1.0]], np.float32)
        >>> has_conflict(data.ItemList("q", np.array([0.0, 1.0, 1.0]), features, ("a", "b", "c")))
        True
    """
    labels = found.labels
    if len(labels) < 2 or labels.min() == labels.max():
        return False
    if len(set(found.doc_ids)) < len(labels):
        of_id = dict(zip(found.doc_ids, labels.tolist(), strict=True))
        if any(of_id[name] != label for name, label in zip(found.doc_ids, labels, strict=True)):
            return True
    rows = np.ascontiguousarray(found.features + 0.0)  # -0 and 0 are the same number
    rows = rows.view(np.uint32).astype(np.uint64) @ _weights(rows.shape[1])
    if found.texts is not None:
        texts = [hash(tuple(row)) for row in found.texts.tolist()]
        rows ^= np.array(texts, np.int64).view(np.uint64)
    order = np.lexsort([labels, rows])
    rows, labels = rows[order], labels[order]
    return bool(np.any((rows[1:] == rows[:-1]) & (labels[1:] != labels[:-1])))


def hash_of(query_id: str) -> int:
    """Returns a 64-bit hash of a query, the same on any machine and in any file.

    Example:
        >>> hash_of("17")
        2322042198017538996
    """
    return int.from_bytes(hashlib.blake2b(query_id.encode(), digest_size=8).digest(), "big")


def split_of(query: int, shares: dict[str, float]) -> str:
    """Returns the split of a query, by its place in the range of hashes.

    Args:
        query: Result of `hash_of`.
        shares: The share of queries of each split; they sum to 1.
    """
    place, upto = query / 2**64, 0.0
    for split, share in shares.items():
        upto += share
        if place < upto:
            return split
    return split  # of rounding


class Repeated(beam.CombineFn):
    """Beam combiner from splits and places of queries to repeated queries: count and first ones.

    The dict has `count` and `first` of queries with several places, `again` and `first_again` of
    pairs of places in one file, and `shared` of lists by split whose query is in `train` too.
    """

    def create_accumulator(self) -> list[tuple[str, Places]]:
        return []

    def add_input(
        self, accumulator: list[tuple[str, Places]], element: tuple[str, Places]
    ) -> list[tuple[str, Places]]:
        accumulator.append(element)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[list[tuple[str, Places]]]
    ) -> list[tuple[str, Places]]:
        return [found for accumulator in accumulators for found in accumulator]

    def extract_output(self, accumulator: list[tuple[str, Places]]) -> dict[str, Any]:
        places = np.concatenate([places for _, places in accumulator])
        split = np.concatenate([np.full(len(places), split) for split, places in accumulator])
        order = np.lexsort(places.T[::-1])
        places, split = places[order], split[order]
        starts = np.flatnonzero(np.diff(places[:, 0], prepend=~places[:1, 0]))
        sizes = np.diff(starts, append=len(places))
        first = [
            places[start : start + min(size, SHOWN), 1:].tolist()
            for start, size in zip(starts[sizes > 1][:SHOWN], sizes[sizes > 1], strict=False)
        ]
        shared = split[np.isin(places[:, 0], places[split == "train", 0]) & (split != "train")]
        again = np.flatnonzero((places[1:, :2] == places[:-1, :2]).all(axis=1))
        return {
            "count": int(np.sum(sizes > 1)),
            "first": first,
            "shared": collections.Counter(shared.tolist()),
            "again": len(again),
            "first_again": [places[i : i + 2, 1:].tolist() for i in again[:SHOWN].tolist()],
        }


@functools.cache
def _weights(size: int) -> np.ndarray:
    """Odd weights, with which unequal rows have equal hashes with probability 2**-32."""
    return np.random.default_rng(0).integers(2**63, size=size, dtype=np.uint64) * 2 + 1
