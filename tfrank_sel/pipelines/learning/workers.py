"""Workers of a run: the processes that train its models together."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.distribution import CollectiveGroup, Group, SingleProcess
from tfrank_sel.distribution.groups import Cluster
from tfrank_sel.pipelines.configuration import Configuration


def cluster(configuration: Configuration) -> Cluster:
    """Returns the workers in `TF_CONFIG`; only this process if it is not set.

    Raises:
        ConfigurationError: If it is malformed, or its number of workers is not `training.workers`.
    """
    try:
        members = Cluster.of_environment()
    except ValueError as error:
        raise configuration.error("training.workers:", str(error)) from error
    count, named = configuration.training.workers, len(members.addresses)
    if named != count:
        raise configuration.error(
            "training.workers", f"must be the number of workers in TF_CONFIG, {named}", count
        )
    return members


def join(configuration: Configuration, output: str) -> Group:
    """Waits for all workers of a run, and returns their group.

    Args:
        configuration: The configuration of the run.
        output: Folder or URL of the run.

    Raises:
        ConfigurationError: As in `cluster`.
        tfrank_sel.data.InputError: If they cannot be reached, or TensorFlow ran something before.
    """
    if len(cluster(configuration).addresses) == 1:
        return SingleProcess()
    with watch_workers(output):
        try:
            return CollectiveGroup()
        except RuntimeError as error:
            raise rejection(
                output, "modules must not run TensorFlow before the workers join", error
            ) from error


@contextlib.contextmanager
def watch_workers(output: str) -> Iterator[None]:
    """Raises an `InputError` if the block fails because a worker was lost."""
    try:
        yield
    except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
        reason = "a worker ended or cannot be reached: start all again to continue training"
        raise InputError(output, f"{reason} after its last epoch") from error
