"""Manifests of steps: the inputs of each step, to skip steps whose inputs are unchanged."""

import dataclasses
import datetime
import functools
import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from tfrank_sel import artefacts
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import rejection
from tfrank_sel.pipelines.configuration.sections import without_secrets
from tfrank_sel.pipelines.files import folders
from tfrank_sel.version import __version__

_PACKAGES = ("tfrank_sel", "tensorflow", "keras", "numpy")
WRITTEN, NO_DIGESTS = "written", "no digests of its files"  # key of a manifest; its absence


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """The identity of a file.

    Args:
        size: Its size, in bytes.
        modified: Time of modification, in nanoseconds; or the tag of the store.
        digest: Hash of the content; for a file in a store, hash of size and tag.
    """

    size: int
    modified: int | str
    digest: str

    @classmethod
    def of(cls, path: str, before: "Fingerprint | None" = None) -> "Fingerprint":
        """Returns the fingerprint of a file; reads the content only if size or time changed.

        Raises:
            tfrank_sel.data.InputError: If it cannot be read.
        """
        try:
            if stores.is_remote(path):
                size, tag = stores.state(path)
                return cls(size, tag, _hash(f"{size} {tag}".encode()).hexdigest())
            status = os.stat(path)
            if before and (before.size, before.modified) == (status.st_size, status.st_mtime_ns):
                return before
            size, modified = status.st_size, status.st_mtime_ns
            return cls(size, modified, _digest(os.path.abspath(path), size, modified))
        except OSError as error:
            raise rejection(path, "expected a file", error.strerror) from error


@functools.cache
def _digest(path: str, size: int, modified: int) -> str:
    """Hash of the content of a file, which a process reads once unless size or time change."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, _hash).hexdigest()


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The inputs of a step.

    Args:
        configuration: The values of the keys on which it depends.
        files: Fingerprint of each file that it reads, by path or URL.
        after: The digests of the steps whose results it reads.
        version: Version of the library.
    """

    configuration: Mapping[str, Any]
    files: Mapping[str, Fingerprint]
    after: Mapping[str, str]
    version: str = __version__

    @functools.cached_property
    def public_form(self) -> "Manifest":
        """The same as it is written and compared, without secrets of URLs of files."""
        files = dict[str, Fingerprint]()
        for path, file in self.files.items():
            name = number = artefacts.address(path)
            while number in files:  # others, which only their query tells apart
                number = f"{name} ({len(files)})"
            files[number] = file
        return dataclasses.replace(
            self, configuration=without_secrets(self.configuration), files=files
        )

    @functools.cached_property
    def digest(self) -> str:
        """Hash of all inputs, without the times of files and the secrets of addresses."""
        files = {path: file.digest for path, file in sorted(self.public_form.files.items())}
        parts = [self.public_form.configuration, files, self.after, self.version]
        return _hash(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path, names: Collection[str], seconds: Mapping[str, float]) -> None:
        """Writes the manifest of a step to its folder.

        Args:
            folder: The folder.
            names: Names of the files and folders there that other steps read.
            seconds: Duration of each part of the step.
        """
        values = {
            **dataclasses.asdict(self.public_form),
            "digest": self.digest,
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": {
                "python": sys.version.split()[0],
                **{name: metadata.version(name) for name in _PACKAGES},
            },
            "seconds": dict(seconds),
            WRITTEN: {
                name: dataclasses.asdict(Fingerprint.of(str(folder / name)))
                for name in _files(folder, names)
            },
        }
        folders.write_json(folder / folders.MANIFEST, values)


@dataclasses.dataclass(frozen=True)
class Written:
    """A step that was run, by the manifest in its folder.

    Args:
        folder: The folder.
        inputs: The inputs of the step.
        digest: Hash of all inputs.
        made: Time of the step, as ISO 8601.
        versions: Versions of Python and of packages.
        seconds: Duration of each part of the step.
        files: Fingerprint of each file that other steps read, by its name in the folder; None in
            manifests of earlier versions.
    """

    folder: Path
    inputs: Manifest
    digest: str
    made: str
    versions: Mapping[str, str]
    seconds: Mapping[str, float]
    files: Mapping[str, Fingerprint] | None

    @classmethod
    def read(cls, output: Path, step: str) -> Self | None:
        """Reads the manifest of a step; None if the step has not been run.

        Raises:
            tfrank_sel.data.InputError: If it is damaged.
        """
        folder = output / step
        path = folder / folders.MANIFEST
        if not path.is_file():
            return None
        values = folders.read_json(path)
        try:
            read = _fingerprints(values["files"])
            inputs = Manifest(values["configuration"], read, values["after"], values["version"])
            files = _fingerprints(values[WRITTEN]) if WRITTEN in values else None
            seconds, versions = dict(values["seconds"]), values.get("versions", {})
            return cls(folder, inputs, values["digest"], values["made"], versions, seconds, files)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise folders.changed_file_error(
                path, step, f"{type(error).__name__}: {error}"
            ) from error

    def change(self, now: Manifest, before: Manifest) -> str:
        """Describes why the step must run again; an empty text if it is up to date.

        Args:
            now: The inputs that it would have.
            before: Those that it had, and what its version did not know.
        """
        before, now = before.public_form, now.public_form
        for key, value in now.configuration.items():
            for name, old, new in differences(key, before.configuration.get(key), value):
                return f"{name} is {new!r}, was {old!r}"
        for path in (*now.files, *before.files):
            old, new = (x.files.get(path) for x in (before, now))
            if old is None or new is None or old.digest != new.digest:
                return f"{path} {'is new' if old is None else 'changed' if new else 'is gone'}"
        for step, digest in now.after.items():
            if before.after.get(step) != digest:
                return f"{step} changed"
        return NO_DIGESTS if self.files is None else ""

    def check(self) -> None:
        """Raises an error if files of the step are not those that it wrote.

        Only files whose size or time of modification changed are read.

        Raises:
            tfrank_sel.data.InputError: If a file is missing, changed, or new among the records; the
                error names the first one.
        """
        folder, step = self.folder, self.folder.name
        if self.files is None:
            raise folders.changed_file_error(folder / folders.MANIFEST, step, NO_DIGESTS)
        for name, written in self.files.items():
            path = folder / name
            if not path.is_file():
                raise folders.changed_file_error(path, step, "a missing file")
            if Fingerprint.of(str(path), written).digest != written.digest:
                raise folders.changed_file_error(path, step, "a changed file")
        for name in _files(folder, folders.RECORDS.get(step, ()) if self.files else ()):
            if name not in self.files:
                raise folders.changed_file_error(folder / name, step, "a new file")


def read_manifests(output: Path, steps: Iterable[str]) -> dict[str, Written]:
    """Reads the manifests of the steps that have been run, by step: see `Written.read`."""
    manifests = {step: Written.read(output, step) for step in steps}
    return {step: manifest for step, manifest in manifests.items() if manifest is not None}


def _fingerprints(values: Mapping[str, Any]) -> dict[str, Fingerprint]:
    return {name: Fingerprint(**value) for name, value in values.items()}


def _files(folder: Path, names: Collection[str]) -> list[str]:
    """The files of these names, and in folders of these names, except hidden ones."""
    paths = (x for name in names for x in (folder / name, *(folder / name).rglob("*")))
    visible = (x for x in paths if x.is_file() and not x.name.startswith("."))
    return sorted(x.relative_to(folder).as_posix() for x in visible)


def check_unchanged(manifest: Manifest) -> None:
    """Raises an error if a file changed while a step read it.

    Raises:
        tfrank_sel.data.InputError: If a file changed; the error names the first one.
    """
    for path, before in manifest.files.items():
        if Fingerprint.of(path, before).digest != before.digest:
            raise rejection(path, "a file must not change while it is read", "a changed file")


def differences(key: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the key of each changed value, with the old and the new value; None if absent."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*new, *old)):
            yield from differences(f"{key}.{name}", old.get(name), new.get(name))
    elif _text(old) != _text(new):
        # As texts, the number 1 differs from true.
        yield key, old, new


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _hash(*content: bytes) -> Any:
    return hashlib.blake2b(*content, digest_size=16)
