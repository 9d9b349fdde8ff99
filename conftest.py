"""Quiet TensorFlow, what needs TFX, and how the examples in docstrings run."""

import gc
import importlib.util
import os
from collections.abc import Iterator
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
# `make test-jax` has JAX
if importlib.util.find_spec("jax") is None:
    collect_ignore += ["tfrank_sel/numerics/jax.py"]
# nor do other tests than `make test-engines` and `make test-kubernetes` need what these build
collect_ignore += ["tests/engines", "tests/kubernetes"]


# imported by the processes that run tests, and not by the one that hands them out
@pytest.fixture(autouse=True, scope="session")
def _names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    import numpy as np

    from tfrank_sel import numerics

    if numerics.NAME != "tensorflow":
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


@pytest.fixture(autouse=True)
def _examples_of_formulas_run_eagerly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without a graph for one call: `tests/contracts` has them in graphs."""
    is_example = isinstance(request.node, pytest.DoctestItem)
    if not is_example or request.path.parent.name not in ("links", "losses", "metrics"):
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
