"""Where a step runs: in a loop of this process, or on Beam if a runner is configured.

Nothing here imports Beam before it is asked for.
"""

import functools
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tfrank_sel.data import stores
from tfrank_sel.errors import received as received
from tfrank_sel.pipelines.configuration import Configuration

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

Options: TypeAlias = "PipelineOptions | None"  # of Beam; None for this process
# Reads files, and patterns of them, a part of their contents at a time; it is sent to workers.
Reader: TypeAlias = Callable[[Sequence[str]], Iterable[Any]]


class Combiner:
    """Makes one value of many elements, in parts and in any order, as Beam's `CombineFn`.

    It is their sum, unless a subclass says what an element counts, what is the sum of two counts,
    and what is the value of the sum of all, which is None without any element.
    """

    def count(self, element: Any) -> Any:
        """Returns the sum of one element."""
        return element

    def add(self, total: Any, other: Any) -> Any:
        """Returns the sum of two sums; it may change the first."""
        return total + other

    def create_accumulator(self) -> Any:
        """Returns the sum of no element."""
        return None

    def add_input(self, accumulator: Any, element: Any) -> Any:
        """Returns the sum with one more element; it may change the accumulator."""
        return self.merge_accumulators([accumulator, self.count(element)])

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Returns the sum of sums; it may change the first."""
        sums = [x for x in accumulators if x is not None]
        return functools.reduce(self.add, sums) if sums else None

    def extract_output(self, accumulator: Any) -> Any:
        """Returns the value of a sum."""
        return accumulator


class Task(Protocol):
    """What is done for each of many elements; it is sent to workers before `setup`."""

    def setup(self) -> None:
        """Prepares this process."""

    def process(self, element: Any, *others: Any) -> Any:
        """Does the task for an element, given what all have in common."""


def each(elements: Iterable[Any], task: Task, options: Options) -> None:
    """Does a task for each element; in this process, or on Beam if there are options."""
    if options is not None:
        from tfrank_sel.pipelines.runners import beams

        beams.each(elements, task, options)
        return
    task.setup()
    for element in elements:
        task.process(element)


def total(combiner: Combiner, elements: Iterable[Any]) -> Any:
    """Returns the value of all elements, in this process."""
    accumulator = combiner.create_accumulator()
    for element in elements:
        accumulator = combiner.add_input(accumulator, element)
    return combiner.extract_output(accumulator)


def files(paths: Sequence[str]) -> Iterator[str]:
    """Yields the files of paths and patterns."""
    for path in paths:
        yield from [path] if stores.is_file(path) else stores.glob(path)


def totals(
    parts: Mapping[str, Sequence[str]],
    read: Reader,
    combiner: Combiner,
    described: Callable[[Any], Any],
    scratch: str | Path,
    options: Options,
) -> dict[str, Any]:
    """Returns the value of all that is read of each part.

    Args:
        parts: Files, and patterns of them, of each part.
        read: Reads the files.
        combiner: Combines what is read.
        described: Returns the value of a part as JSON-ready values.
        scratch: Temporary folder or URL that all workers can write to.
        options: Options of Beam; None for this process.
    """
    if options is not None:
        from tfrank_sel.pipelines.runners import beams

        return beams.totals(parts, read, combiner, described, scratch, options)
    return {name: described(total(combiner, read(paths))) for name, paths in parts.items()}


def totals_by_key(
    paths: Sequence[str],
    read: Reader,
    surveyor: Combiner,
    task: Task,
    described: Callable[[str, Any], Any],
    scratch: str,
    pipeline: "beam.Pipeline | None",
) -> list[Any]:
    """Returns the values of a task by key, which depend on a survey of all that is read.

    Args:
        paths: Files, and patterns of them, which are read twice.
        read: Reads the files.
        surveyor: Makes the survey.
        task: Yields key and value pairs from what is read and the survey.
        described: Returns the JSON-ready result of a key and the sum of its values.
        scratch: Temporary folder or URL that all workers can write to.
        pipeline: Beam pipeline to compose and run; None for this process.
    """
    if pipeline is not None:
        from tfrank_sel.pipelines.runners import beams

        return beams.totals_by_key(paths, read, surveyor, task, described, scratch, pipeline)
    survey, sums = total(surveyor, read(paths)), dict[str, Any]()
    task.setup()
    for element in read(paths):
        for key, value in task.process(element, survey):
            sums[key] = sums[key] + value if key in sums else value
    return [described(key, x) for key, x in sums.items()]


def pipeline(options: Options) -> "beam.Pipeline | None":
    """Returns an empty Beam pipeline with these options; None if there are none."""
    if options is None:
        return None
    from tfrank_sel.pipelines.runners import beams

    return beams.pipeline(options)


def beam_options(configuration: Configuration) -> Options:
    """Returns the options of section `beam`; None if it has neither a runner nor options.

    Raises:
        ConfigurationError: If Beam is not installed, there is no such runner, or Beam has no such
            option.
    """
    section = configuration.beam
    if section.runner is None and not section.options:
        return None
    if importlib.util.find_spec("apache_beam") is None:
        key = "beam.options" if section.runner is None else "beam.runner"
        raise configuration.error(
            key, "needs apache_beam: pip install 'tfrank_sel[beam]'", "no apache_beam"
        )
    from tfrank_sel.pipelines.runners import beams

    try:
        return beams.pipeline_options(section.runner or beams.RUNNERS[0], section.options)
    except ValueError as error:
        raise configuration.error("beam:", str(error)) from error
