"""Manifests of steps: the inputs of each step, to skip steps whose inputs are unchanged."""

import dataclasses
import datetime
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tfrank_sel.data import stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.configuration.data import Data
from tfrank_sel.pipelines.configuration.section import fields
from tfrank_sel.pipelines.configuration.training import FUNCTION
from tfrank_sel.pipelines.files import folders
from tfrank_sel.version import __version__


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of step.

    Args:
        keys: The configuration keys on which it depends.
        after: The steps whose results it reads.
    """

    keys: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


_OF_ANALYSIS = ("data.reference", "data.schema")
_OF_DATA = [key for key in map("data.{}".format, fields(Data)) if key not in _OF_ANALYSIS]
STEPS = {
    "ingest": Kind((*_OF_DATA, "features")),
    "analyze": Kind((*_OF_ANALYSIS, "gates"), ("ingest",)),
    "train": Kind(("modules", "model", "training", "evaluation"), ("ingest",)),
    "evaluate": Kind(after=("train",)),
    "export": Kind(("export", "serving.description", "serving.recalibration"), ("evaluate",)),
    "push": Kind(("blessing", "serving"), ("analyze", "export")),
}


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
    def of(cls, path: str, known: "Fingerprint | None" = None) -> "Fingerprint":
        """Returns the fingerprint of a file; reads the content only if size or time changed.

        Raises:
            tfrank_sel.data.InputError: If it cannot be read.
        """
        try:
            if stores.is_remote(path):
                size, tag = stores.state(path)
                return cls(size, tag, _hash(f"{size} {tag}".encode()).hexdigest())
            status = os.stat(path)
            if known and (known.size, known.modified) == (status.st_size, status.st_mtime_ns):
                return known
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, _hash).hexdigest()
        except OSError as error:
            raise InputError(path, f"expected a file. Received: {error.strerror}") from error
        return cls(status.st_size, status.st_mtime_ns, digest)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The inputs of a step.

    Args:
        configuration: The values of the keys on which it depends.
        files: Fingerprint of each file that it reads, by path.
        after: The digests of the steps whose results it reads.
        version: Version of the library.
    """

    configuration: Mapping[str, Any]
    files: Mapping[str, Fingerprint]
    after: Mapping[str, str]
    version: str = __version__

    @property
    def digest(self) -> str:
        """Hash of all inputs, without the times of files."""
        files = {path: found.digest for path, found in sorted(self.files.items())}
        parts = [self.configuration, files, self.after, self.version]
        return _hash(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def change(self, now: "Manifest") -> str:
        """Describes the first changed input; an empty text if nothing changed."""
        if self.digest == now.digest:
            return ""
        for key, value in now.configuration.items():
            for name, old, new in differences(key, self.configuration.get(key), value):
                return f"{name} is {new!r}, was {old!r}"
        for path in (*now.files, *self.files):
            old, new = (x.files.get(path) for x in (self, now))
            if old is None or new is None or old.digest != new.digest:
                return f"{path} {'is new' if old is None else 'changed' if new else 'is gone'}"
        for step, digest in now.after.items():
            if self.after.get(step) != digest:
                return f"{step} changed"
        return f"the version is {now.version}, was {self.version}"

    def write(self, folder: Path, seconds: Mapping[str, float]) -> None:
        """Writes the manifest of a step to its folder, with additional information."""
        told = {
            **dataclasses.asdict(self),
            "digest": self.digest,
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": {"python": sys.version.split()[0], **_versions()},
            "seconds": dict(seconds),
            "written": {
                name: dataclasses.asdict(Fingerprint.of(str(folder / name)))
                for name in _names(folder)
            },
        }
        folders.write_json(folder / folders.MANIFEST, told)


def read(output: Path, step: str) -> dict[str, Any] | None:
    """Returns the stored manifest of a step; None if the step has not been run.

    Raises:
        tfrank_sel.data.InputError: If it is damaged.
    """
    path = output / step / folders.MANIFEST
    if not path.is_file():
        return None
    found: dict[str, Any] = folders.read_json(path)
    try:
        _ = _inputs(found), [Fingerprint(**x) for x in found.get("written", {}).values()]
        _ = found["digest"], found["made"], dict(found["seconds"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise folders.replaced(path, step, f"{type(error).__name__}: {error}") from error
    return found


def drop_damaged(output: Path, steps: Iterable[str]) -> None:
    """Removes damaged manifests of steps that are to run again."""
    for step in steps:
        try:
            read(output, step)
        except InputError:
            (output / step / folders.MANIFEST).unlink()


def check_written(output: Path, steps: Iterable[str]) -> None:
    """Raises an error if files of a step are not those that it wrote.

    Only files whose size or time of modification changed are read.

    Args:
        output: Folder of the run.
        steps: The steps to check.

    Raises:
        tfrank_sel.data.InputError: If a file is missing, changed, or new among the records; the
            error names the first one.
    """
    for step in steps:
        folder = output / step
        written = (read(output, step) or {}).get("written", {})
        for name, values in written.items():
            path, known = folder / name, Fingerprint(**values)
            if not path.is_file():
                raise folders.replaced(path, step, "a missing file")
            if Fingerprint.of(str(path), known).digest != known.digest:
                raise folders.replaced(path, step, "a changed file")
        if step == "ingest" and written:
            for name in _names(folder):
                if name not in written:
                    raise folders.replaced(folder / name, step, "a new file")


def _names(folder: Path) -> list[str]:
    """The files of a step, except those that no step reads."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = sorted(path.as_posix() for path in files if not path.name.startswith("."))
    return [x for x in names if x != folders.MANIFEST and not x.startswith("logs/")]


def current(
    configuration: Configuration, sources: Iterable[str], output: Path
) -> dict[str, Manifest]:
    """Returns the manifest that each step would have if it ran now.

    Args:
        configuration: The configuration.
        sources: The files to read.
        output: Folder of the run, whose manifests have the digests of unmodified files.

    Raises:
        tfrank_sel.data.InputError: If a file cannot be read.
    """
    values = configuration.absolute().model_dump(mode="json", by_alias=True)
    found: dict[str, Manifest] = {}
    for name, kind in STEPS.items():
        written = read(output, name)
        known = _inputs(written) if written else None
        files = {
            path: Fingerprint.of(path, known.files.get(path) if known else None)
            for path in _files(name, configuration, sources)
        }
        chosen = {key: _value(values, key) for key in kind.keys}
        if name == "ingest" and not files:  # synthetic data
            chosen["training.seed"] = configuration.training.seed
        found[name] = Manifest(chosen, files, {step: found[step].digest for step in kind.after})
    return found


def stale(manifests: Mapping[str, Manifest], output: Path) -> dict[str, str]:
    """Returns the steps that must run, each with the reason."""
    found = {}
    for name, now in manifests.items():
        written = read(output, name)
        reason = _inputs(written).change(now) if written else "not run yet"
        if reason:
            found[name] = reason
    return found


def check_unchanged(manifest: Manifest) -> None:
    """Raises an error if a file changed while a step read it.

    Raises:
        tfrank_sel.data.InputError: If a file changed; the error names the first one.
    """
    for path, known in manifest.files.items():
        if Fingerprint.of(path, known).digest != known.digest:
            reason = "a file must not change while it is read. Received: a changed file"
            raise InputError(path, reason)


def _inputs(values: Mapping[str, Any]) -> Manifest:
    files = {path: Fingerprint(**found) for path, found in values["files"].items()}
    return Manifest(values["configuration"], files, values["after"], values["version"])


def _files(step: str, configuration: Configuration, sources: Iterable[str]) -> Iterator[str]:
    """Yields the files that a step reads, except those of other steps of the run."""
    data = configuration.data
    earlier = data.continue_from
    if step == "ingest":
        for source in sources:
            if stores.is_dir(source):
                yield from stores.find(source)
            else:
                yield source
        if earlier:
            yield stores.join(earlier, "ingest", folders.MANIFEST)
    elif step == "analyze":
        if data.reference:
            yield stores.join(data.reference, "analyze", folders.MANIFEST)
        if data.schema_:
            yield data.schema_
    elif step == "train":
        yield from _code(configuration)
        if earlier:
            yield stores.join(earlier, "train", folders.MANIFEST)


def _code(configuration: Configuration) -> Iterator[str]:
    """Yields the user's files with losses, models and other configured objects."""
    yield from configuration.modules
    known = {Path(file).stem for file in configuration.modules}
    training, model = configuration.training, configuration.model
    tables = [model.model_dump(by_alias=True), training.model_dump(by_alias=True)]
    for module in sorted({name.partition(":")[0] for name in _functions(tables)} - known):
        found: Any = sys.modules.get(module)
        if found is None:
            try:
                found = importlib.util.find_spec(module)
            except (ImportError, ValueError):  # the import reports the error
                continue
        file = getattr(found, "__file__", None) or getattr(found, "origin", None)
        if file and os.path.isfile(file):
            yield file


def _functions(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        name = value.get("class")
        if isinstance(name, str) and FUNCTION.fullmatch(name):
            yield name
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            yield from _functions(one)


def _value(values: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        values = values.get(part, {}) if isinstance(values, Mapping) else {}
    return values


def differences(key: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the key of each changed value, with the old and the new value; None if absent."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*new, *old)):
            yield from differences(f"{key}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield key, old, new


def _versions() -> dict[str, str]:
    names = ("tfrank_sel", "tensorflow", "keras", "numpy", "apache-beam")
    return {name: metadata.version(name) for name in names}


def _hash(*content: bytes) -> Any:
    return hashlib.blake2b(*content, digest_size=16)
