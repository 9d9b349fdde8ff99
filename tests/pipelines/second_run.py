"""Small runs, and what they leave that another run of the same configuration must leave, too."""

import contextlib
import dataclasses
import json
import re
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from rich.console import Console

from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.configuration import Configuration, Override, load
from tfrank_sel.pipelines.configuration.section import Section
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.run import execution
from tfrank_sel.pipelines.run.plan import Plan
from tfrank_sel.pipelines.run.results import Run
from tfrank_sel.pipelines.run.steps import STEPS, RunStep

SMALL = {
    "training.epochs": 2,
    "training.learning_rate": 0.05,
    "training.loss": [{"class": "SoftmaxLoss"}],
    "model.hidden_units": [4],
    "model.num_heads": 0,
    "model.trees": False,
    "evaluation.baseline": False,
    "features": {"x": "number", "y": "number"},
    "data.split": [60.0, 20.0, 20.0],
}
SECTIONS = {type(getattr(Configuration(), name)) for name in Configuration.model_fields} - {
    dict,
    list,
}
# what differs in each run: its folder, times of day and durations
_TIMES = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?(\+00:00)?)?)?"


def configured(**more: Any) -> Configuration:
    """The configuration of a small run, with more keys."""
    return load(None, [Override(key, x, key) for key, x in {**SMALL, **more}.items()])


def graded(folder: Path, seed: int = 0) -> str:
    """A table of labels from 0 to 2, with a column of the query, some of which has no value."""
    random = np.random.default_rng(seed)
    lines = ["query_id,doc_id,relevance,x,y,market,shop,w"]
    for query in range(90):
        market = "" if query % 7 == 0 else query % 4
        for item in range(5):
            x, y = random.normal(size=2)
            label = int(x + 0.5 * random.normal() > 0) + int(x > 1)
            shop, weight = "ab"[query % 2], 1 + item % 2
            lines.append(f"q{query},d{item},{label},{x:.4f},{y:.4f},{market},{shop},{weight}")
    path = folder / f"{seed}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def run(configuration: Configuration, output: Path, only: str | None = None) -> Run | None:
    """Runs all steps, or one; None if a gate ends the run."""
    try:
        quiet = Progress(Console(quiet=True))
        return execution.run(configuration, output, quiet, only=only)
    except GateError:
        return None


def plan(configuration: Configuration, output: Path) -> Plan:
    """What is to be run."""
    return Plan.of(Job.of(configuration, output))


def of_no_time(patch: Any) -> None:
    """Makes durations 0 that a run measures, so that its pages can be compared."""
    clock = types.SimpleNamespace(perf_counter=lambda: 0.0)
    patch.setattr("tfrank_sel.pipelines.push.step.time", clock)
    patch.setattr(Run, "seconds", property(lambda run: {}))


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, set[str]]]:
    """Collects the keys of the configuration that each step reads."""
    reads: dict[str, set[str]] = {}
    own = {field.annotation: name for name, field in Configuration.model_fields.items()}
    now: list[str] = []

    def note(section: Any, names: Iterable[str]) -> None:
        kind = type(section)
        if not now or kind not in (*own, Configuration):
            return
        for name in names:
            key = kind.model_fields[name].alias or name
            if kind is not Configuration:
                reads[now[0]].add(f"{own[kind]}.{key}")
            elif kind.model_fields[name].annotation not in SECTIONS:
                reads[now[0]].add(key)

    def get(section: Any, name: str) -> Any:
        if name in type(section).model_fields:
            note(section, [name])
        return object.__getattribute__(section, name)

    def each(section: Any) -> Any:
        note(section, type(section).model_fields)
        return BaseModel.__iter__(section)

    def taking(step: RunStep) -> RunStep:
        def take(run: Run, folder: Path) -> None:
            now[:] = [step.name]
            reads[step.name] = set()
            step.take(run, folder)
            now.clear()

        return dataclasses.replace(step, take=take)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Section, "__getattribute__", get, raising=False)
        patch.setattr(Section, "__iter__", each, raising=False)
        for name, step in STEPS.items():
            patch.setitem(STEPS, name, taking(step))
        yield reads


def results(output: Path) -> dict[str, Any]:
    """Numbers, gates, page and card of a run, without its folder and times."""
    names = ("analyze/**/*.json", "analyze/*.pbtxt", "train/*.json", "evaluate/*.json")
    names += ("push/*.json", "export/**/MODEL_CARD.md", "export/one*", "report.html")
    paths = (x for name in names for x in sorted(output.glob(name)) if x.name != "manifest.json")
    return {str(x.relative_to(output)): _told(x, output) for x in paths}


def _told(path: Path, output: Path) -> Any:
    text = path.read_text(encoding="utf-8").replace(str(output), "RUN")
    if path.suffix == ".json":
        return _numbers(json.loads(text))
    text = re.sub(r"<!-- \w+ -->", "", text)
    text = re.sub(r"(?m)^( *<tr><td>ours<td>.*)(<td class=.n.>[\d.,]+){2}$", r"\1", text)
    return re.sub(_TIMES, "TIME", text).splitlines()


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("seconds_per_step", "items_per_second", "lists_per_second", "digest")
        return {key: _numbers(x) for key, x in value.items() if key not in left_out}
    return [_numbers(x) for x in value] if isinstance(value, list) else value
