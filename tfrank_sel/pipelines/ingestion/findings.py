"""Findings of ingest: malformed lines, and queries that occur more than once."""

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrank_sel import data
from tfrank_sel.data.lists import Rejected
from tfrank_sel.pipelines.ingestion import census
from tfrank_sel.pipelines.ingestion.inputs import Source

Place = tuple[int, int]  # number of a source; `LISTS` times that of a part, and that of a list
LISTS = 1 << 40  # more than a part has
SHOWN = 10  # bad lines that are listed individually


class Places:
    """Names of the places of lists, which are counted by part.

    Args:
        sources: The files.
        lists: For each part: index of its source, its own index, and its number of lists.
    """

    def __init__(self, sources: Sequence[Source], lists: Iterable[tuple[int, int, int]]) -> None:
        self.sources = sources
        self.lists = {(source, part): count for source, part, count in lists}

    def __call__(self, place: Place) -> Rejected:
        """Returns the place as a rejected unit without a reason."""
        source, (part, number) = place[0], divmod(place[1], LISTS)
        number += sum(x for (y, z), x in self.lists.items() if y == source and z < part)
        return Rejected(self.sources[source].path, "list", number, "")


def keep_dead_letters(letters: Iterable[Rejected], path: Path, allowed: int) -> dict[str, Any]:
    """Writes the rejected units to one file, and counts them by rule.

    Raises:
        tfrank_sel.data.InputError: If there are more than allowed, or a file cannot be read.
    """
    count, first, rules = 0, list[Rejected](), collections.Counter[str]()
    with path.open("w") as file:
        for rejected in letters:
            if rejected.number is None or len(first) < SHOWN:
                first.append(rejected)
            count += 1
            rules[rejected.rule] += 1
            file.write(json.dumps(dataclasses.asdict(rejected)) + "\n")
    unusable = [rejected for rejected in first if rejected.number is None]
    if count > allowed or unusable:
        raise _refused((unusable or first)[:SHOWN], count, allowed)
    if count == 0:
        path.unlink()
    return {"count": count, "rules": dict(rules)}


def _refused(first: list[Rejected], count: int, allowed: int) -> data.InputError:
    lines = [first[0].reason, *(f"{one.place}: {one.reason}" for one in first[1:])]
    if count > 1:
        wanted = f"at most {allowed} bad lines" if allowed else "no bad line"
        lines.append(f"expected {wanted}. Received: {count}")
    return data.InputError(first[0].place, "\n".join(lines))


def check_distinct(repeated: Sequence[Mapping[str, Any]], places: Places, allowed: int) -> None:
    """Raises an error for queries that recur in another part of a file, like readers in one part.

    Raises:
        tfrank_sel.data.InputError: If there are more than the allowed number of bad lines.
    """
    count = sum(found["again"] for found in repeated)
    if count > allowed:
        pairs = ([places(x) for x in pair] for found in repeated for pair in found["first_again"])
        rule = "the lines of a query must be adjacent. Received again: that of list"
        bad = [dataclasses.replace(b, reason=f"{rule} {a.number}") for a, b in pairs]
        raise _refused(bad[:SHOWN], count, allowed)


def duplicates(repeated: Sequence[Mapping[str, Any]], places: Places) -> dict[str, Any]:
    """Counts the queries that occur more than once, and returns the places of the first ones."""
    first = [[places(x).place for x in found] for part in repeated for found in part["first"]]
    return {"count": sum(part["count"] for part in repeated), "first": first[: census.SHOWN]}


def shared(repeated: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Counts the lists of each split whose query is in the training split too."""
    counts = (collections.Counter(part["shared"]) for part in repeated)
    return dict(sum(counts, collections.Counter()))
