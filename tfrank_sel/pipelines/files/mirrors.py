"""Runs in object stores: a local working folder, synchronised with a store.

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
from tfrank_sel.data.rejections import rejection
from tfrank_sel.pipelines.files import folders

_OFTEN = 1.0  # seconds between two times that a training is sent
_OF_OTHERS = (f"{leases.FOLDER}/", "serving/", ".scratch-")  # which are of no step
# Files of a run that belong to no step.
_OUTSIDE = (folders.CONFIGURATION, "report.html", "tracking.json")


@dataclasses.dataclass(frozen=True)
class Mirror:
    """The local folder of a run, and its place in a store.

    Args:
        path: The folder on this machine.
        url: URL of the run in a store; empty if the folder is the run.
    """

    path: Path
    url: str = ""

    @classmethod
    def of(cls, output: str | Path) -> Self:
        """Returns that of a run; the folder of one in a store is in the cache of this machine."""
        if not stores.is_remote(output):
            return cls(Path(output).absolute())
        url = str(output).rstrip("/")
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return cls(stores.cache() / "runs" / name / url.rpartition("/")[2], url)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Holds the run for this process alone, and brings the folder up to date.

        Raises:
            tfrank_sel.data.InputError: If another process holds the run, the store cannot be
                reached, or what is there is no run.
        """
        with contextlib.ExitStack() as stack:
            if self.url:
                stack.enter_context(_lease(self.url))
            stack.enter_context(folders.only_here(self.path))
            self.pull()
            yield

    def pull(self) -> None:
        """Brings the folder up to date with the store.

        A step that the store lacks stays if the folder has it whole: it was not sent in time. Not
        so `ingest`, whose records are in the store alone.
        """
        if not self.url:
            return
        stored = self._remote_files()
        if stored and folders.CONFIGURATION not in stored:
            reason = "the output folder must be new, empty, or contain a run"
            raise rejection(self.url, reason, "a folder with other contents")
        if outside := [name for name in _OUTSIDE if name in stored]:
            stores.fetch(self.url, outside, self.path)
        for step in folders.RECORDS:
            if f"{step}/{folders.MANIFEST}" not in stored:
                shutil.rmtree(self.path / step, ignore_errors=True)
        for name in sorted(stored):
            step, _, file = name.partition("/")
            if file == folders.MANIFEST:
                mine = self.path / name
                if not (
                    mine.is_file() and mine.read_text(encoding="utf-8") == self._manifest(step)
                ):
                    apart = tuple(f"{step}/{x}/" for x in folders.RECORDS.get(step, ()))
                    names = [x for x in stored if x.startswith(f"{step}/")]
                    self._replace(step, [x for x in names if not x.startswith(apart)])
            elif file == folders.KEY:
                # The key belongs to a step that did not finish.
                self._replace(step, [x for x in stored if x.startswith(f"{step}/")])

    def send(self, step: str) -> None:
        """Sends a step as it is in the folder, unless the store has it; its manifest is there last.

        Raises:
            tfrank_sel.data.InputError: If the store cannot be reached.
        """
        if not self.url:
            return
        url, mine = stores.join(self.url, step), self.path / step
        manifest = (mine / folders.MANIFEST).read_text(encoding="utf-8")
        is_there = stores.is_file(stores.join(url, folders.MANIFEST))
        if is_there and self._manifest(step) == manifest:
            return
        self.send_beside()
        kept = [f"{name}/" for name in folders.RECORDS.get(step, ())]
        stores.send(mine, url, folders.MANIFEST, kept)
        self.drop(f".{step}.partial")

    def sender(self, step: str, folder: str) -> Callable[[], None] | None:
        """Returns a function that sends the folder of an unfinished step at intervals."""
        if not self.url:
            return None
        partial = f".{step}.partial"
        here, remote = self.path / partial, stores.join(self.url, partial)
        sent = -math.inf

        def send() -> None:
            nonlocal sent
            if time.monotonic() > sent + _OFTEN:
                if sent < 0.0:
                    self.send_beside()
                    stores.copy(here / folders.KEY, stores.join(remote, folders.KEY))
                folders.link(here / folder, stores.join(remote, folder))
                sent = time.monotonic()

        return send

    def send_beside(self) -> None:
        """Sends the files outside the steps."""
        for name in _OUTSIDE:
            if self.url and (self.path / name).is_file():
                stores.copy(self.path / name, stores.join(self.url, name))

    def drop(self, step: str) -> None:
        """Removes a step from the store, its manifest first."""
        if self.url:
            stores.drop(stores.join(self.url, step), folders.MANIFEST)

    def _remote_files(self) -> dict[str, str]:
        """The files of the run in the store, by their names."""
        names = ((x.removeprefix(f"{self.url}/"), x) for x in stores.find(self.url))
        return {name: x for name, x in names if not name.startswith(_OF_OTHERS)}

    def _manifest(self, step: str) -> str:
        return stores.read_text(stores.join(self.url, step, folders.MANIFEST))

    def _replace(self, folder: str, names: Sequence[str]) -> None:
        """Replaces a folder on this machine by that of the store."""
        aside = self.path / ".pulled"
        shutil.rmtree(aside, ignore_errors=True)
        stores.fetch(self.url, names, aside)
        shutil.rmtree(self.path / folder, ignore_errors=True)
        (aside / folder).rename(self.path / folder)
        shutil.rmtree(aside)


@contextlib.contextmanager
def _lease(url: str) -> Iterator[None]:
    try:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(leases.hold(url))
            except FileExistsError as error:  # those of the body are of other files
                raise leases.LeaseError(f"{error}") from error
            yield
    except leases.LeaseError as error:
        raise rejection(url, "one process at a time can work on a run", error) from error


def near(run: str | Path) -> Path:
    """Returns the folder of a run on this machine: of one in a store, a copy as it is now."""
    if not stores.is_remote(run):
        return Path(run)
    mirror = Mirror.of(run)
    with folders.only_here(mirror.path):
        mirror.pull()
    return mirror.path
