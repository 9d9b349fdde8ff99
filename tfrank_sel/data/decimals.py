"""Vectorised reader of pairs of plain decimals in text.

Eight digits are eight bytes, hence one integer: three multiplications convert it to the number, for
all numbers of a text at once. With at most 15 digits, digits and power of ten are exact in float64,
so one division rounds in the same way as reading one by one.
"""

import decimal
import re
import sys
from collections.abc import Iterator

import numpy as np


def pairs(text: bytes) -> np.ndarray | None:
    """Reads words `index:number`: digits, and a plain decimal, such as `-0.5`, or `7.25e-05`.

    Args:
        text: The words, with white space between them.

    Returns:
        The numbers, float64 `[words, 2]`; None if the text contains anything else, or a number with
        more digits than float64 has.

    Example:
        >>> pairs(b"1:0.5 2:-3").tolist()
        [[1.0, 0.5], [2.0, -3.0]]
        >>> pairs(b"1:nan") is None
        True
    """
    if sys.byteorder != "little":
        return None
    parts = []
    for part in _parts(_without_exponents(text)):
        numbers = _pairs(part)
        if numbers is None:
            return None
        parts.append(numbers)
    return np.concatenate(parts)


def is_space(octets: np.ndarray) -> np.ndarray:
    """Returns a mask of the bytes that are white space for `bytes.split`.

    Example:
        >>> is_space(np.frombuffer(b"1 \\t\\0", np.uint8)).tolist()
        [False, True, True, False]
    """
    return (octets == _SPACE) | (octets - _TAB < 5)


def _without_exponents(text: bytes) -> bytes:
    """Writes `7.25e-05` as `0.0000725`; keeps everything else."""
    parts, start = [], 0
    while (index := text.find(b"e", start)) >= 0:
        # Few numbers have one, and a search of the whole text takes as long as the rest.
        match = _EXPONENT.search(text, max(start, index - 20), index + 8)
        if not match:
            break
        plain = format(decimal.Decimal(match[0].decode()), "f")
        parts += [text[start : match.start()], plain.encode()]
        start = match.end()
    return b"".join([*parts, text[start:]]) if parts else text


def _parts(text: bytes) -> Iterator[bytes]:
    """Parts of a text that end between words, small enough for the cache."""
    start = 0
    while len(text) - start > _PART and (end := text.rfind(b" ", start + 1, start + _PART)) > 0:
        yield text[start:end]
        start = end
    yield text[start:]


def _pairs(text: bytes) -> np.ndarray | None:
    padded = bytes(8) + text + b" "
    octets = np.frombuffer(padded, np.uint8)[8:]
    ends = np.flatnonzero(octets - _ZERO > 9)  # of runs of digits; a run may be empty
    kinds, lengths = octets.take(ends), np.diff(ends, prepend=-1) - 1
    if not _is_plain(kinds, lengths):
        return None
    runs = _runs(padded, ends, lengths)
    last = np.flatnonzero((lengths > 0) & ((kinds == _COLON) | (kinds <= _SPACE)))
    is_pair = np.all(kinds[last[::2]] == _COLON) and np.all(kinds[last[1::2]] <= _SPACE)
    if runs is None or last.size % 2 or not is_pair:
        return None
    # A run before the last one, with a point between them, is the integer part.
    has_point = kinds.take(last - 1) == _POINT
    places = lengths.take(last) * has_point
    whole_places = lengths.take(last - 1) * has_point
    if np.any(has_point[::2]) or np.any(places + whole_places > 18):
        return None
    digits = runs.take(last) + runs.take(last - 1) * has_point * _POWERS.take(places)
    if np.any(digits > _EXACT):
        return None
    numbers = digits / _POWERS.astype(np.float64).take(places)
    is_negative = kinds.take(last - has_point - 1) == _MINUS
    if np.any(is_negative):
        numbers[is_negative] *= -1.0
    return numbers.reshape(-1, 2)


def _is_plain(kinds: np.ndarray, lengths: np.ndarray) -> bool:
    """Whether all runs of digits that end in these characters belong to plain decimals."""
    is_point, is_minus = kinds == _POINT, kinds == _MINUS
    is_white, is_colon = is_space(kinds), kinds == _COLON
    before = np.concatenate([[np.uint8(_SPACE)], kinds[:-1]])
    after_space, after_point = before <= _SPACE, before == _POINT
    is_empty = lengths == 0
    may_be_empty = (after_space & is_white) | ((after_space | (before == _COLON)) & is_minus)
    is_right = is_point | is_minus | is_white | is_colon
    is_right &= (is_empty == is_minus) | is_white
    return bool(np.all(is_right & (may_be_empty | ~is_empty) & ~(is_point & after_point)))


def _runs(padded: bytes, ends: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
    """The values of runs of digits, uint64; None if a run has more than 16 digits."""
    # All windows of eight bytes: the window before an end begins at that place in the padded text.
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    runs = _eight(words.take(ends), lengths)
    more = np.flatnonzero(lengths > 8)
    if more.size:
        if np.any(lengths[more] > 16):
            return None
        runs[more] += _POWERS[8] * _eight(words.take(ends[more] - 8), lengths[more] - 8)
    return runs


def _eight(words: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The values of the last digits of words of eight bytes."""
    others = (64 - 8 * np.minimum(lengths, 8)).astype(np.uint64)
    words >>= others
    words <<= others
    words &= _U(0x0F0F0F0F0F0F0F0F)
    for factor, shift, kept in _STEPS:
        upper = words >> shift
        words *= factor
        words += upper
        words &= kept
    return words


_EXPONENT = re.compile(rb"(?<![0-9.])[0-9]+(?:\.[0-9]+)?e[+-]?[0-9]{1,2}(?=\s|$)")
# Number of bytes that are parsed at once.
_PART = 1 << 16
_U = np.uint64
_POWERS = 10 ** np.arange(19, dtype=_U)
_EXACT = _U(2**53)  # float64 holds every integer up to here
_STEPS = (  # joins pairs of digits, then pairs of these, then pairs of those
    (_U(10), _U(8), _U(0x00FF00FF00FF00FF)),
    (_U(100), _U(16), _U(0x0000FFFF0000FFFF)),
    (_U(10000), _U(32), _U(0x00000000FFFFFFFF)),
)
_ZERO, _COLON, _POINT, _MINUS, _SPACE, _TAB = np.frombuffer(b"0:.- \t", np.uint8)
