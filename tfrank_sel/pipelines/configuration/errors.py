"""Errors of a configuration: one line with the key, the value and the accepted values."""

import difflib
from collections.abc import Iterable, Sequence

MOST_NAMED = 12  # maximum number of choices in a message


class ConfigurationError(ValueError):
    """An invalid configuration.

    Args:
        key: The key, such as `training.loss`; empty for an error without a key.
        reason: The accepted and the received value; printed after the key.
        place: The file or option that set the value, if known.
        more: Further errors, one line each.

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
    """Lists the accepted values, nearest first, and the received value.

    Example:
        >>> choices("epoch", ["seed", "epochs"])
        "epochs, seed. Received: 'epoch'"
    """
    names = list(known)
    near = difflib.get_close_matches(received, names, n=3)
    ordered = [*near, *(name for name in names if name not in near)]
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return f"{', '.join(ordered[:MOST_NAMED])}{more}. Received: {received!r}"
