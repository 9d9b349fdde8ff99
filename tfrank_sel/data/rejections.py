"""Errors about input, and what was left out because of them."""

import dataclasses
import warnings

from tfrank_sel import artefacts
from tfrank_sel.errors import received


class InputError(ValueError):
    """Invalid input: the message names the place, the rule and the received value.

    URLs in it are without secrets: see `tfrank_sel.artefacts.address`.

    Args:
        place: Place of the error: a file, or `file:line`.
        reason: The rule and the received value, in one line.
        *more: Further lines.

    Example:
        >>> print(InputError("train.txt:7", "expected `qid:ID` after the label. Received: '1:0.5'"))
        train.txt:7: expected `qid:ID` after the label. Received: '1:0.5'
    """

    _tagged_with_step = True  # Beam adds the name of a step to the text of others

    def __init__(self, place: str, reason: str, *more: str) -> None:
        # Reasons of other libraries may have several lines.
        reason = " ".join(reason.splitlines())
        shown = artefacts.text_with_addresses
        if shown(place) != place:
            place, reason = shown(artefacts.address(place)), shown(reason)
            more = tuple(map(shown, more))
        super().__init__(place, reason, *more)
        self.place, self.reason, self.more = place, reason, more

    def __str__(self) -> str:
        return "\n".join([f"{self.place}: {self.reason}", *self.more])


def rejection(place: str, expected: str, *values: object) -> InputError:
    """Returns the error of a place whose input breaks a rule, with what was received."""
    return InputError(place, received(expected, *values))


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A rejected line, row, record or file.

    Args:
        file: The file.
        unit: The counted unit: `line`, `row` or `record`.
        number: Number of the unit, from 1; None if the whole file is rejected.
        reason: The rule and the received value.
        text: Content of the unit, if it is text.
        is_torn: Whether the file ends within it, since who wrote it was stopped.
    """

    file: str
    unit: str
    number: int | None
    reason: str
    text: str | None = None
    is_torn: bool = False

    @property
    def place(self) -> str:
        """The place: `file:line`, or `file, row 7`."""
        if self.number is None:
            return self.file
        if self.unit == "line":
            return f"{self.file}:{self.number}"
        return f"{self.file}, {self.unit} {self.number}"

    @property
    def rule(self) -> str:
        """The broken rule."""
        return self.reason.partition(". Received")[0]

    def error(self) -> InputError:
        """Returns the error to raise if nothing may be rejected."""
        return InputError(self.place, self.reason)

    def refuse(self) -> None:
        """Raises the error; of a unit within which the file ends, it is a warning."""
        if not self.is_torn:
            raise self.error()
        warnings.warn(f"{self.place} is left out: the file ends within it", stacklevel=2)
