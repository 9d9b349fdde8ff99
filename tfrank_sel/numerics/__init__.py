"""The functions of tensors of which formulas are made, of the backend that Keras has.

`NAME` is chosen when this is imported: Keras' backend, by the same variable and file as Keras'; if
that is none of `BACKENDS`, the first of these that is installed. Type checkers read the functions
of TensorFlow.
"""

import importlib.util
import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING

BACKENDS = ("tensorflow", "jax")


def _of_keras() -> str | None:
    """The backend that Keras has, or will have."""
    if "keras" in sys.modules:
        return sys.modules["keras"].backend.backend()
    if name := os.environ.get("KERAS_BACKEND"):
        return name
    home = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    try:
        return json.loads(pathlib.Path(home, "keras.json").read_text(encoding="utf-8")).get(
            "backend"
        )
    except (OSError, ValueError):
        return None


NAME = _of_keras()
if NAME not in BACKENDS:
    NAME = next(filter(importlib.util.find_spec, BACKENDS), BACKENDS[0])

if TYPE_CHECKING or NAME == "tensorflow":
    from tfrank_sel.numerics.tensorflow import *  # noqa: F403
else:
    from tfrank_sel.numerics.jax import *  # noqa: F403
