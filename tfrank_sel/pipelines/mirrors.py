"""Runs in object stores: a folder on this machine to work in, and the store it is kept equal to.

A store renames nothing. A step is sent file by file, its manifest last, and is there when its
manifest is; what was there before is removed first, its manifest before all else.
"""

import contextlib
import dataclasses
import hashlib
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from tfrank_sel.data import leases, stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.pipelines import folders
from tfrank_sel.pipelines.manifests import STEPS

_OFTEN = 1.0  # seconds between two times that a training is sent
_OF_OTHERS = (f"{leases.FOLDER}/", "serving/", ".scratch-")  # which are of no step
_THERE = ("ingest/records/", "ingest/earlier/")  # what is in the store alone
_BESIDE = (folders.CONFIGURATION, "report.html", "tracking.json")  # files beside the steps


@dataclasses.dataclass(frozen=True)
class Mirror:
    """The folder of a run, and where it is kept.

    Args:
        path: The folder on this machine.
        url: URL of the run in a store; None if the folder is the run.
    """

    path: Path
    url: str | None = None

    @classmethod
    def of(cls, output: str | Path) -> Self:
        """Returns that of a run; the folder of one in a store is in the cache of this machine."""
        if not stores.is_remote(output):
            return cls(Path(output).absolute())
        url = str(output).rstrip("/")
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return cls(stores.cache() / "runs" / name / url.rpartition("/")[2], url)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds the run for this process alone, and brings the folder up to date.

        Raises:
            tfrank_sel.data.InputError: If another process holds the run, the store cannot be
                reached, or what is there is no run.
        """
        with contextlib.ExitStack() as stack:
            if self.url is not None:
                stack.enter_context(_leased(self.url))
            stack.enter_context(folders.only_here(self.path))
            self.pull()
            yield

    def pull(self) -> None:
        """Brings the folder up to date with the store.

        A step that the store lacks stays if the folder has it whole: it was not sent in time. Not
        so `ingest`, whose records are in the store alone.
        """
        if self.url is None:
            return
        found = self._found()
        if found and folders.CONFIGURATION not in found:
            reason = "the output folder must be new, empty, or hold a run"
            raise InputError(self.url, f"{reason}. Received: a folder of something else")
        for name in _BESIDE:
            if name in found:
                self._get([name])
        for step in STEPS:
            manifest = f"{step}/{folders.MANIFEST}"
            mine, theirs = self.path / manifest, found.get(manifest)
            if theirs and not (mine.is_file() and mine.read_bytes() == self._read(manifest)):
                names = [x for x in found if x.startswith(f"{step}/") and not x.startswith(_THERE)]
                self._replace(step, names)
            if not theirs and step == "ingest":
                shutil.rmtree(self.path / step, ignore_errors=True)
            partial = f".{step}.partial"
            if f"{partial}/{folders.KEY}" in found:
                self._replace(partial, [x for x in found if x.startswith(f"{partial}/")])

    def send(self, step: str) -> None:
        """Sends a step as it is in the folder, unless the store has it; its manifest is there last.

        Raises:
            tfrank_sel.data.InputError: If the store cannot be reached.
        """
        if self.url is None:
            return
        manifest = f"{step}/{folders.MANIFEST}"
        mine = (self.path / manifest).read_bytes()
        if stores.is_file(stores.join(self.url, manifest)) and self._read(manifest) == mine:
            return
        self.send_beside()
        self.drop(step, but=_THERE)
        self._put(step)
        self.drop(f".{step}.partial")

    def sender(self, step: str, folder: str) -> Callable[[], None] | None:
        """Returns what sends a folder of a step that is not done, unless it has just been sent."""
        if self.url is None:
            return None
        sent = -math.inf

        def send() -> None:
            nonlocal sent
            if time.monotonic() > sent + _OFTEN:
                if sent < 0.0:
                    self.send_beside()
                    self._put(f".{step}.partial/{folders.KEY}")
                self._put(f".{step}.partial/{folder}")
                sent = time.monotonic()

        return send

    def send_beside(self) -> None:
        """Sends the files beside the steps."""
        for name in _BESIDE:
            if self.url is not None and (self.path / name).is_file():
                self._put(name)

    def drop(self, step: str, but: tuple[str, ...] = ()) -> None:
        """Removes a step from the store, its manifest first.

        Args:
            step: The step.
            but: Folders that are kept.
        """
        if self.url is not None:
            found = (name for name in self._found() if name.startswith(f"{step}/"))
            names = [name for name in found if not name.startswith(but)]
            for name in sorted(names, key=lambda name: not name.endswith(f"/{folders.MANIFEST}")):
                stores.remove(stores.join(self.url, name))

    def _found(self) -> dict[str, str]:
        """The files of the run in the store, by their names."""
        assert self.url is not None
        names = ((x.removeprefix(f"{self.url}/"), x) for x in stores.find(self.url))
        return {name: x for name, x in names if not name.startswith(_OF_OTHERS)}

    def _read(self, name: str) -> bytes:
        assert self.url is not None
        with stores.opened(stores.join(self.url, name)) as file:
            return bytes(file.read())

    def _get(self, names: Sequence[str], place: Path | None = None) -> None:
        assert self.url is not None
        copies = [(place or self.path) / name for name in names]
        for copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
        with stores.reached(self.url) as (store, path):
            store.get([f"{path}/{name}" for name in names], list(map(str, copies)))

    def _replace(self, folder: str, names: Sequence[str]) -> None:
        """Replaces a folder on this machine by that of the store."""
        aside = self.path / ".pulled"
        shutil.rmtree(aside, ignore_errors=True)
        self._get(names, aside)
        shutil.rmtree(self.path / folder, ignore_errors=True)
        (aside / folder).rename(self.path / folder)
        shutil.rmtree(aside)

    def _put(self, name: str) -> None:
        """Sends a file, or the files of a folder, its manifest last."""
        assert self.url is not None
        place = self.path / name
        found = [place] if place.is_file() else [x for x in place.rglob("*") if x.is_file()]
        last = [x for x in found if x == place / folders.MANIFEST]
        with stores.reached(self.url) as (store, path):
            for paths in ([x for x in found if x not in last], last):
                if paths:
                    to = [f"{path}/{x.relative_to(self.path).as_posix()}" for x in paths]
                    store.put(list(map(str, paths)), to)


@contextlib.contextmanager
def _leased(url: str) -> Iterator[None]:
    try:
        with leases.held(url):
            yield
    except (FileExistsError, leases.LeaseError) as error:
        reason = "one process at a time can work on a run"
        raise InputError(url, f"{reason}. Received: {error}") from error


def near(run: str | Path) -> Path:
    """Returns the folder of a run on this machine: of one in a store, a copy as it is now."""
    if not stores.is_remote(run):
        return Path(run)
    mirror = Mirror.of(run)
    with folders.only_here(mirror.path):
        mirror.pull()
    return mirror.path
