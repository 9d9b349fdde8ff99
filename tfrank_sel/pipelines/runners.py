"""Where the Beam steps of a run are executed."""

import socket
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions

from tfrank_sel.pipelines.configuration import ConfigurationError

RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner", "PortableRunner")


def pipeline_options(
    runner: str = "DirectRunner", arguments: Sequence[str] = ()
) -> PipelineOptions:
    """Returns the options that every Beam pipeline of a run is made with.

    Args:
        runner: One of `RUNNERS`; `Runner` at its end may be left out. PortableRunner needs the
            argument `--job_endpoint`: where a job server of Beam listens.
        arguments: Further options of Beam and of the runner, as on a command line.

    Returns:
        The options.

    Raises:
        ValueError: If the runner is none of these, or Beam does not know an argument, which it
            would pass over in silence.

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
        raise ValueError(f"expected options that Beam knows. Received: {unknown}")
    return options


def pipeline(options: PipelineOptions | None = None) -> beam.Pipeline:
    """Returns an empty Beam pipeline, to compose and run.

    Args:
        options: As of `pipeline_options`; by default it runs in this process.

    Raises:
        tfrank_sel.pipelines.configuration.ConfigurationError: If nothing listens at the job
            endpoint.
    """
    if options is not None:
        endpoint = options.view_as(PortableOptions).job_endpoint
        if endpoint or options.view_as(StandardOptions).runner == "PortableRunner":
            _check_listens(endpoint)
    return beam.Pipeline(options=options)


def _check_listens(endpoint: str | None) -> None:
    """Refuses what Beam would wait five minutes for, and then show as a trace of gRPC."""
    try:
        host, port = (endpoint or "").rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError, ValueError) as error:
        reason = f"must be HOST:PORT of a job server that listens. Received: {endpoint!r}: {error}"
        raise ConfigurationError("--job_endpoint", reason) from error
