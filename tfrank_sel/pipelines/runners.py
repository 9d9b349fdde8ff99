"""Where the Beam steps of a run are executed."""

from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")


def pipeline_options(
    runner: str = "DirectRunner", arguments: Sequence[str] = ()
) -> PipelineOptions:
    """Returns the options that every Beam pipeline of a run is made with.

    Args:
        runner: One of `RUNNERS`; `Runner` at its end may be left out.
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
