"""The step `push`: a model is compared with the served one, and published."""

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfrank_sel import artefacts
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import rejection
from tfrank_sel.export.releases import KIND, Releases
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import leakage
from tfrank_sel.pipelines.configuration.sections import Serving
from tfrank_sel.pipelines.evaluation import blessing, evaluation
from tfrank_sel.pipelines.evaluation.saved import RecordScorer
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.ingestion.stored_lists import Scorer, Tensors

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

TOP = 10
_TRIED = 200  # number of lists for timing


@dataclasses.dataclass(frozen=True)
class Pushed:
    """The outcome of a push.

    Args:
        blessed: Whether the model may be served.
        reasons: Reasons why it may not.
        saved_model: Folder or URL of the published version; None if it is not published.
        champion: Folder or URL of the champion that it was compared with, if there is one.
        digest: Digest of the published export.
        beside: Latency in milliseconds of both models and, with a champion, `top_10_agreement`.
    """

    blessed: bool
    reasons: list[str]
    saved_model: str | None
    champion: str | None
    digest: str
    beside: dict[str, Any]

    @property
    def version(self) -> int | None:
        """The published version."""
        return None if self.saved_model is None else int(Path(self.saved_model).name)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Reads `pushed.json`; None if it does not exist."""
        path = folder / "pushed.json"
        return cls(**folders.read_json(path)) if path.is_file() else None

    def describe(self) -> Iterator[str]:
        """Returns the outcome as lines of text."""
        if self.champion is not None:
            agreement = self.beside["top_10_agreement"]
            yield f"compared with {self.champion}: {agreement:.0%} of the first {TOP} items agree"
        times = {name: x["p99"] for name, x in self.beside["milliseconds"].items()}
        yield ", ".join(f"{name}: {x:.1f} ms per list (p99)" for name, x in times.items())
        yield self.saved_model or "not published"


def side_by_side(ours: Scorer, champion: Scorer | None, lists: Iterable[Tensors]) -> dict[str, Any]:
    """Measures the latency of two models, and the agreement of their first items.

    Args:
        ours: Scoring function of our model.
        champion: Scoring function of the other model.
        lists: Inputs of the models, one list at a time; the first 200 are used.

    Returns:
        `milliseconds`, with the median `p50` and the 99th percentile `p99` of each model, and
        `top_10_agreement`, the mean share of our first 10 items that are also among the first 10 of
        the other model.
    """
    models = {"ours": ours, **({"champion": champion} if champion else {})}
    times: dict[str, list[float]] = {name: [] for name in models}
    agreements = []
    tried = list(itertools.islice(lists, _TRIED))
    for model in models.values():  # warms up: allocates memory and compiles
        model(tried[0])
    for inputs in tried:
        tops = []
        for name, model in models.items():
            began = time.perf_counter()
            scores = model(inputs).numpy()[0]
            times[name].append(1e3 * (time.perf_counter() - began))
            tops.append(set(np.argsort(-scores, kind="stable")[:TOP].tolist()))
        agreements.append(len(tops[0] & tops[-1]) / len(tops[0]))
    figures: dict[str, Any] = {
        "milliseconds": {
            name: dict(zip(("p50", "p99"), np.percentile(x, [50, 99]).tolist(), strict=True))
            for name, x in times.items()
        }
    }
    return {**figures, "top_10_agreement": float(np.mean(agreements))} if champion else figures


def push(run: "Run", folder: Path) -> None:
    """Compares the exported model with the served one, and publishes it if it passes.

    Args:
        run: The run, whose model is exported.
        folder: Folder to write to: `blessing.json` and `pushed.json`.
    """
    configuration, job, test = run.configuration, run.job, run.splits["test"]
    ours, before, digest = run.exported_model, run.push_outcome, run.step_manifests["export"].digest
    saved_model = Path(ours.folder)
    leaks = leakage.read(run.output / "analyze" / "anomalies" / "train.json")
    serving, chosen = configuration.serving, configuration.blessing.champion
    releases = Releases(job.serving_folder, serving.model_name)
    with run.progress.step("push") as step:
        published = _existing_version(saved_model, digest, job.serving_folder, before, serving)
        served = releases.served_folder() if chosen is None else chosen or None
        damaged = None
        if before is not None and published is None and _is_of(saved_model, before.saved_model):
            damaged = before.saved_model
            step.tell(f"{damaged} was damaged: the model is published again")
        champion = None if served in (published, damaged) else served
        if champion is not None:
            _check_published(champion)
        theirs = None if champion is None else RecordScorer(champion, test.layout.features)
        lists = stored_lists.lists(test.shards, test.spec)
        one_by_one = (stored_lists.batch_of(item_list, test.spec) for item_list in lists)
        compared = side_by_side(ours, theirs, one_by_one)
        judged = None
        if theirs is not None:
            judged = evaluation.evaluate(
                ours,
                theirs,
                test,
                str(folder),
                seed=run.settings.seed,
                against="champion",
                gain=run.settings.gain,
                has_irrelevant=test.has_irrelevant or configuration.blessing.metric == "MRR",
                pipeline=runners.pipeline(run.options),
            )
        blessed = blessing.bless(
            run.evaluation,
            configuration.blessing,
            champion=judged,
            milliseconds=compared["milliseconds"]["ours"]["p99"],
            leaks=leaks,
        )
        figures = {**blessed.figures(), "champion": judged and judged.figures()}
        folders.write_json(folder / "blessing.json", figures)
        version = None
        if blessed.blessed:
            version = releases.publish(
                saved_model,
                serving.version,
                canary=serving.canary,
                published=None if published is None else int(Path(published).name),
            )
        pushed = Pushed(blessed.blessed, blessed.reasons, version, champion, digest, compared)
        folders.write_json(folder / "pushed.json", dataclasses.asdict(pushed))
        for line in pushed.describe():
            step.tell(line)


def _existing_version(
    saved_model: Path, digest: str, base: str, before: Pushed | None, serving: Serving
) -> str | None:
    """The published version of this export in the configured folder and under its name, if any."""
    if before is None or before.saved_model is None or before.digest != digest:
        return None
    version = before.version if serving.version is None else serving.version
    target = stores.join(base, serving.model_name, str(version))
    return target if stores.difference(target, saved_model) is None else None


def _is_of(saved_model: Path, version: str | None) -> bool:
    """Whether a version was published from a SavedModel, as its digests tell, damaged or not."""
    listing = stores.join(version or "", artefacts.DIGESTS)
    if version is None or not stores.is_file(listing):
        return False
    with stores.open_file(listing) as file:
        content: bytes = file.read()
    is_listed = content == artefacts.text(artefacts.digests(saved_model), KIND).encode()
    return is_listed or stores.difference(version, saved_model) == listing


def _check_published(champion: str) -> None:
    """Checks that a served version is as it was published."""
    try:
        artefacts.check(Path(stores.near_folder(champion)), KIND)
    except (OSError, ValueError) as error:
        raise rejection(champion, "expected a SavedModel as it was published", error) from error
