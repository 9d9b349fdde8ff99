"""Beam: options of its runners, and what runs on it and returns values.

Only what runs on Beam imports this module.
"""

import contextlib
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils import interactive_utils

from tfrank_sel.data import stores
from tfrank_sel.errors import received, refusal
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.configuration import ConfigurationError

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
        raise refusal(f"the runner must be one of {', '.join(RUNNERS)}", repr(runner))
    options = PipelineOptions([f"--runner={name}", *arguments])
    options_of_beam = options.get_all_options()
    all_options = options.get_all_options(retain_unknown_options=True)
    unknown = ", ".join(f"--{option}" for option in all_options if option not in options_of_beam)
    if unknown:
        raise refusal("expected options of Beam", unknown)
    return options


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
    _without_cells()
    return beam.Pipeline(options=options)


def _without_cells() -> None:
    """Leaves out Beam's labels of notebook cells if they fail, as in 2.77 with pandas 3."""
    if interactive_utils.is_in_ipython():
        try:
            from apache_beam.runners.interactive import interactive_environment  # noqa: F401
        except Exception:  # of the import, whatever it is
            interactive_utils.is_in_ipython = lambda: False


def _check_listens(endpoint: str | None) -> None:
    """Checks the job endpoint, since Beam would wait five minutes and then show a gRPC trace."""
    try:
        host, port = (endpoint or "").rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError, ValueError) as error:
        reason = received("must be HOST:PORT of a running job server", f"{endpoint!r}: {error}")
        raise ConfigurationError("--job_endpoint", reason) from error


def each(elements: Iterable[Any], task: Any, options: PipelineOptions) -> None:
    """Does a task for each element, as `runners.each`."""
    with pipeline(options) as root:
        root | beam.Create(list(elements)) | beam.Reshuffle() | beam.ParDo(Apply(task))


def gather(values: beam.PCollection, prefix: str | Path) -> None:
    """Writes the values of a Beam pipeline as JSON, for `read_gathered` to read after the run.

    Each bundle writes its own file. Another file lists those of the successful bundles, so that a
    retried bundle counts once.

    Args:
        values: The values.
        prefix: Path or URL that the names of the files begin with.
    """
    name = os.path.basename(prefix)
    if not stores.is_remote(prefix):
        os.makedirs(os.path.dirname(prefix), exist_ok=True)
    written = values | f"Gather {name}" >> beam.ParDo(_Gather(str(prefix)))
    files = written | f"Files of {name}" >> beam.GroupByKey()
    files | f"Name {name}" >> beam.MapTuple(_list_files)


def _list_files(prefix: str, paths: Iterable[str]) -> None:
    stores.write_text(f"{prefix}.json", json.dumps(list(paths)))


def read_gathered(prefix: str | Path) -> Iterator[Any]:
    """Reads the values written by `gather`, one at a time."""
    if stores.is_file(f"{prefix}.json"):
        for path in json.loads(stores.read_text(f"{prefix}.json")):
            with stores.open_file(path) as file:
                yield from map(json.loads, file)


class Read(beam.PTransform):
    """Reads files, each on one worker.

    Args:
        paths: The files, and patterns of them.
        read: As in `runners.totals`.
    """

    def __init__(self, paths: Sequence[str], read: runners.Reader) -> None:
        super().__init__()
        self.paths, self.read = list(paths), read

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        read = self.read
        files = pipeline | beam.Create(self.paths) | beam.FlatMap(lambda x: runners.files([x]))
        return files | beam.Reshuffle() | beam.FlatMap(lambda file: read([file]))


def totals(
    parts: Mapping[str, Sequence[str]],
    read: runners.Reader,
    combiner: runners.Combiner,
    described: Callable[[Any], Any],
    scratch: str | Path,
    options: PipelineOptions,
) -> dict[str, Any]:
    """Returns the value of all that is read of each part, as `runners.totals`."""
    with stores.scratch(scratch) as folder:
        with pipeline(options) as root:
            for name, paths in parts.items():
                values = (
                    root
                    | f"Read {name}" >> Read(paths, read)
                    | f"Combine {name}" >> beam.CombineGlobally(Combine(combiner))
                    | f"Describe {name}" >> beam.Map(described)
                )
                gather(values, stores.join(folder, name))
        return {name: next(read_gathered(stores.join(folder, name))) for name in parts}


def totals_by_key(
    paths: Sequence[str],
    read: runners.Reader,
    surveyor: runners.Combiner,
    task: runners.Task,
    described: Callable[[str, Any], Any],
    scratch: str,
    pipeline: beam.Pipeline,
) -> list[Any]:
    """Returns the values of a task by key, as `runners.totals_by_key`."""
    folder = stores.join(scratch, ".slices")
    with pipeline as root:
        # Read twice, because elements that wait for a side input would be kept in memory.
        surveyed = root | "Read to survey" >> Read(paths, read)
        survey = surveyed | beam.CombineGlobally(Combine(surveyor))
        sums = (
            root
            | "Read to sum" >> Read(paths, read)
            | beam.ParDo(Apply(task), beam.pvalue.AsSingleton(survey))
            | beam.CombinePerKey(Combine(runners.Combiner()))
        )
        gather(sums | beam.MapTuple(described), stores.join(folder, "told"))
    values = list(read_gathered(stores.join(folder, "told")))
    stores.drop(folder)
    return values


class Combine(beam.CombineFn):
    """Makes one value of many elements.

    Args:
        combiner: A `runners.Combiner`.
    """

    def __init__(self, combiner: Any) -> None:
        self.combiner = combiner

    def create_accumulator(self) -> Any:
        return self.combiner.create_accumulator()

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return self.combiner.add_input(accumulator, element)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return self.combiner.merge_accumulators(accumulators)

    def extract_output(self, accumulator: Any) -> Any:
        return self.combiner.extract_output(accumulator)


class Apply(beam.DoFn):
    """Does a task for each element.

    Args:
        task: A `runners.Task`.
    """

    def __init__(self, task: Any) -> None:
        self.task = task

    def setup(self) -> None:
        self.task.setup()

    def process(self, element: Any, *others: Any) -> Any:
        return self.task.process(element, *others)


class _Gather(beam.DoFn):
    """Writes values to files of JSON lines, one per bundle: yields the prefix and the path."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def start_bundle(self) -> None:
        self.file: IO[Any] | None = None

    def process(self, value: Any) -> None:
        if self.file is None:
            self.path = f"{self.prefix}-{uuid.uuid4().hex}"
            self.stack = contextlib.ExitStack()
            self.file = self.stack.enter_context(stores.open_file(self.path, "wb"))
        self.file.write(json.dumps(value).encode() + b"\n")

    def finish_bundle(self) -> Iterator[Any]:
        if self.file is not None:
            self.stack.close()
            yield GlobalWindows.windowed_value((self.prefix, self.path))
