"""Tally of ingest: counts, malformed units, and queries that occur more than once."""

import collections
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfrank_sel import artefacts, data
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.errors import received
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.ingestion.inputs import Source

SHOWN = 10  # queries, and bad lines, that are listed individually
PARTS = 16  # of the queries, each checked independently

# A query: a hash of its identifier, the number of its file, and its own number there.
Hashes = np.ndarray


@dataclasses.dataclass
class Counts:
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

    @classmethod
    def of(cls, lists: Sequence[data.ItemList]) -> "Counts":
        """Returns the counts over lists."""
        sizes = [len(x.labels) for x in lists]
        return cls(
            len(sizes) - sizes.count(0),
            sum(sizes),
            sizes.count(0),
            sizes.count(1),
            int(np.sum(have_conflicts(lists))),
        )

    def __add__(self, other: "Counts") -> "Counts":
        mine, theirs = vars(self), vars(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})


def have_conflicts(lists: Sequence[data.ItemList]) -> np.ndarray:
    """Whether an identifier, or identical features, occur in a list with two different labels.

    Example:
        >>> features = np.array([[1.0], [2.0], [1.0]], np.float32)
        >>> one = data.ItemList("q", np.array([0.0, 1.0, 1.0]), features, ("a", "b", "c"))
        >>> have_conflicts([one]).tolist()
        [True]
    """
    conflicts = np.array([_is_named_twice(x) for x in lists], bool)
    left = [i for i, x in enumerate(lists) if not conflicts[i] and len({*x.labels.tolist()}) > 1]
    if left:
        of_list = np.repeat(left, [len(lists[i].labels) for i in left])
        labels = np.concatenate([lists[i].labels for i in left])
        rows = _hashes([lists[i] for i in left])
        order = np.lexsort([rows, of_list])
        labels, keys = labels[order], np.stack([of_list, rows.view(np.int64)])[:, order]
        is_alike = np.all(keys[:, 1:] == keys[:, :-1], axis=0)
        conflicts[keys[0, 1:][is_alike & (labels[1:] != labels[:-1])]] = True
    return conflicts


def _is_named_twice(item_list: data.ItemList) -> bool:
    """Whether an identifier occurs with two different labels."""
    if len({*item_list.doc_ids}) == len(item_list.labels):
        return False
    labels = item_list.labels.tolist()
    of_id = dict(zip(item_list.doc_ids, labels, strict=True))
    return any(of_id[x] != label for x, label in zip(item_list.doc_ids, labels, strict=True))


def _hashes(lists: Sequence[data.ItemList]) -> np.ndarray:
    """Hashes of the features and texts of all items."""
    rows = np.concatenate([x.features for x in lists]) + np.float32(0.0)  # -0 and 0 are equal
    hashes: np.ndarray = rows.view(np.uint32).astype(np.uint64) @ _weights(rows.shape[1])
    texts = [row for x in lists if x.texts is not None for row in x.texts.tolist()]
    if texts:
        hashes ^= np.array([hash(tuple(row)) for row in texts], np.int64).view(np.uint64)
    return hashes


def hash_of(query_id: str) -> int:
    """Returns a 64-bit hash of a query, the same on any machine and in any file.

    Example:
        >>> hash_of("17")
        2322042198017538996
    """
    return int.from_bytes(hashlib.blake2b(query_id.encode(), digest_size=8).digest(), "big")


def hashes_of(query_ids: Iterable[bytes]) -> np.ndarray:
    """Returns `hash_of` each query, uint64, from their UTF-8."""
    return np.array([hash_of(x.decode()) for x in query_ids], np.uint64)


def split_of(query: int, shares: dict[str, float]) -> str:
    """Returns the split of a query, by its place in the range of hashes.

    Args:
        query: Result of `hash_of`.
        shares: The share of queries of each split; they sum to 1.
    """
    fraction, upto = query / 2**64, 0.0
    for split, share in shares.items():
        upto += share
        if fraction < upto:
            return split
    # The sum of shares may be below 1 by rounding.
    return split


class Repeated(runners.Combiner):
    """Combiner from splits and places of queries to repeated queries: see `runners.Combiner`.

    The dict has `count` and `first` of queries with several places, `again` and `first_again` of
    pairs of places in one file, and `shared` of lists by split whose query is in `train` too.
    """

    def count(self, element: tuple[str, Hashes]) -> list[tuple[str, Hashes]]:
        return [element]

    def extract_output(self, accumulator: list[tuple[str, Hashes]]) -> dict[str, Any]:
        places = np.concatenate([places for _, places in accumulator])
        split = np.concatenate([np.full(len(places), split) for split, places in accumulator])
        order = np.lexsort(places.T[::-1])
        places, split = places[order], split[order]
        starts = np.flatnonzero(np.diff(places[:, 0], prepend=~places[:1, 0]))
        sizes = np.diff(starts, append=len(places))
        first = [
            [(split[i].item(), *places[i, 1:].tolist()) for i in range(start, start + size)[:SHOWN]]
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


Place = tuple[int, int]  # number of a source; `LISTS` times that of a part, and that of a list
LISTS = 1 << 40  # more than a part has


class Places:
    """Names of the places of lists, which are counted by part.

    Args:
        sources: The files.
        lists: For each part: index of its source, its own index, and its number of lists.
    """

    def __init__(self, sources: Sequence[Source], lists: Iterable[tuple[int, int, int]]) -> None:
        self.sources = sources
        self.lists = {(source, part): count for source, part, count in lists}

    def of_split(self, split: str, *origin: int) -> str:
        """Describes the place of a list: the files of its split if its rows were grouped."""
        if origin[1]:
            return self((origin[0], origin[1])).place
        first, *others = (x.path for x in self.sources if x.split in (None, split))
        first = artefacts.address(first)
        return f"{first} and {len(others)} others" if others else first

    def __call__(self, origin: Place) -> Rejected:
        """Returns the place as a rejected unit without a reason."""
        source, (part, number) = origin[0], divmod(origin[1], LISTS)
        number += sum(x for (y, z), x in self.lists.items() if y == source and z < part)
        return Rejected(artefacts.address(self.sources[source].path), "list", number, "")


def keep_dead_letters(letters: Iterable[Rejected], path: Path, allowed: int) -> dict[str, Any]:
    """Writes the rejected units to one file, and counts them by rule.

    Raises:
        tfrank_sel.data.InputError: If there are more than allowed, or a file cannot be read.
    """
    count, first, rules = 0, list[Rejected](), collections.Counter[str]()
    with path.open("w", encoding="utf-8") as file:
        for letter in letters:
            rejected = dataclasses.replace(letter, file=artefacts.address(letter.file))
            if rejected.number is None or len(first) < SHOWN:
                first.append(rejected)
            count += 1
            rules[rejected.rule] += 1
            file.write(json.dumps(dataclasses.asdict(rejected)) + "\n")
    unusable = [rejected for rejected in first if rejected.number is None]
    if count > allowed or unusable:
        raise _limit_error((unusable or first)[:SHOWN], count, allowed)
    if count == 0:
        path.unlink()
    return {"count": count, "rules": dict(rules)}


def rejections(*counts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sums of results of `keep_dead_letters`."""
    rules = sum((collections.Counter[str](x["rules"]) for x in counts), collections.Counter[str]())
    return {"count": sum(x["count"] for x in counts), "rules": dict(rules)}


def _limit_error(first: list[Rejected], count: int, allowed: int) -> data.InputError:
    lines = [first[0].reason, *(f"{unit.place}: {unit.reason}" for unit in first[1:])]
    if count > 1:
        limit = f"at most {allowed} bad lines" if allowed else "no bad line"
        lines.append(received(f"expected {limit}", count))
    return data.InputError(first[0].place, *lines)


def check_distinct(repeated: Sequence[Mapping[str, Any]], places: Places, allowed: int) -> None:
    """Raises an error for queries that recur in another part of a file, like readers in one part.

    Raises:
        tfrank_sel.data.InputError: If there are more than the allowed number of bad lines.
    """
    count = sum(part["again"] for part in repeated)
    if count > allowed:
        pairs = ([places(x) for x in pair] for part in repeated for pair in part["first_again"])
        rule = "the lines of a query must be adjacent. Received again: that of list"
        bad = [dataclasses.replace(b, reason=f"{rule} {a.number}") for a, b in pairs]
        raise _limit_error(bad[:SHOWN], count, allowed)


def recurring(repeated: Sequence[Mapping[str, Any]], places: Places) -> dict[str, Any]:
    """Returns the queries that occur more than once, by count and the places of the first ones, and
    the number of lists of each split whose query is in the training split too.
    """
    first = [[places.of_split(*x) for x in pair] for part in repeated for pair in part["first"]]
    count = sum(part["count"] for part in repeated)
    shared = sum((collections.Counter(x["shared"]) for x in repeated), collections.Counter[str]())
    return {
        "duplicate_queries": {"count": count, "first": first[:SHOWN]},
        "shared_queries": dict(shared),
    }
