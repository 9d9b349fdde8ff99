"""Shards of records: written by splits to TFRecord files of a target size, and read in pieces."""

import contextlib
import dataclasses
import gzip
import os
import shutil
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c

from tfrank_sel.arguments import Checked
from tfrank_sel.data import stores
from tfrank_sel.errors import received

_LENGTH = struct.Struct("<Q4s")  # of a record, and a checksum of it
# Number of bytes of the checksum after a record.
_CHECKSUM = 4


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
            ValueError: If the length of a record does not have its checksum.
        """
        for path, offset, count in self.spans:
            with stores.open_file(path) as file:
                file.seek(offset)
                for _ in range(count):
                    length = _length(file.read(_LENGTH.size), path)
                    yield _exactly(file.read(length), length, path)
                    file.seek(_CHECKSUM, os.SEEK_CUR)


def records(path: str) -> Iterator[bytes]:
    """Reads the records of a TFRecord file, compressed if its name ends in `.gz`.

    Args:
        path: The file; one of a store is copied to the cache.

    Raises:
        EOFError: If the file ends before its last record.
        ValueError: If a record or its length does not have its checksum.
    """
    with (gzip.open if path.endswith(".gz") else open)(stores.near(path), "rb") as file:
        while head := file.read(_LENGTH.size):
            length = _length(head, path)
            record = _exactly(file.read(length), length, path)
            if file.read(_CHECKSUM) != _checksum(record):
                raise _damage(path)
            yield record


def split_shards(shards: Sequence[str], size: int) -> list[Piece]:
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
    with stores.open_file(path) as file:
        while head := file.read(_LENGTH.size):
            length = _length(head, path)
            yield file.seek(length + _CHECKSUM, os.SEEK_CUR)


def _length(head: bytes, path: str) -> int:
    """The length of the record that follows; a wrong one might ask for more than the memory."""
    length, checksum = _LENGTH.unpack(_exactly(head, _LENGTH.size, path))
    if checksum != _checksum(head[:-_CHECKSUM]):
        raise _damage(path)
    return int(length)


def _damage(path: str) -> ValueError:
    return ValueError(f"{path} must have records with their checksums")


def _exactly(octets: bytes, size: int, path: str) -> bytes:
    if len(octets) < size:
        raise EOFError(received(f"{path} must end with a whole record", f"{len(octets)} of {size}"))
    return octets


# Sort key of a record in the shards: the number of its input part, and the order within the part.
Key = tuple[int, ...]


@dataclasses.dataclass(frozen=True, order=True)
class File:
    """A file of complete records.

    Args:
        key: Key of the first record.
        path: Path or URL.
        size: Size in bytes.
    """

    key: Key
    path: str
    size: int


class Files:
    """Writes records to files, one split per file: each returns `(split, File)` when it ends.

    Args:
        folder: Folder of the files.
        size: Size of a file in bytes; it ends with the record that reaches it.
    """

    def __init__(self, folder: str, size: int) -> None:
        self.folder, self.size = folder, size
        self.files: dict[str, _Open] = {}

    def write(self, split: str, key: Key, record: bytes) -> Iterator[tuple[str, File]]:
        """Writes a record, and yields the files that end."""
        if split in self.files and not self.files[split].is_followed_by(key):
            yield split, self.files.pop(split).close()
        if split not in self.files:
            self.files[split] = _Open(stores.join(self.folder, f"{split}-{uuid.uuid4().hex}"), key)
        if self.files[split].write(key, record) >= self.size:
            yield split, self.files.pop(split).close()

    def close(self) -> Iterator[tuple[str, File]]:
        """Ends the files, and yields them."""
        for split, file in self.files.items():
            yield split, file.close()
        self.files = {}


class _Open:
    """An open file."""

    def __init__(self, path: str, key: Key) -> None:
        self.key, self.part, self.path, self.size = key, key[0], path, 0
        self.stack = contextlib.ExitStack()
        self.file = self.stack.enter_context(stores.open_file(path, "wb"))

    def is_followed_by(self, key: Key) -> bool:
        return self.part <= key[0] <= self.part + 1

    def write(self, key: Key, record: bytes) -> int:
        """Writes a record; returns the size of the file."""
        self.part = key[0]
        self.size += sum(map(self.file.write, frame_record(record)))
        return self.size

    def close(self) -> File:
        self.stack.close()
        return File(self.key, self.path, self.size)


def frame_record(record: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the bytes of a record in a TFRecord file.

    Example:
        >>> b"".join(frame_record(b"")).hex()
        '000000000000000029039807d8ea82a2'
    """
    length = struct.pack("<Q", len(record))
    return length + _checksum(length), record, _checksum(record)


def _checksum(octets: bytes) -> bytes:
    checksum = google_crc32c.value(octets)
    return struct.pack("<I", (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def plan(
    of_split: tuple[str, Iterable[File]], folder: str, size: int
) -> Iterator[tuple[str, list[str]]]:
    """Yields the shards of a split: the path of each, and the files to join to it.

    Files are joined in the order of their keys: if each part of the input is in one bundle, shards
    do not depend on the bundling.

    Args:
        of_split: The split, and its files in any order.
        folder: Folder of the shards, as path or URL.
        size: Target size of a shard in bytes: files are joined up to it.
    """
    split, files = of_split
    shards: list[list[str]] = []
    room = 0
    for file in sorted(files):
        if not shards or file.size > room:
            shards.append([])
            room = size
        shards[-1].append(file.path)
        room -= file.size
    for number, paths in enumerate(shards):
        yield stores.join(folder, f"{split}-{number:05d}-of-{len(shards):05d}.tfrecord"), paths


def join(shard: tuple[str, list[str]]) -> None:
    """Concatenates files to a new file.

    Args:
        shard: A result of `plan`.
    """
    path, files = shard
    if len(files) == 1:
        stores.copy(files[0], path)
        return
    with stores.open_file(path, "wb") as whole:
        for name in files:
            with stores.open_file(name) as file:
                shutil.copyfileobj(file, whole, 1 << 20)
