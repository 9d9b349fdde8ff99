"""Intended differences from tensorflow-ranking, and their tables."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.golden.vectors import Case


class Difference(NamedTuple):
    """An intended difference.

    Attributes:
        about: The losses, metrics or formats of tensorflow-ranking that it is about.
        scenario: Where they differ, in words.
        reason: What tensorflow-ranking does there, and what we do.
        where: Tells the cases of these that it is about.
        of: The names of what differs; none for all that a case asks for.
    """

    about: tuple[str, ...]
    scenario: str
    reason: str
    where: Callable[[Case], bool]
    of: tuple[str, ...] = ()

    def leaves(self, *names: str) -> list[str]:
        """Those of the names in which there is no difference."""
        return [name for name in names if self.of and name not in self.of]


def table(
    kind: str, differences: Iterable[Difference], named: Callable[[tuple[str, ...]], str]
) -> str:
    """The table of differences in markdown; `named` writes what each is about."""
    lines = [f"| {kind} | where | difference |", "|---|---|---|"]
    for difference in differences:
        names = named(difference.about)
        lines.append(f"| {names} | {difference.scenario} | {difference.reason} |")
    return "\n".join(lines)
