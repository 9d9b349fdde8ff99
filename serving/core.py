"""What both protocols share: the models served, and how a request finds one."""

import contextlib
import threading
from collections.abc import Iterator, Sequence

from serving.model import LoadedModel
from serving.status import Code, ServingError
from serving.versions import ModelConfig, ModelVersions, State, VersionStatus, unknown_servable


class ServerCore:
    """Serves models and follows their folders.

    Args:
        models: The models; names must differ.
        poll_seconds: Time between two looks at the folders.

    Raises:
        ValueError: If two models have one name.
    """

    def __init__(self, models: Sequence[ModelConfig], *, poll_seconds: float = 1.0) -> None:
        self._models = {config.name: ModelVersions(config) for config in models}
        if len(self._models) < len(models):
            names = [config.name for config in models]
            raise ValueError(f"The names of models must differ. Received: {names}")
        self._poll_seconds = poll_seconds
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="versions", daemon=True)

    def start(self) -> None:
        """Loads every model, then follows the folders in a thread.

        Raises:
            ServingError: If a model has no version that loads.
        """
        for model in self._models.values():
            model.poll()
            statuses = model.statuses()
            if not any(status.state is State.AVAILABLE for status in statuses):
                self._close_models()
                raise ServingError(
                    Code.FAILED_PRECONDITION,
                    statuses[0].message
                    if statuses
                    else f"{model.config.base_path} must hold a version: a folder whose name is an "
                    "integer. Received: none",
                )
        self._poller.start()

    def stop(self) -> None:
        """Stops following the folders and lets the models go."""
        self._stopped.set()
        self._poller.join()
        self._close_models()

    @contextlib.contextmanager
    def acquire(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[LoadedModel]:
        """Holds a version of a model while a request runs.

        Args:
            name: Name of the model.
            version: Its version, or None for the largest one served.
            label: Label of a version, instead of `version`.

        Raises:
            ServingError: NOT_FOUND if it is not served, INVALID_ARGUMENT if the name is empty or
                the label unknown.
        """
        if not name:
            raise ServingError(Code.INVALID_ARGUMENT, "ModelSpec has no name specified.")
        if label is not None:
            raise ServingError(
                Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}"
            )
        if name not in self._models:
            raise unknown_servable(name, version)
        with self._models[name].acquire(version) as model:
            if model is None:
                raise unknown_servable(name, version)
            yield model

    def statuses(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """Returns the status of a version, or of all versions of a model, latest first.

        Raises:
            ServingError: NOT_FOUND if there is none.
        """
        model = self._models.get(name)
        statuses = model.statuses() if model else []
        if version is not None:
            statuses = [status for status in statuses if status.version == version]
        if not statuses:
            what = "any versions" if version is None else f"version {version}"
            raise ServingError(Code.NOT_FOUND, f"Could not find {what} of model {name}")
        return statuses

    def _poll(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            for model in self._models.values():
                model.poll()

    def _close_models(self) -> None:
        for model in self._models.values():
            model.close()
