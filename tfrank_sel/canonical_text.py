"""Spelling of values as texts: equal values have one text in all formats, requests and models."""

import functools
import re

# Regular expressions of Python, Arrow and TensorFlow alike, and their replacements, in this order.
SPELLINGS = (
    (r"^(?:True|TRUE)$", "true"),
    (r"^(?:False|FALSE)$", "false"),
    (r"^(-?(?:0|[1-9][0-9]{0,15}))\.0+$", r"\1"),
    # a point in time, without zeros at the end of a fraction, and without the zone of UTC
    (
        r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
        r"(?:(\.[0-9]*[1-9])0*|\.0+)?(?:Z|[+]00:?00)?$",
        r"\1 \2\3",
    ),
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00$", r"\1"),
)
ANY_SPELLING = "|".join(pattern for pattern, _ in SPELLINGS)


@functools.lru_cache(2**14)
def canonical(text: str) -> str:
    """Returns the spelling of a text: that of a Boolean, a whole number, a time or a date.

    Example:
        >>> [canonical(x) for x in ("True", "7.0", "2024-01-01T00:00:00Z")]
        ['true', '7', '2024-01-01']
        >>> canonical("2024-01-01 09:30:00.500")
        '2024-01-01 09:30:00.5'
        >>> [canonical(x) for x in ("007", "1.50", "1e5", "TRUE story")]
        ['007', '1.50', '1e5', 'TRUE story']
    """
    for pattern, replacement in SPELLINGS:
        text = re.sub(pattern, replacement, text)
    return text
