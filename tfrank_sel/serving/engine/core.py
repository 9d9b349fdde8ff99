"""Core of both protocols: the served models, and access to them by name, version and label."""

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import refusal
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.engine.interleaving import Interleaving
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.versions import (
    Load,
    ModelVersions,
    Rounds,
    State,
    VersionStatus,
    find,
    unknown_servable,
)
from tfrank_sel.serving.monitoring import Metrics, Observation
from tfrank_sel.serving.options import Limits, PollingOptions
from tfrank_sel.serving.status import Code, ServingError, invalid

_log = logging.getLogger(__name__)

# maximum seconds that a version that is loading delays a change of the configuration, and the end
_PATIENCE = 1.0
_STOP_SECONDS = 2.0
_STORE_SECONDS = 10.0  # in which a store of a new model must answer
_RETIRED = 10  # models that are no longer served and whose states are kept


class ServerCore:
    """Serves models and follows their folders.

    Args:
        models: The models; names must differ.
        interleaving: Model and versions whose rankings are mixed, or None.
        load: Function that loads a version from its folder and number.
        limits: Limits on warm-up requests, where they are above the defaults.
        **following: Fields of `PollingOptions`.

    Raises:
        ValueError: If two models have the same name.
    """

    def __init__(
        self,
        models: Sequence[ModelConfig],
        *,
        interleaving: Interleaving | None = None,
        load: Load = Model,
        limits: Limits = Limits(),  # noqa: B008
        **following: Any,
    ) -> None:
        self._configs, self._given = list(models), list(models)
        if len({config.name for config in models}) < len(models):
            raise refusal("The names of models must differ", [config.name for config in models])
        self._models: Mapping[str, ModelVersions] = {}
        # of models that answer from an earlier folder, until this one has a version
        self._waiting: dict[str, ModelVersions] = {}
        self._retired: list[ModelVersions] = []
        self._following = PollingOptions(**following)
        self._interleaving = interleaving
        self._load, self._limits = load, limits
        self._metrics = Metrics()
        if interleaving is not None:
            interleaving.on_lost = functools.partial(
                self._metrics.lost.add, interleaving.model, "fail"
            )
        self._changing = threading.Lock()  # held while the configuration is replaced
        self._stopped = threading.Event()
        self._config_rounds = Rounds()
        # The running checks of folders.
        self._checks: dict[ModelVersions, threading.Thread] = {}
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("versions", self._poll), ("configuration", self._follow))
        ]

    def start(self) -> None:
        """Loads every model, then follows the folders and the configuration in threads.

        Raises:
            ServingError: If a model has no version that loads.
        """
        try:
            self._apply(self._configs)
            self._check_available(self._configs)
            if self._interleaving:
                self._interleaving.check(self._models[self._interleaving.model])
        except ServingError:
            self._close_models()
            raise
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """Stops following the folders and releases the models.

        Returns:
            Whether all has ended. A version that is loading cannot be stopped: after two seconds,
            its thread is left to the end of the process.
        """
        self._stopped.set()
        due = time.monotonic() + _STOP_SECONDS
        threads = [*self._threads, *self._checks.values()]
        for thread in threads:
            thread.join(max(0.0, due - time.monotonic()))
        self._close_models()
        return not any(thread.is_alive() for thread in threads)

    def request(self, configs: Sequence[ModelConfig]) -> None:
        """Replaces the served models as `reload`, as a client asks for it.

        Args:
            configs: The models, in folders of this machine, or in stores that the configuration of
                the server names.

        Raises:
            ServingError: INVALID_ARGUMENT for another store, or as `reload`.
        """
        stores = {_store(config) for config in (*self._given, *self._configs)} - {""}
        for config in configs:
            if _store(config) not in {"", *stores}:
                raise invalid(
                    f"base_path of model {config.name} must be a local folder, or in a store that "
                    f"the server is configured with: {', '.join(sorted(stores)) or 'none'}",
                    config.base_path,
                )
        self.reload(configs)

    def reload(self, configs: Sequence[ModelConfig]) -> None:
        """Replaces the served models: loads the new ones, then releases the others.

        Args:
            configs: The models. A model with the same folder as before keeps its loaded versions;
                one with a new folder keeps its old folder until the new one has a version.

        Raises:
            ServingError: INVALID_ARGUMENT for another platform than TensorFlow,
                FAILED_PRECONDITION for a label of a version that is not served, UNAVAILABLE for a
                new folder in a store that does not answer, before anything changes; UNKNOWN if a
                model has no version that loads: its folder is followed like those of the others.
        """
        self._ask_stores(configs)
        self._apply(configs)
        self._check_available(configs)

    def _apply(self, configs: Sequence[ModelConfig]) -> None:
        """Replaces the served models, all or none."""
        with self._changing:
            # All are checked first: a refused configuration changes no model.
            for config in configs:
                self._check(config)
            before = [*self._models.values(), *self._waiting.values()]
            models, waiting, kept = {}, {}, []
            for config in configs:
                old, model = self._models.get(config.name), self._following_of(config)
                if model is None:
                    model = ModelVersions(config, self._load, self._metrics, self._limits)
                    model.poll()  # before it replaces the old one, which answers meanwhile
                else:
                    model.config = config
                    kept.append(model)
                models[config.name] = model
                if old and old.is_available() and not model.is_available():
                    models[config.name], waiting[config.name] = old, model
            # One assignment, so that requests read it without a lock.
            self._models, self._waiting = models, waiting
            for model in before:
                if model not in (*models.values(), *waiting.values()):
                    self._retire(model)
        for model in kept:  # another change of the configuration does not wait for these versions
            model.poll(_PATIENCE)
            self._take_over(model)

    def _take_over(self, model: ModelVersions) -> None:
        """Replaces the folder of a model by a new one once that has a version."""
        name = model.config.name
        if self._waiting.get(name) is not model:  # the others do not wait for a change
            return
        with self._changing:
            if self._waiting.get(name) is model and model.is_available():
                old = self._models[name]
                self._models = {**self._models, name: model}
                self._waiting = {x: y for x, y in self._waiting.items() if y is not model}
                self._retire(old)

    def _following_of(self, config: ModelConfig) -> ModelVersions | None:
        """The model that follows the folder of a configuration already, with its failures."""
        models = (x.get(config.name) for x in (self._waiting, self._models))
        same = (x for x in models if x and x.config.base_path == config.base_path)
        return next(same, None)

    def _check_available(self, configs: Sequence[ModelConfig]) -> None:
        missing = [x for x in map(self._following_of, configs) if x and not x.is_available()]
        if missing:
            reasons = ", ".join(f"{{Name: {x.config.name} {x.reason()}}}" for x in missing)
            raise ServingError(
                Code.UNKNOWN, f"{len(missing)} model(s) did not become available: {{{reasons}}}"
            )

    def _retire(self, model: ModelVersions) -> None:
        model.close()
        self._retired.append(model)
        del self._retired[:-_RETIRED]

    def observe(
        self, api: str, entrypoint: str, name: str = ""
    ) -> contextlib.AbstractContextManager[Observation]:
        """Counts a request and measures its latency, as `Metrics.request`.

        Args:
            api: Method, such as "Predict".
            entrypoint: "GRPC" or "REST".
            name: Name of the requested model, if it is already known.
        """
        return self._metrics.request(api, entrypoint, self.served_name(name))

    def served_name(self, name: str) -> str:
        """Returns the name of a served model, or an empty string for any other."""
        return name if name in self._models else ""

    def metrics(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        return self._metrics.text()

    @contextlib.contextmanager
    def acquire(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[Model]:
        """Holds a version of a model while a request runs.

        Args:
            name: Name of the model.
            version: Its version, or None for the largest one served, or the interleaved ones.
            label: Label of a version, instead of `version`.

        Raises:
            ServingError: NOT_FOUND if it is not served, INVALID_ARGUMENT if the name is empty or
                the label unknown.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        versions = self._models.get(name)
        # Looked up at each request: moving a label loads nothing.
        if label is not None:
            version = versions.config.labels.get(label) if versions else None
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
        if versions is None:
            raise unknown_servable(name, version)
        mixed = self._interleaving
        if mixed is not None and (mixed.model != name or version is not None):
            mixed = None
        with mixed.acquire(versions) if mixed else versions.acquire(version) as model:
            if model is None:
                raise unknown_servable(name, version)
            yield model

    def names(self) -> list[str]:
        """Returns the names of the served models."""
        return list(self._models)

    def unavailable(self) -> list[str]:
        """Returns the names of the models that have no version to answer with."""
        return [name for name, model in self._models.items() if not model.is_available()]

    def statuses(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """Returns the status of a version, or of all versions of a model, latest first.

        Raises:
            ServingError: NOT_FOUND if there is none.
        """
        models = [x for x in (self._models.get(name), self._waiting.get(name)) if x]
        models = models or [x for x in self._retired if x.config.name == name]
        found = [status for model in models for status in model.statuses()]
        # of equal numbers, the one that answers
        by_version = {x.version: x for x in sorted(found, key=lambda x: x.state == State.AVAILABLE)}
        statuses = [by_version[x] for x in sorted(by_version, reverse=True)]
        if version is not None:
            statuses = [status for status in statuses if status.version == version]
        if not statuses:
            what = "any versions" if version is None else f"version {version}"
            raise ServingError(Code.NOT_FOUND, f"Could not find {what} of model {name}")
        return statuses

    def _ask_stores(self, configs: Sequence[ModelConfig]) -> None:
        """Looks for new folders in stores, while no other change of the configuration waits."""
        served = {model.config.base_path for model in self._models.values()}
        new = {x.base_path for x in configs if isinstance(x.base_path, str)} - served
        # In threads, since a client of a store may wait for minutes and cannot be stopped.
        threads = {url: threading.Thread(target=_look, args=[url], daemon=True) for url in new}
        due = time.monotonic() + _STORE_SECONDS
        for thread in threads.values():
            thread.start()
        for url, thread in threads.items():
            thread.join(max(0.0, due - time.monotonic()))
            if thread.is_alive():
                message = f"{url} must answer in {_STORE_SECONDS:.3g} seconds"
                raise ServingError(Code.UNAVAILABLE, message)

    def _check(self, config: ModelConfig) -> None:
        model = self._models.get(config.name)
        if model and model.config.platform != config.platform:
            raise invalid(
                f"Illegal to change a model's platform. For model {config.name} platform was "
                f"{model.config.platform} and new platform requested is {config.platform}",
            )
        model_config.check_platform(config)
        before = model.config.labels if model else {}
        for label, version in config.labels.items():
            is_new = self._following.allow_labels_for_unavailable and label not in before
            if is_new or before.get(label) == version:
                continue
            if model is None or not model.is_available(version):
                raise ServingError(
                    Code.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {config.name}, which "
                    "is not currently available for inference",
                )

    def _poll(self) -> None:
        """Checks each folder in a thread of its own, since a slow store would delay the others."""
        while not self._stopped.wait(self._following.poll_seconds):
            checks = {model: thread for model, thread in self._checks.items() if thread.is_alive()}
            for model in (*self._models.values(), *self._waiting.values()):
                if model not in checks:
                    checks[model] = threading.Thread(
                        target=self._poll_one, args=[model], daemon=True
                    )
                    checks[model].start()
            self._checks = checks

    def _poll_one(self, model: ModelVersions) -> None:
        model.poll()
        if model.fault:
            self._metrics.rounds.add(model.config.name, "fail")
        self._take_over(model)

    def _follow(self) -> None:
        file, seconds = self._following.config_file, self._following.config_poll_seconds
        while file and seconds and not self._stopped.wait(seconds):
            self._read_again(file)

    def _read_again(self, path: StrPath) -> None:
        with self._config_rounds.attempt(f"cannot serve what {path} says"):
            configs = model_config.read(path)
            is_new = configs != self._configs
            if is_new:
                self._ask_stores(configs)
                self._apply(configs)
                self._configs = configs  # a refused configuration is tried again
            self._check_available(configs)
            if is_new or self._config_rounds.fault:
                _log.info("serving what %s says", path)
        if self._config_rounds.fault:
            self._metrics.rounds.add(os.fspath(path), "fail")

    def _close_models(self) -> None:
        for model in (*self._models.values(), *self._waiting.values()):
            model.close()


def _store(config: ModelConfig) -> str:
    """The store of a folder, such as `s3://bucket`; empty for one on this machine."""
    base_path = config.base_path
    return "/".join(base_path.split("/", 3)[:3]) if isinstance(base_path, str) else ""


def _look(base_path: str) -> None:
    with contextlib.suppress(Exception):  # which the first check of the folder tells
        find(base_path)
