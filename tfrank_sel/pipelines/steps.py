"""Steps of a run: each writes a folder from the results of earlier steps."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tfrank_sel import data, export as exports, models
from tfrank_sel.data import letor, stores, typed
from tfrank_sel.data.formats import Schema
from tfrank_sel.distribution import Workers
from tfrank_sel.export.releases import Releases
from tfrank_sel.export.saved_model import CARD
from tfrank_sel.pipelines import interrupts, preparation, trial
from tfrank_sel.pipelines.analysis import statistics
from tfrank_sel.pipelines.analysis.splits import Split
from tfrank_sel.pipelines.evaluation import blessing, evaluation, simple
from tfrank_sel.pipelines.evaluation.saved import RecordScorer
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import ingest as ingestion, stored
from tfrank_sel.pipelines.ingestion.inputs import SPLITS
from tfrank_sel.pipelines.learning import training, workers
from tfrank_sel.pipelines.learning.training import PreparedLists, Trained
from tfrank_sel.pipelines.push import Pushed, side_by_side
from tfrank_sel.pipelines.reporting import card
from tfrank_sel.pipelines.runs import Run

WARM_UP_LISTS = 4
# files that identify a SavedModel: the index has a checksum of each variable
IDENTITY = ("saved_model.pb", "variables/variables.index")
TRIED_LISTS = 16  # by the signatures of an export


def ingest(run: Run, folder: Path) -> None:
    """Converts files to records: `records/`, `ingest.json`, `layout.json`, `dead_letters.jsonl`."""
    inputs = run.given or preparation.synthesise(
        folder / "synthetic", run.settings.seed, run.progress
    )
    with run.progress.step("ingest") as step:
        layout = inputs.schema()
        if run.earlier is not None:
            _check_same(run.earlier, layout)
        step.doing(f"{len(inputs.sources)} files")
        step.reads(source.path for source in inputs.sources)
        shard_bytes = run.configuration.beam.shard_bytes
        run.mirror.drop("ingest")
        place = run.mirror.url and run.ingested
        found = ingestion.ingest(
            inputs,
            layout,
            folder,
            records=place and stores.join(place, "records"),
            options=run.options,
            shard_bytes=shard_bytes,
        )
        count = sum(getattr(feature, "size", 1) for feature in layout.features.values())
        step.tell(f"{count} feature{'' if count == 1 else 's'}")
        for line in ingestion.summary(found.report):
            step.tell(line)
        if run.earlier is not None:
            kept = list(run.earlier_increments())
            for number, records in enumerate(kept):
                folders.link(records, stores.join(place or folder, "earlier", f"{number}"))
            step.tell(f"joined to {len(kept)} earlier increments")
    layout.write(folder / "layout.json")


def _check_same(earlier: Path, layout: Schema) -> None:
    known = Schema.read(earlier / "ingest" / "layout.json", layout.columns)
    if known != layout:
        received = ", ".join(
            sorted(
                name
                for name in known.features.keys() | layout.features.keys()
                if known.features.get(name) != layout.features.get(name)
            )
        )
        raise data.InputError(
            str(earlier),
            "to continue a run, features, types and context must be the same. "
            f"Received: other {received or 'context'}",
        )


def analyze(run: Run, folder: Path) -> None:
    """Computes the statistics of the splits, the schema and the anomalies."""
    with run.progress.step("statistics") as step:
        step.reads(shard for split in SPLITS for shard in run.own_shards(split))
        own = statistics.summarise(
            {split: run.own_shards(split) for split in SPLITS},
            run.spec,
            folder / "increment",
            scratch=run.mirror.url,
            features=run.layout.features,
            options=run.options,
        )
        known = own
        for number, earlier in enumerate(run.earlier_statistics()):
            folders.link(earlier, folder / "earlier" / f"{number}")
            known = {
                name: statistics.Statistics.load(Path(earlier, f"{name}.json")) + found
                for name, found in known.items()
            }
        for split, found in known.items():
            folders.write_json(folder / "statistics" / f"{split}.json", dataclasses.asdict(found))
            preparation.check_comparable(found, run.files(split))
            step.tell(f"{split}: {preparation.described(found)}")
    splits = {name: Split(run.shards(name), found) for name, found in known.items()}
    preparation.examine(run, splits, own, folder)


def train(run: Run, folder: Path) -> None:
    """Trains the candidate and the baseline: `NAME.keras`, `training.json`, `logs/`."""
    _check_losses(run)
    trained = workers.in_step(run, lambda found: train_together(run, folder, found))
    for name, one in trained.items():
        one.model.save(folder / f"{name}.keras")
    figures = {name: one.figures() for name, one in trained.items()}
    folders.write_json(folder / "training.json", figures)
    shutil.rmtree(folder / "backup")


def train_together(run: Run, folder: Path, workers: Workers) -> dict[str, Trained]:
    """Trains the candidate and the baseline; each of the workers calls it."""
    learned, held_out = (run.splits[name].batches(run.spec) for name in ("train", "validation"))
    start = run.earlier_model()
    before = start.preparation if isinstance(start, models.Prepared) else None
    prepared = preparation.prepared(run.splits["train"], run.layout, True, before)
    trained: dict[str, Trained] = {}
    place, logs = folder / "prepared", folder / "logs"
    with PreparedLists(learned, held_out, run.settings, place, workers) as lists:
        for name, candidate in run.candidates.items():
            with run.progress.step(f"training {name}") as step, interrupts.deferred():
                try:
                    found = training.train(
                        candidate,
                        prepared,
                        lists,
                        run.settings,
                        logs / name if workers.is_chief else None,
                        step.epoch,
                        before=list(trained.values()),
                        backup=folder / "backup" / name,
                        start=start if name == "ours" else None,
                        on_backup=run.mirror.sender("train", "backup"),
                    )
                except training.StartError as error:
                    reason = "to continue a run, losses and network must be the same"
                    received = f"{reason}. Received: {error}"
                    raise data.InputError(str(run.earlier), received) from error
                for fit in found.fits:
                    step.tell(str(fit))
                trained[name] = found
    return trained


def _check_losses(run: Run) -> None:
    """Raises an error before training if a loss cannot be computed for the labels of the data."""
    labels = [*map(float, run.splits["train"].statistics.labels)]
    for candidate in run.candidates.values():
        try:
            candidate.check(labels)
        except ValueError as error:
            raise data.InputError("train", " ".join(str(error).split())) from error


def evaluate(run: Run, folder: Path) -> None:
    """Compares the candidate with the baseline on the test split: `metrics.json`."""
    with run.progress.step("evaluation") as step:
        step.reads(run.test_lists.shards, times=2)
        scores = {name: trained.scores for name, trained in run.trained.items()}
        sizes = run.splits["train"].statistics.list_sizes
        found = evaluation.evaluate(
            scores["ours"],
            scores.get("baseline"),
            run.test_lists,
            str(folder),
            seed=run.settings.seed,
            gain=run.settings.gain,
            simple=simple.rankings(
                run.splits["train"].shards, run.layout, run.spec, longest=max(sizes)
            ),
            pipeline=run.test_pipeline,
        )
        step.tell(f"{run.splits['test'].statistics.lists} queries of the test split")
        for name, compared in found.simple.items():
            metric = run.configuration.blessing.metric
            step.tell(compared[metric].told(metric, name))
        step.tell(f"{len(found.slices) - 1} slices")
        folders.write_json(folder / "metrics.json", found.figures())


def export(run: Run, folder: Path) -> None:
    """Exports and tests the model: `saved_model/`, and a query of the test split, also for REST."""
    ours, spec, types = run.trained["ours"], run.spec, run.types
    saved_model, told = folder / "saved_model", card.facts(run)
    with run.progress.step("export") as step, interrupts.deferred():
        if method := run.configuration.serving.recalibration:
            ours = dataclasses.replace(ours, model=_recalibrated(run, method))
            step.tell(f"scores are expected labels: {method}")
        held_out = run.splits["validation"].shards
        exports.export(
            ours.model,
            types or spec,
            saved_model,
            doc_id=spec.doc_id,
            examples=trial.first_lists(held_out, spec, WARM_UP_LISTS, types),
            metadata={
                "metrics": {name: x.ours for name, x in run.evaluation.overall.items()},
                "feature_names": run.layout.names,
                "card": told,
            },
        )
        folders.write_text(saved_model / CARD, card.text(told))
        as_onnx = folder / "model.onnx" if run.configuration.export.onnx else None
        if as_onnx is not None:
            try:
                exports.onnx(ours.model, as_onnx)
            except ValueError as error:
                raise run.configuration.error("export.onnx", str(error)) from error
    with run.progress.step("infra validation") as step, interrupts.deferred():
        test = run.splits["test"].shards
        gap = trial.infra_validate(
            saved_model,
            ours.scores,
            spec,
            test,
            lists=TRIED_LISTS,
            features=types,
            as_onnx=as_onnx,
        )
        step.tell(f"every signature scores as the model does, to {gap:.1g}")
    first = _teaching_list(run)
    one_query = "one_query.txt" if types is None else "one_query.jsonl"
    text = letor.text(first) if types is None else typed.text(first, types)
    folders.write_text(folder / one_query, text)
    folders.write_text(folder / folders.REQUEST, trial.rest_request(first, spec, types))


def _recalibrated(run: Run, method: Literal["isotonic", "platt"]) -> models.Recalibrated:
    """The trained model, with expected labels by the validation split in place of scores."""
    lists = run.splits["validation"].batches(run.spec)
    try:
        return models.recalibrate(run.trained["ours"].model, lists, method)
    except ValueError as error:
        raise data.InputError("validation", f"serving.recalibration: {error}") from error


def _teaching_list(run: Run) -> data.ItemList:
    """The first list of the test split with two different labels."""
    lists = stored.lists(run.splits["test"].shards, run.spec)
    return next(found for found in lists if found.labels.min() < found.labels.max())


def push(run: Run, folder: Path) -> None:
    """Compares the model with the served one, and publishes it if it passes."""
    saved_model, configuration = run.output / "export" / "saved_model", run.configuration
    with run.progress.step("push") as step:
        published, champion = _published(run), _champion(run)
        if champion == published:
            champion = None
        types = run.layout.features
        ours = RecordScorer(str(saved_model), types)
        theirs = None if champion is None else RecordScorer(champion, types)
        lists = stored.lists(run.test_lists.shards, run.spec)
        one_by_one = (stored.batch_of(one, run.spec) for one in lists)
        beside = side_by_side(ours, theirs, one_by_one)
        judged = None
        if theirs is not None:
            judged = evaluation.evaluate(
                ours,
                theirs,
                run.test_lists,
                str(folder),
                seed=run.settings.seed,
                against="champion",
                gain=run.settings.gain,
                pipeline=run.test_pipeline,
            )
        blessed = blessing.bless(
            run.evaluation,
            configuration.blessing,
            champion=judged,
            milliseconds=beside["milliseconds"]["ours"]["p99"],
        )
        figures = {**blessed.figures(), "champion": judged and judged.figures()}
        folders.write_json(folder / "blessing.json", figures)
        place = None
        if blessed.blessed:
            serving = configuration.serving
            place = Releases(run.serving, serving.model_name).publish(
                saved_model,
                serving.version,
                canary=serving.canary,
                published=None if published is None else int(Path(published).name),
            )
        digest = run.digest("export")
        pushed = Pushed(blessed.blessed, blessed.reasons, place, champion, digest, beside)
        pushed.write(folder)
        for line in pushed.told():
            step.tell(line)


def _published(run: Run) -> str | None:
    """The published version of this export in the configured folder and under its name, if any."""
    before, serving = run.pushed, run.configuration.serving
    if before is None or before.saved_model is None or before.digest != run.digest("export"):
        return None
    version = before.version if serving.version is None else serving.version
    place = stores.join(run.serving, serving.model_name, str(version))
    same = all(
        _content(stores.join(place, name)) == _content(run.output / "export/saved_model" / name)
        for name in IDENTITY
    )
    return place if same else None


def _content(path: str | Path) -> bytes | None:
    if not stores.is_file(path):
        return None
    with stores.opened(path) as file:
        content: bytes = file.read()
    return content


def _champion(run: Run) -> str | None:
    """The champion: the configured model, or else the served one."""
    chosen = run.configuration.blessing.champion
    if chosen is not None:
        return chosen or None
    return Releases(run.serving, run.configuration.serving.model_name).served()


TAKE: dict[str, Callable[[Run, Path], None]] = {
    "ingest": ingest,
    "analyze": analyze,
    "train": train,
    "evaluate": evaluate,
    "export": export,
    "push": push,
}
