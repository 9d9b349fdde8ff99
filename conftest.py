"""Quiet TensorFlow, and the names that the examples in docstrings use."""

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf

import tfrank_sel


@pytest.fixture(autouse=True)
def _names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(
        np=np,
        tf=tf,
        links=tfrank_sel.links,
        losses=tfrank_sel.losses,
        metrics=tfrank_sel.metrics,
    )
