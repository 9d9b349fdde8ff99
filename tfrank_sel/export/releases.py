"""Releases: the versions of a model, and the `models.config` that tells servers which to serve.

The functions publish and remove versions in the folder of one model. `Releases` does so in a folder
of several models, with `models.config`: servers that poll this file follow each release without a
restart.

Object stores cannot rename. There, a folder is a version if it has `saved_model.pb`: this file is
uploaded last and removed first.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tfrank_sel import artefacts
from tfrank_sel.arguments import StrPath
from tfrank_sel.data import leases, stores
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.errors import received, refusal
from tfrank_sel.locks import atomic_path, flush, hold

GRAPH = "saved_model.pb"
CONFIGURATION = "models.config"
# The kind that the digests of a version name.
KIND = "SavedModel"
STABLE, CANARY, PREVIOUS = _OWN = "stable", "canary", "previous"
_WITHDRAWN, _REMOVED = "rolled-back-", ".removed-"  # before the number of a version
_PATIENCE = 60.0  # seconds to wait for another publication to a folder of models
_VERSIONS = 2**63  # servers keep versions in signed integers of 64 bits, and ignore others


def publish(
    saved_model: StrPath,
    base: StrPath,
    version: int | None = None,
) -> Path | str:
    """Publishes a SavedModel atomically as a new version for a server that polls `base`.

    On disk, the copy is written under a temporary name in the same folder, which servers ignore,
    flushed to disk, and renamed. In an object store, `saved_model.pb` is uploaded last; a server
    that reads earlier must retry, as TensorFlow Serving does every minute, five times by default.

    A version has `digests.json`, with the size and the digest of each file: the local server loads
    none with other files, and one that is published again must have them.

    Args:
        saved_model: Folder or URL of the SavedModel, which is not changed.
        base: Base path of the model on the server, a folder or a URL; created if missing.
        version: Version to publish, at least 0 and below 2**63. By default one more than the
            latest, or 1; the latest may be one that was rolled back.

    Returns:
        The folder of the version, or its URL.

    Raises:
        FileExistsError: If `base` has or had the version, in any spelling (`7`, `007`), or another
            process is publishing it.
        FileNotFoundError: If `saved_model` is not a SavedModel.
        ValueError: If `version` is negative, or not below 2**63, or `saved_model` was published
            before and differs now.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    if version is None:
        # a number that was rolled back may still be loaded, as another model
        version = 1 + max([*versions(base), *_folders(base, _WITHDRAWN)], default=0)
    if not 0 <= version < _VERSIONS:
        raise refusal(
            "`version` must not be negative, and below 2**63: servers ignore others", version
        )
    if not stores.is_file(stores.join(saved_model, GRAPH)):
        raise FileNotFoundError(received("`saved_model` must contain saved_model.pb", saved_model))
    here = Path(stores.near_folder(saved_model))
    # Digests of a damaged copy would make it whole for every reader.
    artefacts.check(here, KIND)
    digests = artefacts.text(artefacts.digests(here), KIND)
    if stores.is_remote(base):
        url = stores.join(base, str(version))
        with _alone(base):
            _check_new(base, version)
            stores.write_text(stores.join(url, artefacts.DIGESTS), digests)
            stores.send(here, url, last=GRAPH, but=[artefacts.DIGESTS])
        return url
    _check_new(base, version)
    published = Path(base, str(version))
    with atomic_path(published) as copy:
        _copy(here, copy)
        (copy / artefacts.DIGESTS).write_text(digests, encoding="utf-8")
    return published


def _check_new(base: StrPath, version: int) -> None:
    if version in (folders := {**_folders(base, _WITHDRAWN), **versions(base)}):
        message = received(f"`version` must be new in {base}", Path(folders[version]).name)
        raise FileExistsError(message)


def _copy(folder: Path, copy: Path) -> None:
    """Copies a folder, and stops at the first file that fails, unlike `copytree`."""
    copy.mkdir()
    for child in folder.iterdir():
        if child.is_dir():
            _copy(child, copy / child.name)
        else:
            shutil.copy2(child, copy / child.name)


def roll_back(base: StrPath) -> int:
    """Withdraws the latest version: a server that polls `base` returns to the previous one.

    The version is kept under another name, which servers ignore.

    Args:
        base: Base path of the model on the server, a folder or a URL.

    Returns:
        The version that is now the latest.

    Raises:
        FileExistsError: If another process is changing the versions of a store.
        ValueError: If `base` has fewer than two versions.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    with _alone(base):
        folders = versions(base)
        if len(folders) < 2:
            numbers = f"versions {sorted(folders)}"
            raise refusal(f"{base} must have two versions to roll back", numbers)
        latest, before = sorted(folders, reverse=True)[:2]
        folder = str(folders[latest])
        aside = stores.join(base, f"{_WITHDRAWN}{Path(folder).name}")
        if stores.is_remote(base):
            for file in stores.find(folder):
                stores.copy(file, file.replace(folder, aside, 1))
            stores.drop(folder, first=GRAPH)
        else:
            # earlier versions of this package gave the number of one again
            names = itertools.chain([aside], (f"{aside}-{x}" for x in itertools.count(2)))
            os.rename(folder, next(x for x in names if not os.path.exists(x)))
            flush(base)
    return before


def remove_old(base: StrPath, keep: int, spare: Collection[int] = ()) -> list[int]:
    """Removes all versions except the latest ones.

    On disk, each version is renamed first, so that no server loads a partly removed version; in a
    store, `saved_model.pb` is removed first.

    Args:
        base: Base path of the model on the server, a folder or a URL.
        keep: Number of latest versions to keep; positive.
        spare: Versions that are kept as well.

    Returns:
        The removed versions, oldest first.

    Raises:
        FileExistsError: If another process is changing the versions of a store.
        ValueError: If `keep` is not positive.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    if keep < 1:
        raise refusal("`keep` must be positive", keep)
    with _alone(base):
        folders = versions(base)
        old = [version for version in sorted(folders)[:-keep] if version not in spare]
        if not stores.is_remote(base):
            for left in Path(base).glob(f"{_REMOVED}*"):  # by a process that was killed
                _drop(left)
        for version in old:
            folder = str(folders[version])
            if stores.is_remote(base):
                stores.drop(folder, first=GRAPH)
            else:
                removed = Path(base, f"{_REMOVED}{Path(folder).name}")
                Path(folder).rename(removed)
                _drop(removed)
    return old


def _drop(folder: Path) -> None:
    # What a link leads to may have other uses.
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


def versions(base: StrPath) -> Mapping[int, Path | str]:
    """Returns the folders of versions, including spellings such as `007`, by version number.

    Servers ignore names of 2**63 and above.

    Args:
        base: Base path of the model on the server, a folder or a URL; it need not exist.

    Returns:
        The folder of each version, or its URL.

    Raises:
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    return _folders(base)


def _folders(base: StrPath, before: str = "") -> Mapping[int, Path | str]:
    """The folders of versions with this text before their number, as `versions`."""
    folders: dict[str, Path | str]
    if stores.is_remote(base):
        files = set(stores.find(base))
        names = {Path(x).parent.name for x in files}
        folders = {name: stores.join(base, name) for name in names}
        folders = {x: y for x, y in folders.items() if stores.join(y, GRAPH) in files}
    else:
        children = Path(base).iterdir() if Path(base).is_dir() else ()
        folders = {child.name: child for child in children if child.is_dir()}
    numbers = {name.removeprefix(before): name for name in folders if name.startswith(before)}
    return {int(x): folders[name] for x, name in numbers.items() if _is_version(x)}


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdecimal() and int(name) < _VERSIONS


def _alone(folder: StrPath) -> contextlib.AbstractContextManager[None]:
    """Locks a store for this process; on disk, a rename is enough."""
    is_remote = stores.is_remote(folder)
    return leases.hold(os.fspath(folder)) if is_remote else contextlib.nullcontext()


def check_name(name: str) -> None:
    """Raises a ValueError for a name of a model that cannot name a folder among others."""
    if not name.isprintable() or name[:1] in ("", ".") or {*name} & {"/", "\\"}:
        raise refusal(
            "`model_name` must be a name of printable characters without `/` and `\\`, and not "
            "begin with `.`",
            repr(name),
        )


@dataclasses.dataclass(frozen=True)
class Releases:
    """Releases of a model in a folder of served models, which holds `models.config`.

    Each change is made by one process at a time, which reads and writes `models.config`. The next
    one waits for a minute.

    Without labels, servers use the latest version. A canary and `promote` create labels. Then
    exactly the versions with a label are served, and each new version starts as a canary: servers
    refuse to move a label to a version that they have not loaded.

    Other labels than `stable`, `canary` and `previous` are yours, and so are other models, policies
    that serve more versions, `base_path`, and further settings: they stay. A change keeps the
    comments at the head of the file only, and removes labels and pins of versions that are gone.

    All methods raise `tfrank_sel.data.InputError` if a store cannot be reached or denies access,
    another process is changing it, or `models.config` is malformed or empty.

    Args:
        root: Folder or URL of all served models.
        model_name: Name of the model, and of its folder in `root`.

    Raises:
        ValueError: If `model_name` is a path, or no name.
    """

    root: str
    model_name: str

    def __post_init__(self) -> None:
        check_name(self.model_name)

    @property
    def base(self) -> str:
        """Folder or URL of the versions of the model."""
        return stores.join(self.root, self.model_name)

    def served_folder(self) -> str | None:
        """Returns the version that a server uses by default.

        Returns:
            The folder or URL of the version labelled `stable`, if there is one, else of the latest
            that the policy names, else of the latest; None if there is no version.
        """
        entry, folders = self._state()
        version = _current(entry, folders)
        return str(folders[version]) if version in folders else None

    def publish(
        self,
        saved_model: StrPath,
        version: int | None = None,
        *,
        canary: bool = False,
        published: int | None = None,
    ) -> str:
        """Publishes a version of the model, and updates `models.config` for the server.

        Args:
            saved_model: Folder of the SavedModel.
            version: Version to publish; if None, one more than the latest.
            canary: Whether to publish with the label `canary`, next to the `stable` version.
            published: Its version, if it was published before: then only labels change.

        Returns:
            The folder of the version, or its URL.

        Raises:
            tfrank_sel.data.InputError: If the version exists, or the labels do not allow it.
        """
        with self._alone():
            entry, folders = self._state()
            labels, current = _own(entry), _current(entry, folders)
            if canary and (current == published or current not in folders):
                reason = "a canary requires another version that is served"
                raise self._error(reason, self.served_folder())
            is_new = published is None or published not in (current, labels.get(CANARY))
            if is_new and (entry.version_labels or entry.model_version_policy.HasField("specific")):
                if not canary:
                    reason = "a new version must be a canary first, since the served ones are named"
                    raise self._error(reason, f"labels {dict(entry.version_labels)}")
                if CANARY in labels:
                    reason = "the canary must be promoted or rolled back first"
                    raise self._error(reason, f"labels {labels}")
            if published is None:
                folder = str(publish(saved_model, self.base, version))
            else:
                folder = str(folders[published])
            new = int(Path(folder).name)
            if canary:
                labels = {STABLE: current, CANARY: new}
            elif labels.get(CANARY) == new:
                labels = {STABLE: new, PREVIOUS: self._stable(labels)}
            # After the version itself: servers refuse a label of a version that is not there.
            self._tell(entry, labels, {*folders, new})
        return folder

    def promote(self) -> int:
        """Makes the canary the stable version. The stable version becomes `previous`, still served.

        Without labels, the version that is served becomes `stable`. Promote a canary only after all
        servers have loaded it.

        Returns:
            The version that is now stable.

        Raises:
            tfrank_sel.data.InputError: If there is no version to promote.
        """
        with self._alone():
            entry, folders = self._state()
            labels, current = _own(entry), _current(entry, folders)
            if CANARY in labels:
                labels = {STABLE: labels[CANARY], PREVIOUS: self._stable(labels)}
            elif not labels and current in folders:
                labels = {STABLE: current}
            else:
                raise self._error("expected a canary to promote", f"labels {labels}")
            self._tell(entry, labels, {*folders})
        return labels[STABLE]

    def roll_back(self) -> int:
        """Withdraws the canary or, if there is none, returns to the previous version.

        With labels, or a policy of given versions, only `models.config` changes: the version is
        kept, and no longer served. Else the latest is renamed as in `tfrank_sel.export.roll_back`.

        Returns:
            The version that is now served by default.

        Raises:
            tfrank_sel.data.InputError: If there is no other version to serve.
        """
        with self._alone():
            entry, folders = self._state()
            labels, versions, latest = _own(entry), {*folders}, max(folders, default=-1)
            pinned = entry.model_version_policy.specific.versions
            if labels:
                version = labels.get(STABLE if CANARY in labels else PREVIOUS)
                if version is None:
                    reason = "expected a canary or a previous version to roll back"
                    raise self._error(reason, f"labels {labels}")
                labels = {STABLE: version}
            elif latest in entry.version_labels.values():
                reason = f"version {latest} must have no label to be rolled back"
                raise self._error(reason, f"labels {dict(entry.version_labels)}")
            elif len(versions) < 2 or not pinned:
                return roll_back(self.base)
            elif latest not in pinned:
                reason = f"version {latest}, the latest, must be served to be rolled back"
                raise self._error(reason, f"versions {[*pinned]} of {CONFIGURATION}")
            else:
                versions.remove(latest)
            self._tell(entry, labels, versions)
        return _current(entry, versions)

    def remove_old(self, keep: int) -> list[int]:
        """Removes all versions except the latest ones and those that `models.config` names.

        Args:
            keep: Number of latest versions to keep; positive.

        Returns:
            The removed versions, oldest first.

        Raises:
            tfrank_sel.data.InputError: If `keep` is not positive.
        """
        with self._alone():
            entry, _ = self._state()
            spare = *entry.version_labels.values(), *entry.model_version_policy.specific.versions
            return remove_old(self.base, keep, spare)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the folder for this process, and tells of a release that cannot be made."""
        # The file has the entries of all models: of two that read it at once, the second to write
        # would take away the entry of the first, and servers would unload its model.
        is_remote = stores.is_remote(self.root)
        root, lock = Path(self.root), f".{CONFIGURATION}.lock"
        try:
            with leases.hold(self.root, _PATIENCE) if is_remote else hold(root, lock, _PATIENCE):
                yield
        except InputError:
            raise
        except (FileExistsError, ValueError) as error:
            raise InputError(self.base, f"{error}") from error

    def _error(self, reason: str, state: object) -> InputError:
        return rejection(self.base, reason, state)

    def _stable(self, labels: Mapping[str, int]) -> int:
        if STABLE not in labels:
            raise self._error("a version must be labelled `stable`", f"labels {dict(labels)}")
        return labels[STABLE]

    def _state(self) -> tuple[Any, Mapping[int, Path | str]]:
        """The entry of the model, and the folders of its versions.

        Labels of a person for versions that are not there are left out: servers refuse all labels
        for one of these, and the next version could get such a number.
        """
        entry, folders = self._entry(self._read()[0]), versions(self.base)
        for label, version in [*entry.version_labels.items()]:
            if label not in _OWN and version not in folders:
                del entry.version_labels[label]
        return entry, folders

    def _tell(self, entry: Any, labels: dict[str, int], versions: set[int]) -> None:
        """Writes the entry with labels to `models.config`; without labels, its policy stays."""
        if labels and self._stable(labels) not in versions:
            reason = f"version {labels[STABLE]} must be there to become stable"
            raise self._error(reason, f"versions {sorted(versions)}")
        before = _own(entry)
        for label in before:
            del entry.version_labels[label]
        entry.version_labels.update({x: y for x, y in labels.items() if y in versions})
        _serve(entry, {*before.values()}, versions)
        # Servers read the file in another working folder, and have other paths in a container.
        base = self.base if stores.is_remote(self.base) else os.path.abspath(self.base)
        # but where a folder was copied with the file, which names the original
        is_original = os.path.isdir(entry.base_path) and os.path.isdir(base)
        if not entry.base_path or (is_original and not os.path.samefile(entry.base_path, base)):
            entry.base_path = base
        entry.ClearField("model_type")  # an older form of the platform; servers refuse both
        entry.model_platform = entry.model_platform or "tensorflow"
        configuration, text = self._read()
        # A file that needs no change is not written, so that its comments stay.
        if entry == (found := self._entry(configuration)):
            return
        gone = {*found.version_labels} - {*entry.version_labels, *_OWN}
        found.CopyFrom(entry)
        head = re.split(r"(?m)^[^\S\n]*[^\s#]", text, maxsplit=1)[0]
        text = head + text_format.MessageToString(configuration)
        stores.write_text(stores.join(self.root, CONFIGURATION), text)
        if gone:
            reason = "labels of versions that are not there were removed"
            warnings.warn(f"{self._error(reason, sorted(gone))}", stacklevel=3)

    def _read(self) -> tuple[Any, str]:
        """The message and the text of `models.config`, both empty if there is none."""
        # versions alone need no extra
        from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

        path, text, configuration = stores.join(self.root, CONFIGURATION), "", ModelServerConfig()
        try:
            text_format.Parse(text := stores.read_text(path), configuration)
            if not configuration.HasField("model_config_list"):
                raise ValueError("no model_config_list; remove the file to write a new one")
        except FileNotFoundError:
            pass
        except InputError:
            raise
        except (OSError, text_format.ParseError, ValueError) as error:
            raise rejection(path, "expected a ModelServerConfig", error) from error
        return configuration, text

    def _entry(self, configuration: Any) -> Any:
        """The entry of the model, which is added if there is none."""
        entries = configuration.model_config_list.config
        found = (entry for entry in entries if entry.name == self.model_name)
        return next(found, None) or entries.add(name=self.model_name)


def _own(entry: Any) -> dict[str, int]:
    """The labels of an entry of `models.config` that releases set."""
    return {x: y for x, y in entry.version_labels.items() if x in _OWN}


def _current(entry: Any, versions: Collection[int]) -> int:
    """The version that a server uses by default; it may not be there, and is -1 if none is."""
    pinned = {*versions} & {*entry.model_version_policy.specific.versions}
    return int(entry.version_labels.get(STABLE, max(pinned or versions, default=-1)))


def _serve(entry: Any, before: set[int], versions: set[int]) -> None:
    """Changes the policy of an entry so that versions with a label are served, others as before.

    Args:
        entry: The entry.
        before: Versions that had a label of releases.
        versions: All versions.
    """
    policy, named = entry.model_version_policy, {*entry.version_labels.values()}
    if policy.HasField("specific"):
        pinned = {*policy.specific.versions} & versions - before
        policy.specific.versions[:] = sorted(named | pinned) or [max(versions)]
    elif policy.latest.num_versions > 1:
        newer = sum(x >= min(named, default=max(versions)) for x in versions)
        policy.latest.num_versions = max(policy.latest.num_versions, newer)
    elif named and not policy.HasField("all"):
        policy.specific.versions[:] = sorted(named)
