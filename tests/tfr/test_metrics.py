"""Our metrics beside those of tensorflow-ranking, in one process, on the same random lists."""

from typing import Any

import numpy as np
import pytest

from tfrank_sel import metrics

pytestmark = pytest.mark.usefixtures("eagerly")

tfr = pytest.importorskip("tensorflow_ranking")


def random_batches(rng: np.random.Generator, kind: str) -> list[Any]:
    """Lists with padding, without ties, each with a relevant item: there, both mean the same."""
    batches = []
    for size in (7, 4):
        scores = rng.permuted(np.linspace(-3.0, 3.0, 5 * size).reshape(5, size), axis=1)
        labels = rng.integers(0, 5, (5, size)).astype(np.float32)
        labels[:, 0] = 1.0
        labels[0, 2:] = labels[1, 3] = -1.0
        shape = {"item": (5, size), "list": (5, 1)}.get(kind)
        weights = None if shape is None else rng.uniform(0.5, 2.0, shape).astype(np.float32)
        batches.append((labels, scores.astype(np.float32), weights))
    return batches


@pytest.mark.parametrize("kind", ["none", "list", "item"])
def test_the_preset_is_that_of_tensorflow_ranking(kind: str) -> None:
    theirs, ours = tfr.keras.metrics.default_keras_metrics(), metrics.tfr()
    assert [m.name for m in ours] == [m.name for m in theirs]
    for batch in random_batches(np.random.default_rng(1), kind):
        for metric in (*ours, *theirs):
            metric.update_state(*batch)
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own.result(), other.result(), rtol=1e-5, err_msg=own.name)
