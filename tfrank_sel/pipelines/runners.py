"""Beam runners and options of a run."""

import socket
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions

from tfrank_sel.pipelines.configuration import Configuration, ConfigurationError

MANY = 5_000  # lists
RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner", "PortableRunner")


def pipeline_options(
    runner: str = "DirectRunner", arguments: Sequence[str] = ()
) -> PipelineOptions:
    """Returns the options of every Beam pipeline of a run.

    Args:
        runner: One of `RUNNERS`; the suffix `Runner` is optional. PortableRunner requires the
            argument `--job_endpoint`: the address of a Beam job server.
        arguments: Further options of Beam and of the runner, as on a command line.

    Returns:
        The options.

    Raises:
        ValueError: If the runner is not one of these, or an argument is unknown to Beam, which
            would ignore it silently.

    Example:
        >>> options = pipeline_options("Flink", ["--flink_master=host:8081", "--parallelism=4"])
        >>> options.get_all_options(drop_default=True)
        {'runner': 'FlinkRunner', 'flink_master': 'host:8081', 'parallelism': 4}
    """
    name = runner if runner.endswith("Runner") else f"{runner}Runner"
    if name not in RUNNERS:
        raise ValueError(f"the runner must be one of {', '.join(RUNNERS)}. Received: {runner!r}")
    options = PipelineOptions([f"--runner={name}", *arguments])
    known = options.get_all_options()
    told = options.get_all_options(retain_unknown_options=True)
    unknown = ", ".join(f"--{option}" for option in told if option not in known)
    if unknown:
        raise ValueError(f"expected options of Beam. Received: {unknown}")
    return options


def configured(configuration: Configuration) -> PipelineOptions:
    """Returns the options of section `beam`.

    Raises:
        ConfigurationError: If there is no such runner, or Beam has no such option.
    """
    beam = configuration.beam
    try:
        return pipeline_options(beam.runner, beam.options)
    except ValueError as error:
        raise configuration.error("beam:", str(error)) from error


def pipeline(options: PipelineOptions | None = None) -> beam.Pipeline:
    """Returns an empty Beam pipeline, to compose and run.

    Args:
        options: Options from `pipeline_options`; by default it runs in this process.

    Raises:
        tfrank_sel.pipelines.configuration.ConfigurationError: If the job endpoint does not accept
            connections.
    """
    if options is not None:
        endpoint = options.view_as(PortableOptions).job_endpoint
        if endpoint or options.view_as(StandardOptions).runner == "PortableRunner":
            _check_listens(endpoint)
    return beam.Pipeline(options=options)


def pipeline_if_many(options: PipelineOptions | None, lists: int) -> beam.Pipeline | None:
    """Returns a pipeline, or None for few lists and Beam's local runner.

    For few lists, Beam's own work takes longer than the evaluation.
    """
    runner = options and options.view_as(StandardOptions).runner
    is_local = runner in (None, "DirectRunner")
    return None if is_local and lists < MANY else pipeline(options)


def _check_listens(endpoint: str | None) -> None:
    """Checks the job endpoint, since Beam would wait five minutes and then show a gRPC trace."""
    try:
        host, port = (endpoint or "").rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError, ValueError) as error:
        reason = f"must be HOST:PORT of a running job server. Received: {endpoint!r}: {error}"
        raise ConfigurationError("--job_endpoint", reason) from error
