"""Rows of speed benchmarks: our time and that of a peer.

A benchmark yields rows; `show` prints them as a Markdown table, or as lines of JSON, which
`benchmarks.speed` reads.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from benchmarks.speed.interleaved import Call, machine, processor, timings, versions

HEAD = """| case | ours | peer | theirs | theirs / ours | our first call |
|---|---|---|---|---|---|"""
_AREA = re.compile(
    r"^### (\S+)\n\n(?:[^|#].*\n+)*" + re.escape(HEAD) + r"\n((?:\|.*\n)*)", re.MULTILINE
)
_VERSION = re.compile(r"(.+) (\d[\d.]*)")
_IN_A_SECOND = {"s": 1.0, "ms": 1e3, "µs": 1e6}


@dataclasses.dataclass(frozen=True)
class Peer:
    """Whom a row compares us with.

    Args:
        name: Of a library, or of what one would write by hand.
        version: Of the library; None for what one would write by hand.
    """

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.version)))


@dataclasses.dataclass(frozen=True)
class Row:
    """What a case takes us and a peer: medians of calls in turn.

    Args:
        case: What is done.
        peer: Beside whom.
        ours: What it takes us, in `unit`.
        theirs: What it takes the peer, in `unit`.
        unit: A time and for what, or MiB.
        first: Seconds of our first call, which compiles, if there is something to compile.
    """

    case: str
    peer: Peer
    ours: float
    theirs: float
    unit: str = "ms"
    first: float | None = None

    @property
    def ratio(self) -> float:
        """How many times faster ours is; below 1 it is slower."""
        return self.theirs / self.ours

    def __str__(self) -> str:
        times = f"{digits(self.ours)} {self.unit} | {self.peer} | {digits(self.theirs)}"
        first = "" if self.first is None else f"{self.first:.1f} s"
        return f"| {self.case} | {times} | {digits(self.ratio, 2)} | {first} |"


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A peer without rows.

    Args:
        name: Of the peer.
        reason: Why it could not be asked.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"Left out: {self.name} ({self.reason})."


Found = Row | LeftOut


def from_json(line: str) -> Found:
    """Reads a line that `show` printed."""
    values = json.loads(line)
    if "peer" not in values:
        return LeftOut(**values)
    return Row(**values | {"peer": Peer(**values["peer"])})


def from_markdown(text: str) -> dict[str, list[Row]]:
    """Reads the tables of a report, by area."""
    return {
        area: [_from_line(x) for x in lines.splitlines()] for area, lines in _AREA.findall(text)
    }


def _from_line(line: str) -> Row:
    case, ours, peer, theirs, _, first = (x.strip() for x in line.strip("|").split("|"))
    ours, _, unit = ours.partition(" ")
    found = _VERSION.fullmatch(peer)
    return Row(
        case,
        Peer(*found.groups()) if found else Peer(peer),
        float(ours.replace(",", "")),
        float(theirs.replace(",", "")),
        unit,
        float(first.removesuffix(" s")) if first else None,
    )


def installed(peers: Mapping[str, Callable[[], Any]]) -> tuple[dict[Peer, Any], list[LeftOut]]:
    """Imports a peer, by the name of its distribution; reports a missing peer."""
    made, left_out = {}, []
    for name, make in peers.items():
        try:
            made[Peer(name, importlib.metadata.version(name))] = make()
        except ImportError as error:
            left_out.append(LeftOut(name, str(error)))
    return made, left_out


def compare(
    ours: Mapping[str, Call],
    theirs: Mapping[Peer, Call],
    rounds: int,
    unit: str = "ms",
    per: float = 1.0,
    clock: Callable[[], float] = time.process_time,
) -> Iterator[Row]:
    """Times all in turn, and gives a row for each of ours and each peer.

    Args:
        ours: What to call, by case.
        theirs: What does the same.
        rounds: Calls of each.
        unit: "s", "ms" or "µs", and for what.
        per: How many of them a call does.
        clock: Returns seconds.
    """
    if not theirs:
        return
    found = timings({**ours, **theirs}, rounds, clock)
    scale = _IN_A_SECOND[unit.split()[0]] / per
    for case in ours:
        for peer in theirs:
            mine, other = found[case], found[peer]
            yield Row(case, peer, scale * mine.seconds, scale * other.seconds, unit, mine.first)


def parser(document: str, rounds: int) -> argparse.ArgumentParser:
    """The options that every benchmark of speed has."""
    made = argparse.ArgumentParser(description=document.partition("\n")[0])
    made.add_argument("--rounds", type=int, default=rounds, help="calls of each")
    made.add_argument("--json", action="store_true", help="print lines of JSON, not a table")
    return made


def show(found: Iterable[Found], as_json: bool) -> None:
    """Prints rows as they come; a table ends with who was left out."""
    if as_json:
        print(json.dumps({"machine": processor(), "versions": versions()}), flush=True)
        for x in found:
            print(json.dumps(dataclasses.asdict(x)), flush=True)
        return
    print(machine(), HEAD, sep="\n\n", flush=True)
    left_out = []
    for x in found:
        if isinstance(x, LeftOut):
            left_out.append(x)
        else:
            print(x, flush=True)
    print("", *left_out, sep="\n")


def digits(x: float, count: int = 3) -> str:
    """The first digits of a number, and never a power of ten."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.{count}g}"
