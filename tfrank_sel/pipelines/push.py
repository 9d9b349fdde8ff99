"""Push of a model: comparison with the served one, and the outcome."""

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrank_sel.pipelines.evaluation.evaluation import Scorer
from tfrank_sel.pipelines.files import folders

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

    def write(self, folder: Path) -> None:
        """Writes `pushed.json`."""
        folders.write_json(folder / "pushed.json", dataclasses.asdict(self))

    def told(self) -> Iterator[str]:
        """Returns the outcome as lines of text."""
        if self.champion is not None:
            agreement = self.beside["top_10_agreement"]
            yield f"beside {self.champion}: {agreement:.0%} of the first {TOP} items agree"
        times = {name: x["p99"] for name, x in self.beside["milliseconds"].items()}
        yield ", ".join(f"{name}: {x:.1f} ms per list (p99)" for name, x in times.items())
        yield self.saved_model or "not published"


def side_by_side(
    ours: Scorer, champion: Scorer | None, lists: Iterable[dict[str, tf.Tensor]]
) -> dict[str, Any]:
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
    for one in tried:
        tops = []
        for name, model in models.items():
            began = time.perf_counter()
            scores = model(one).numpy()[0]
            times[name].append(1e3 * (time.perf_counter() - began))
            tops.append(set(np.argsort(-scores, kind="stable")[:TOP].tolist()))
        agreements.append(len(tops[0] & tops[-1]) / len(tops[0]))
    found: dict[str, Any] = {
        "milliseconds": {
            name: dict(zip(("p50", "p99"), np.percentile(x, [50, 99]).tolist(), strict=True))
            for name, x in times.items()
        }
    }
    return {**found, "top_10_agreement": float(np.mean(agreements))} if champion else found
