"""Lines of text files: all lines, or those that begin in a range of bytes."""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from tfrank_sel.data import stores
from tfrank_sel.data.rejections import rejection

# Number of bytes that one worker reads.
PART = 64 << 20
COMPRESSED = (".gz", ".bz2", ".zst")
_BUFFER = 1 << 20


def check_utf8(path: str, head: bytes) -> None:
    """Raises an `InputError` if text begins as UTF-16 or UTF-32 do.

    Args:
        path: The file.
        head: Its first bytes.
    """
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head[:2]:
        expected = "expected text in UTF-8; save the file in this encoding"
        raise rejection(path, expected, "UTF-16 or UTF-32")


def cuts(path: str) -> list[int]:
    """Returns the starts of the ranges of a file that can be read independently.

    Ranges have about the same size, at most 64 MiB. A compressed file is one range.
    """
    if path.endswith(COMPRESSED):
        return [0]
    try:
        size = stores.size(path)
    except OSError:  # the reader reports the error
        size = 0
    count = max(1, -(-size // PART))
    return [i * size // count for i in range(count)]


@contextlib.contextmanager
def open_lines(
    path: str, start: int = 0, stop: int | None = None, *, headed: bool = False
) -> Iterator[io.BufferedReader]:
    """Opens the lines that begin in a range of bytes; from a store, only these are fetched.

    Args:
        path: Path or URL.
        start: First byte of the range.
        stop: End of the range, excluded; None for the end of the file.
        headed: Whether to begin with the first line of the file, for any range.

    Raises:
        OSError: If the file cannot be read.
    """
    with stores.open_file(path) as file:
        spans = [(_line(file, start), None if stop is None else _line(file, stop))]
        if headed and start:
            spans.insert(0, (0, _line(file, 1)))
        yield io.BufferedReader(_Spans(file, spans), _BUFFER)


def before(
    path: str, starts: Sequence[int], is_counted: Callable[[bytes], bool] = bool
) -> list[int]:
    """Counts the lines that begin before each offset, reading the file up to the last one.

    Args:
        path: Path or URL.
        starts: The offsets, increasing.
        is_counted: Returns whether a line counts.
    """
    counts, count, offset = list[int](), 0, 0
    with open_lines(path, 0, starts[-1]) as file:
        for line in file:
            while starts[len(counts)] <= offset:
                counts.append(count)
            count, offset = count + is_counted(line), offset + len(line)
    return counts + [count] * (len(starts) - len(counts))


def bounded_lines(path: str, file: io.BufferedIOBase) -> Iterator[bytes]:
    """Reads the lines of a decompressed file, whose size nothing else bounds.

    Raises:
        tfrank_sel.data.InputError: At a line of more than 64 MiB.
    """
    for line in iter(lambda: file.readline(PART + 1), b""):
        if len(line) > PART:
            raise rejection(path, f"expected lines of at most {PART} bytes", "more")
        yield line


def _line(file: IO[bytes], offset: int) -> int:
    """The start of the first line at or after an offset."""
    if offset:
        # From the byte before, so that a line that begins at the offset itself is found.
        file.seek(offset - 1)
        file.readline()
        return file.tell()
    return 0


class _Spans(io.RawIOBase):
    """Spans of the bytes of a file, concatenated."""

    def __init__(self, file: Any, spans: list[tuple[int, int | None]]) -> None:
        self.file, self.spans = file, spans

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self.spans:
            start, stop = self.spans[0]
            self.file.seek(start)
            size = self.file.readinto(memoryview(buffer)[: None if stop is None else stop - start])
            if size:
                self.spans[0] = (start + size, stop)
                return int(size)
            self.spans.pop(0)
        return 0
