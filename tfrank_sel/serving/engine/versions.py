"""Versions of a model: found, loaded, served, and unloaded without a failed request."""

import contextlib
import dataclasses
import enum
import logging
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from tfrank_sel import artefacts, export
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError
from tfrank_sel.errors import received
from tfrank_sel.export.releases import KIND
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.predict import warm_up
from tfrank_sel.serving.monitoring import Metrics
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.status import Code, ServingError

_log = logging.getLogger(__name__)

Load = Callable[[pathlib.Path, int], Model]

_ENDED = 10  # versions that are no longer served and whose state is kept


class State(enum.IntEnum):
    """State of a version, with TensorFlow Serving's numbers."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """State of a version, and the error that caused it, if any."""

    version: int
    state: State
    code: Code = Code.OK
    message: str = ""


def load_version(
    path: pathlib.Path,
    version: int,
    load: Load = Model,
    limits: Limits = Limits(),  # noqa: B008
) -> Model:
    """Loads a version as a server does: checks its files, and answers its warm-up requests.

    Args:
        path: Its folder, on this machine.
        version: Its number.
        load: Function that loads it.
        limits: Limits on warm-up requests, where they are above the defaults.

    Raises:
        Exception: Of various types, if the version cannot be served.
    """
    artefacts.check(path, KIND)
    model = load(path, version)
    try:
        warm_up(model, path, limits)
    except Exception:
        model.close()
        raise
    return model


def find(base_path: pathlib.Path | str) -> Mapping[int, pathlib.Path | str]:
    """Returns the versions in a folder: the children whose names are integers below 2**63.

    Args:
        base_path: The folder, or its URL in a store, where a version holds `saved_model.pb`.

    Raises:
        OSError: If the folder cannot be read.
        tfrank_sel.data.InputError: If the store cannot be reached or refuses.
    """
    if isinstance(base_path, pathlib.Path):
        os.scandir(base_path).close()  # unlike an empty folder, an unreadable folder is an error
    return export.versions(base_path)


class Rounds:
    """Rounds of work that is done again and again, such as the checks of a folder.

    What one round raises does not end the next.

    Attributes:
        fault: What the last round failed with; empty if it did not.
    """

    def __init__(self) -> None:
        self.fault = ""

    @contextlib.contextmanager
    def attempt(self, failure: str) -> Iterator[None]:
        """Does one round. Any exception ends this round only, and is logged once until it changes.

        Args:
            failure: What failed, if the exception does not say it.
        """
        try:
            yield
        except ServingError as error:
            fault = str(error)
        except InputError as error:
            fault = f"{failure}: {error.reason}"
        except OSError as error:
            fault = f"{failure}: {error}"
        except Exception as error:  # of a store's client, for example, any kind
            fault = f"{failure}: {type(error).__name__}: {error}"
        else:
            fault = ""
        if fault and fault != self.fault:
            _log.warning("%s", fault)
        self.fault = fault


class ModelVersions:
    """Keeps the versions loaded that the policy of a model selects.

    A new version is loaded before an old one is released. If it does not load, the old version
    stays. A released version is freed when its last request has ended.

    Args:
        config: The model to serve.
        load: Function that loads a version from its folder and number.
        metrics: Metrics that count its loads, if any.
        limits: Limits on warm-up requests, where they are above the defaults.
    """

    def __init__(
        self,
        config: ModelConfig,
        load: Load = Model,
        metrics: Metrics | None = None,
        limits: Limits = Limits(),  # noqa: B008
    ) -> None:
        self.config = config
        self._load_model, self._metrics, self._limits = load, metrics or Metrics(), limits
        self._lock = threading.Lock()
        self._polling = threading.Lock()
        self._is_closed = False
        self._loaded: dict[int, _Handle] = {}
        self._places: dict[int, str] = {}  # paths or URLs of all versions with a state
        self._failures: dict[int, _Failure] = {}
        self._statuses: dict[int, VersionStatus] = {}
        self._rounds = Rounds()

    @property
    def fault(self) -> str:
        """What the last check of the folder failed with; empty if it did not."""
        return self._rounds.fault

    def poll(self, patience: float = 0.0) -> None:
        """Checks the folder once, and loads and releases versions accordingly.

        A folder that cannot be read changes nothing; a folder without versions unloads all. A new
        version in a store is copied to this machine while it loads.

        Args:
            patience: Maximum seconds to wait for another thread that checks the folder. After
                that, the other thread does the work at its next check.
        """
        # Two checks at a time would load a version twice.
        if self._polling.acquire(timeout=patience):
            try:
                with self._rounds.attempt(f"cannot read {self.config.base_path}"):
                    self._poll()
            finally:
                self._polling.release()

    def _poll(self) -> None:
        if self._is_closed:  # by a change of the configuration, while this check was under way
            return
        folders = find(self.config.base_path)
        aspired = self.config.policy.aspired_versions(folders)
        new = [version for version in aspired if version not in self._loaded]
        with contextlib.ExitStack() as copies:
            # Before anything changes: a store that fails half-way leaves the served versions.
            near = {
                version: pathlib.Path(copies.enter_context(stores.local_copy(folders[version])))
                for version in new
                if self._is_due(version)
            }
            # What is no longer asked for is not tried again, and its error stays in the status.
            for version in set(self._failures) - set(aspired):
                del self._failures[version]
                self._set(dataclasses.replace(self._statuses[version], state=State.END))
            for version, path in near.items():
                self._places[version] = str(folders[version])
                self._load(version, path)
        # Old versions go when a new one answers, so that a request always finds one. An empty
        # folder asks for none, as in TensorFlow Serving.
        if not aspired or any(version in self._loaded for version in aspired):
            for version in sorted(set(self._loaded) - set(aspired)):
                self._unload(version)
        for version in new:
            if version in self._loaded:
                _log.info("serving version %d of %s", version, self.config.name)
        self._forget()
        if missing := model_config.missing_versions(self.config.policy, folders):
            expected = f"{self.config.name}: the versions of its policy must be there"
            raise ServingError(Code.NOT_FOUND, received(expected, f"without {missing}"))

    @contextlib.contextmanager
    def acquire(self, version: int | None) -> Iterator[Model | None]:
        """Holds a version in memory; yields None if it is not served.

        Args:
            version: The version, or None for the largest one served.
        """
        with self._lock:
            # Found and counted under one lock: `_unload` cannot free it in between.
            if version is None:
                version = max(self._loaded, default=-1)
            handle = self._loaded.get(version)
            if handle is not None:
                handle.holders += 1
        try:
            yield handle.model if handle else None
        finally:
            if handle is not None:
                self._release(handle)

    def is_available(self, version: int | None = None) -> bool:
        """Tells whether a version is served, or any at all."""
        with self._lock:
            return bool(self._loaded) if version is None else version in self._loaded

    def reason(self) -> str:
        """Returns the reason why no version is served."""
        statuses = self.statuses()
        if statuses and statuses[0].message:
            return statuses[0].message
        return self.fault or received(
            f"{self.config.base_path} must hold a version: a folder whose name is an integer",
            "none",
        )

    def statuses(self) -> list[VersionStatus]:
        """Returns the status of every version found so far, latest first."""
        with self._lock:
            return [self._statuses[version] for version in sorted(self._statuses, reverse=True)]

    def close(self) -> None:
        """Releases every version."""
        with self._lock:
            self._is_closed = True
        for version in list(self._loaded):
            self._unload(version)

    def _is_due(self, version: int) -> bool:
        failure, most = self._failures.get(version, _Failure()), self.config.max_load_retries
        return failure.tries <= most and time.monotonic() >= failure.next_try

    def _load(self, version: int, path: pathlib.Path) -> None:
        failure = self._failures.setdefault(version, _Failure())
        url = self._places[version]
        self._set(VersionStatus(version, State.LOADING))
        try:
            handle = _Handle(load_version(path, version, self._load_model, self._limits))
            self._metrics.loads.add(url, "success")
        # No error of a broken folder may end the polling, or affect other versions.
        except Exception as error:
            self._metrics.loads.add(url, "fail")
            failure.tries += 1
            failure.next_try = time.monotonic() + self.config.load_retry_seconds
            code = error.code if isinstance(error, ServingError) else Code.UNKNOWN
            if isinstance(error, tf.errors.OpError):
                code = Code(error.error_code)
            gave_up = failure.tries > self.config.max_load_retries
            state = State.END if gave_up else State.LOADING
            reason = " ".join(str(error).split()).replace(str(path), url)
            message = f"{url} does not load: {reason}"
            self._set(VersionStatus(version, state, code, message))
            _log.warning("%s", message)
            return
        del self._failures[version]
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._loaded[version] = handle
            state = State.END if is_closed else State.AVAILABLE
            self._statuses[version] = VersionStatus(version, state)
        if is_closed:  # the model was released while this version was loading
            handle.model.close()

    def _forget(self) -> None:
        """Forgets the versions that are no longer served, but for the latest of them."""
        with self._lock:
            ended = [x for x in sorted(self._statuses) if self._statuses[x].state == State.END]
            for version in ended[:-_ENDED]:
                if version not in self._failures:
                    del self._statuses[version]
                    self._places.pop(version, None)

    def _unload(self, version: int) -> None:
        with self._lock:
            handle = self._loaded.pop(version)
            self._statuses[version] = VersionStatus(version, State.UNLOADING)
        self._release(handle)

    def _release(self, handle: "_Handle") -> None:
        with self._lock:
            handle.holders -= 1
            if handle.holders:
                return
        # Without the lock, since it takes long and requests of other versions need the lock.
        handle.model.close()
        version = handle.model.version
        with self._lock:
            # A version that was removed and added again may already be served again.
            if version not in self._loaded:
                self._statuses[version] = VersionStatus(version, State.END)

    def _set(self, status: VersionStatus) -> None:
        with self._lock:
            self._statuses[status.version] = status


@dataclasses.dataclass
class _Handle:
    """A loaded model and its reference count: running requests, and the list of served models."""

    model: Model
    holders: int = 1


@dataclasses.dataclass
class _Failure:
    """Number of failed loads of a version, and the time of the next try."""

    tries: int = 0
    next_try: float = 0.0


def unknown_servable(name: str, version: int | None) -> ServingError:
    """Returns the error of a request for a version that is not served."""
    asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return ServingError(Code.NOT_FOUND, f"Servable not found for request: {asked}")
