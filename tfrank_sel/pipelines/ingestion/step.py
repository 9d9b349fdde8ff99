"""The step `ingest`: the files of a job, or synthetic data, become records."""

from pathlib import Path
from typing import TYPE_CHECKING

from tfrank_sel.data import letor, stores, synthetic
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.rejections import rejection
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import clicks, ingest_counts
from tfrank_sel.pipelines.ingestion.ingest import ingest as convert, summary
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

SYNTHETIC_LISTS = {"train": 400, "validation": 100, "test": 100}


def ingest(run: "Run", folder: Path) -> None:
    """Converts files to records: `records/`, `ingest.json`, `layout.json`, `dead_letters.jsonl`.

    Args:
        run: The run; its store gets the records if it has one. The records of the run that it
            continues are linked to `earlier/`.
        folder: Folder to write to.
    """
    job, progress, earlier = run.job, run.progress, run.earlier
    training, mirror = job.configuration.training, job.mirror
    inputs = job.inputs or synthesise(folder / "synthetic", training.seed, progress)
    rejected = None
    with progress.step("ingest") as step:
        if job.configuration.clicks.position is not None:
            settings = job.configuration.clicks
            made = clicks.correct_log(inputs, settings, folder / "clicks", step.tell)
            inputs, propensities, rejected = made
            position, share = propensities.positions[-1], propensities.values[-1]
            last = f"position {position} is examined {share:.2f} times as often"
            step.tell(f"corrected clicks: {last} as the best one; {propensities.reason}")
        layout = inputs.schema()
        if earlier is not None:
            _check_same(earlier.path, layout)
        step.show_activity(f"{len(inputs.sources)} files")
        step.reads(source.path for source in inputs.sources)
        mirror.drop("ingest")
        target = stores.join(mirror.url, "ingest") if mirror.url else folder
        ingested = convert(
            inputs,
            layout,
            folder,
            records=str(stores.join(target, "records")),
            options=run.options,
            shard_bytes=job.configuration.beam.shard_bytes,
        )
        count = sum(getattr(feature, "size", 1) for feature in layout.features.values())
        step.tell(f"{count} feature{'' if count == 1 else 's'}")
        for line in summary(ingested.report):
            step.tell(line)
        if rejected is not None:  # of the log, before it became lists
            both = ingest_counts.rejections(rejected, ingested.report["rejected"])
            folders.write_json(folder / "ingest.json", {**ingested.report, "rejected": both})
        if earlier is not None:
            kept = earlier.records()
            for number, records in enumerate(kept):
                folders.link(records, stores.join(target, "earlier", f"{number}"))
            step.tell(f"joined to {len(kept)} earlier increments")
    layout.write(folder / "layout.json")


def synthesise(folder: Path, seed: int, progress: Progress) -> Inputs:
    """Writes synthetic data, one file per split.

    Args:
        folder: Folder to create.
        seed: Seed of the data.
        progress: Progress display.
    """
    with progress.step("synthesis") as step:
        folder.mkdir(parents=True)
        lists = synthetic.lists(sum(SYNTHETIC_LISTS.values()), seed=seed)
        sources = []
        for split, count in SYNTHETIC_LISTS.items():
            path = folder / f"{split}.txt"
            letor.write(path, (next(lists) for _ in range(count)))
            sources.append(Source(str(path), split))
        sizes = (f"{count} {split}" for split, count in SYNTHETIC_LISTS.items())
        step.tell(f"synthetic lists: {', '.join(sizes)}")
    return Inputs(sources)


def _check_same(earlier: Path, layout: Schema) -> None:
    before = Schema.read(earlier / "ingest" / "layout.json", layout.columns)
    if before != layout:
        old, new = before.features, layout.features
        others = ", ".join(sorted(x for x in {*old, *new} if old.get(x) != new.get(x)))
        reason = "to continue a run, features, types and context must be the same"
        raise rejection(str(earlier), reason, f"other {others or 'context'}")
