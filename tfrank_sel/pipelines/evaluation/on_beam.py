"""Evaluation by a Beam pipeline, which reads and scores the shards on workers."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from tfrank_sel.data import stores
from tfrank_sel.metrics.significance import Resampled
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.evaluation.evaluation import Compared, Scored
from tfrank_sel.pipelines.evaluation.slices import Slicing, Survey, Surveyor
from tfrank_sel.pipelines.ingestion import stored
from tfrank_sel.pipelines.ingestion.stored import Lists


def found(
    lists: Lists,
    surveyor: Surveyor,
    scored: Scored,
    compared: Compared,
    scratch: str,
    pipeline: beam.Pipeline,
) -> list[Sequence[Any]]:
    """Returns the results of `compared` for each slice.

    Args:
        lists: The split.
        surveyor: Finds the slices.
        scored: Sums the measures of lists.
        compared: Function of the name and the sums of a slice to JSON-ready results.
        scratch: Temporary folder, by path or URL.
        pipeline: Beam pipeline to compose and run.
    """
    folder = stores.join(scratch, ".slices")
    with pipeline as root:
        # Read twice, because elements that wait for a side input would be kept in memory.
        slicing = (
            root
            | "Read to survey" >> stored.Read(lists.shards)
            | beam.CombineGlobally(_Survey(surveyor))
        )
        sums = (
            root
            | "Read to score" >> stored.Read(lists.shards)
            | beam.ParDo(_Sums(scored), beam.pvalue.AsSingleton(slicing))
            | beam.CombinePerKey(_Sum())
        )
        runners.gather(sums | beam.MapTuple(compared), stores.join(folder, "told"))
    results = list(runners.gathered(stores.join(folder, "told")))
    stores.drop(folder)
    return results


class _Survey(beam.CombineFn):
    def __init__(self, surveyor: Surveyor) -> None:
        self.surveyor = surveyor

    def create_accumulator(self) -> Survey:
        return self.surveyor.create_accumulator()

    def add_input(self, accumulator: Survey, serialized: list[bytes]) -> Survey:
        return self.surveyor.add_input(accumulator, serialized)

    def merge_accumulators(self, accumulators: Iterable[Survey]) -> Survey:
        return self.surveyor.merge_accumulators(accumulators)

    def extract_output(self, accumulator: Survey) -> Slicing:
        return self.surveyor.extract_output(accumulator)


class _Sums(beam.DoFn):
    def __init__(self, scored: Scored) -> None:
        self.scored = scored

    def process(self, serialized: list[bytes], slicing: Slicing) -> Iterator[tuple[str, Resampled]]:
        return self.scored.sums(serialized, slicing)


class _Sum(beam.CombineFn):
    def create_accumulator(self) -> Resampled | None:
        return None

    def add_input(self, accumulator: Resampled | None, found: Resampled) -> Resampled:
        return found if accumulator is None else accumulator + found

    def merge_accumulators(self, accumulators: Iterable[Resampled | None]) -> Resampled | None:
        known = [x for x in accumulators if x is not None]
        return sum(known[1:], known[0]) if known else None

    def extract_output(self, accumulator: Resampled | None) -> Resampled | None:
        return accumulator
