"""Quiet TensorFlow, what needs TFX, and the names that the examples in docstrings use."""

import gc
import importlib.util
import os
import pathlib
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

# looking for garbage every 700 objects, of which TensorFlow makes many, takes a sixth of the time
gc.set_threshold(20_000, 20, 20)

# mistakes on purpose, for mypy and pyright
collect_ignore = ["tests/wrong_calls.py"]
# TFX has an environment of its own: `make test-tfx`
if importlib.util.find_spec("tfx") is None:
    collect_ignore += ["tfrank_sel/pipelines/tfx", "tests/tfx"]
# nor is Java where other tests run: `make test-engines`
if not (pathlib.Path(__file__).parent / "build/engines/installed").exists():
    collect_ignore.append("tests/engines")
# nor is an API server of Kubernetes: `make test-kubernetes`
if not (pathlib.Path(__file__).parent / "build/kubernetes/installed").exists():
    collect_ignore.append("tests/kubernetes")


# imported by the processes that run tests, and not by the one that hands them out
@pytest.fixture(autouse=True, scope="session")
def _names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    import numpy as np

    if importlib.util.find_spec("tensorflow") is None:
        return
    import tensorflow as tf

    import tfrank_sel

    doctest_namespace.update(
        np=np,
        tf=tf,
        distribution=tfrank_sel.distribution,
        links=tfrank_sel.links,
        losses=tfrank_sel.losses,
        metrics=tfrank_sel.metrics,
        objectives=tfrank_sel.objectives,
        presets=tfrank_sel.presets,
    )
