"""Pieces of record files: runs of lists that workers can read independently."""

import dataclasses
import os
import struct
from collections.abc import Iterator, Sequence

from tfrank_sel.arguments import Checked
from tfrank_sel.data import stores

_LENGTH = struct.Struct("<Q4x")  # of a record, and a checksum of it
_CHECKSUM = 4  # bytes after a record


@dataclasses.dataclass(frozen=True)
class Piece(Checked):
    """Consecutive records of one or several TFRecord files.

    Args:
        spans: For each file its path or URL, the offset of the first record in bytes, and the
            number of records.
    """

    spans: Sequence[tuple[str, int, int]]

    def records(self) -> Iterator[bytes]:
        """Reads the records, one at a time.

        Raises:
            EOFError: If a file ends before its last record.
        """
        for path, offset, count in self.spans:
            with stores.opened(path) as file:
                file.seek(offset)
                for _ in range(count):
                    [length] = _LENGTH.unpack(_exactly(file.read(_LENGTH.size), _LENGTH.size, path))
                    yield _exactly(file.read(length), length, path)
                    file.seek(_CHECKSUM, os.SEEK_CUR)


def cut(shards: Sequence[str], size: int) -> list[Piece]:
    """Returns pieces of `size` records each, except the last, in the order of the files.

    The files are scanned once, reading only the lengths of the records.

    Args:
        shards: TFRecord files, not compressed, by path or URL.
        size: Number of records of a piece; positive.
    """
    pieces: list[list[tuple[str, int, int]]] = [[]]
    room = size
    for path in shards:
        start, count = 0, 0
        for end in _ends(path):
            count, room = count + 1, room - 1
            if not room:
                pieces[-1].append((path, start, count))
                pieces.append([])
                start, count, room = end, 0, size
        if count:
            pieces[-1].append((path, start, count))
    return [Piece(spans) for spans in pieces if spans]


def _ends(path: str) -> Iterator[int]:
    """The offset after each record."""
    with stores.opened(path) as file:
        while head := file.read(_LENGTH.size):
            [length] = _LENGTH.unpack(_exactly(head, _LENGTH.size, path))
            yield file.seek(length + _CHECKSUM, os.SEEK_CUR)


def _exactly(octets: bytes, size: int, path: str) -> bytes:
    if len(octets) < size:
        raise EOFError(f"{path} must end with a whole record. Received: {len(octets)} of {size}")
    return octets
