"""Evaluation on Beam; what workers do stands in `evaluation` and `slices`.

Only what runs on Beam imports this module.
"""

from typing import Any

import apache_beam as beam

from tfrank_sel.data import stores
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.evaluation.evaluation import Compared, Scored, Total
from tfrank_sel.pipelines.ingestion.parallel import Read
from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists
from tfrank_sel.pipelines.runners import beams


def compare(
    lists: StoredLists,
    surveyor: runners.Combiner,
    scored: Scored,
    compared: Compared,
    scratch: str,
    pipeline: beam.Pipeline,
) -> list[Any]:
    """The results of `compared` for each slice, by a Beam pipeline."""
    folder = stores.join(scratch, ".slices")
    with pipeline as root:
        # Read twice, because elements that wait for a side input would be kept in memory.
        records = root | "Read to survey" >> Read(lists.shards)
        slicing = records | beam.CombineGlobally(beams.Combine(surveyor))
        sums = (
            root
            | "Read to score" >> Read(lists.shards)
            | beam.ParDo(beams.Apply(scored), beam.pvalue.AsSingleton(slicing))
            | beam.CombinePerKey(beams.Combine(Total()))
        )
        beams.gather(sums | beam.MapTuple(compared), stores.join(folder, "told"))
    totals = list(beams.gathered(stores.join(folder, "told")))
    stores.drop(folder)
    return totals
