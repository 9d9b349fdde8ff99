"""Workers of a run: processes that train its models together."""

import contextlib
import itertools
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from tfrank_sel.data.lists import InputError
from tfrank_sel.distribution import Cluster, LostWorkerError, Workers, launch
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.console import Progress

ATTEMPTS = 4
SECONDS = 600.0  # seconds that a worker waits for the chief

Found = TypeVar("Found")


def cluster(configuration: Configuration) -> Cluster:
    """Returns the workers in `TF_CONFIG`; only this process if it is not set.

    Raises:
        ConfigurationError: If it is malformed, or its number of workers is not `training.workers`.
    """
    try:
        found = Cluster.of_environment()
    except ValueError as error:
        raise configuration.error("training.workers:", str(error)) from error
    count, named = configuration.training.workers, len(found.addresses)
    if named not in (1, count):
        wanted = f"must be the number of workers in TF_CONFIG, {named}"
        raise configuration.error("training.workers", f"{wanted}. Received: {count}")
    return found


def in_step(
    configuration: Configuration, output: str, progress: Progress, train: Callable[[Workers], Found]
) -> Found:
    """Calls a function with all workers of a run, and repeats the call if a worker is lost.

    Without `TF_CONFIG`, the other workers are processes of this machine.

    Args:
        configuration: The configuration of the run; this process is its chief.
        output: Folder or URL of the run.
        progress: Progress display.
        train: Function that trains with the workers. If called again, it resumes.

    Returns:
        The result of the function.

    Raises:
        tfrank_sel.data.InputError: If workers are lost repeatedly.
    """
    for number in itertools.count(1):
        try:
            with _workers(configuration, output) as found:
                return train(found)
        except LostWorkerError as error:
            if number == ATTEMPTS:
                reason = f"training failed {ATTEMPTS} times. Received: {error}"
                raise InputError(output, reason) from error
            progress.note(f"{error}; training continues from its last epoch")
    raise AssertionError  # for mypy, which does not know that `count` is infinite


def _workers(
    configuration: Configuration, output: str
) -> contextlib.AbstractContextManager[Workers]:
    known, count = cluster(configuration), configuration.training.workers
    if count == 1 or len(known.addresses) > 1:
        return known.join()
    command = "-m", "tfrank_sel.pipelines", "train", "--output", output
    return launch([sys.executable, *command], count)


def assist(
    cluster: Cluster, is_done: Callable[[], bool], train: Callable[[Workers], object]
) -> None:
    """Calls a function with all workers, in a worker that is not the chief.

    Args:
        cluster: The workers.
        is_done: Whether the chief has nothing left to train.
        train: Trains with the workers.

    Raises:
        tfrank_sel.data.InputError: If the chief does not start, or a worker is lost.
    """
    began = time.monotonic()

    def keep_waiting() -> None:
        if is_done() or time.monotonic() - began > SECONDS:
            raise LostWorkerError(f"the chief did not start training within {SECONDS:.0f} s")

    try:
        with cluster.join(keep_waiting) as found:
            train(found)
    except LostWorkerError as error:
        if is_done():
            return
        raise InputError(cluster.addresses[0], f"{error}. Start this worker again") from error
