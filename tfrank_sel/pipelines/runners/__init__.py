"""Where a step runs: in a loop of this process, or on Beam if a runner is configured.

Nothing here imports Beam before it is asked for.
"""

import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.refusals import received

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

Options: TypeAlias = "PipelineOptions | None"  # of Beam; None for this process


class Combiner(Protocol):
    """What makes one value of many elements, in parts and in any order, as Beam's `CombineFn`."""

    def create_accumulator(self) -> Any:
        """Returns the sum of no element."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        """Returns the sum with one more element; it may change the accumulator."""

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Returns the sum of sums."""

    def extract_output(self, accumulator: Any) -> Any:
        """Returns the value of a sum."""


class Task(Protocol):
    """What is done for each of many elements; it is sent to workers before `setup`."""

    def setup(self) -> None:
        """Prepares this process."""

    def process(self, element: Any) -> Any:
        """Does the task for an element."""


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


def pipeline(options: Options) -> "beam.Pipeline | None":
    """Returns an empty Beam pipeline with these options; None if there are none."""
    if options is None:
        return None
    from tfrank_sel.pipelines.runners import beams

    return beams.pipeline(options)


def configured(configuration: Configuration) -> Options:
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
        reason = received("needs apache_beam: pip install 'tfrank_sel[beam]'", "no apache_beam")
        raise configuration.error(key, reason)
    from tfrank_sel.pipelines.runners import beams

    try:
        return beams.pipeline_options(section.runner or beams.RUNNERS[0], section.options)
    except ValueError as error:
        raise configuration.error("beam:", str(error)) from error
