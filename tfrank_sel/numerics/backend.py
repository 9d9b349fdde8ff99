"""The backend of Keras, whose tensors formulas compute with.

It is, in this order: that of Keras, if that is imported; the variable KERAS_BACKEND; that of Keras'
own file, TensorFlow, JAX, NumPy, if it is installed. If that is JAX, Keras gets it by the variable.
"""

import importlib.util
import json
import os
import pathlib
import sys

BACKENDS = ("tensorflow", "jax", "numpy")


def _of_file() -> str | None:
    """The backend in Keras' file, which Keras writes when it is first imported."""
    home = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    try:
        text = pathlib.Path(home, "keras.json").read_text(encoding="utf-8")
        return json.loads(text).get("backend")
    except (OSError, ValueError):
        return None


def _of_keras() -> str:
    """The backend that Keras has, or will have."""
    if "keras" in sys.modules:
        return sys.modules["keras"].backend.backend()
    if name := os.environ.get("KERAS_BACKEND"):
        return name
    names = filter(None, (_of_file(), *BACKENDS))
    name = next(filter(importlib.util.find_spec, names))
    if name == "jax":
        os.environ["KERAS_BACKEND"] = name
    return name


NAME = _of_keras()
if NAME not in BACKENDS:  # `keras_bases` refuses it
    NAME = next(filter(importlib.util.find_spec, BACKENDS))
