"""Errors of a configuration: one line that names key, value and what is allowed."""

import difflib
from collections.abc import Iterable, Sequence

MOST_NAMED = 12  # choices that a message lists


class ConfigurationError(ValueError):
    """A configuration that cannot be used.

    Args:
        key: The key, such as `training.loss`; empty if it is none in particular.
        reason: What is allowed and what was received; it follows the key.
        place: The file or option that the value comes from, if known.
        more: Further errors, each a line.

    Example:
        >>> print(ConfigurationError("data.label", "must be a column. Received: 3", "run.toml"))
        run.toml: data.label must be a column. Received: 3
    """

    def __init__(
        self,
        key: str,
        reason: str,
        place: str = "",
        more: Sequence["ConfigurationError"] = (),
    ) -> None:
        super().__init__(key, reason, place, more)
        self.key, self.reason, self.place, self.more = key, reason, place, more

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        line = " ".join(f"{place}{self.key} {self.reason}".split())
        return "\n".join([line, *map(str, self.more)])


def choices(received: str, known: Iterable[str]) -> str:
    """Lists what is allowed, nearest first, and what was received.

    Example:
        >>> choices("epoch", ["seed", "epochs"])
        "epochs, seed. Received: 'epoch'"
    """
    names = list(known)
    near = difflib.get_close_matches(received, names, n=3)
    ordered = [*near, *(name for name in names if name not in near)]
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return f"{', '.join(ordered[:MOST_NAMED])}{more}. Received: {received!r}"
