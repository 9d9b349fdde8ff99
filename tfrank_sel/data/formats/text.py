"""Base of readers of text lines, whose parts are ranges of bytes."""

import bisect
import contextlib
import dataclasses
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tfrank_sel.data import lines
from tfrank_sel.data.formats.arrays import arrow
from tfrank_sel.data.formats.protocol import Part, Reader
from tfrank_sel.data.lists import Rejected

_BUFFER = 1 << 20  # bytes
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class LineReader(Reader):
    """Reader of text; the units of a part are bytes, and a compressed file is a single part.

    A part contains the lines that begin in it, counted from its first byte: the first has the
    number `part.start + 1`. Lines of the next part are counted from that part's start.

    Attributes:
        heading: Number of lines at the beginning of a file that are not counted.
    """

    heading: ClassVar[int] = 0

    def parts(self, path: str) -> Sequence[Part]:
        starts = lines.cuts(path)
        return [Part(path, *x) for x in zip(starts, [*starts[1:], None], strict=True)]

    def numbered(
        self, rejected: Iterable[Rejected], parts: Mapping[str, Sequence[Part]]
    ) -> Iterator[Rejected]:
        starts = {path: [part.start for part in of_file] for path, of_file in parts.items()}
        before: dict[str, list[int]] = {}
        for one in rejected:
            if one.number is None:
                yield one
                continue
            of_file = starts[one.file]
            if place := bisect.bisect_left(of_file, one.number) - 1:
                if one.file not in before:
                    before[one.file] = lines.before(one.file, of_file, self.counts)
                first = before[one.file][place] - self.heading
                one = dataclasses.replace(one, number=one.number - of_file[place] + first)
            yield one

    def counts(self, line: bytes) -> bool:
        """Whether a line is counted; all are by default."""
        return True


@contextlib.contextmanager
def opened(part: Part, *, headed: bool = False) -> Iterator[Any]:
    """Opens the lines of a part for pyarrow, which decompresses them.

    Args:
        part: The part.
        headed: Whether the first line of the file comes first.
    """
    codec = _CODECS.get(os.path.splitext(part.path)[1])
    with (
        lines.opened(part.path, part.start, part.stop, headed=headed) as file,
        arrow().input_stream(file, compression=codec) as stream,
        io.BufferedReader(stream, _BUFFER) as text,
    ):
        lines.check_utf8(part.path, text.peek(2)[:2])
        yield text
