"""The backend of Keras, whose tensors formulas compute with.

It is, in this order: that of Keras, if that is imported; the variable KERAS_BACKEND; that of Keras'
own file, TensorFlow, JAX with Keras, NumPy, if it is installed. If that is JAX, Keras gets it by
the variable.
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
        read = json.loads(pathlib.Path(home, "keras.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return read.get("backend") if isinstance(read, dict) else None


def _is_installed(name: str) -> bool:
    """Whether a backend is installed; losses and metrics on JAX are those of Keras."""
    packages = (name, "keras") if name == "jax" else (name,)
    return all(map(importlib.util.find_spec, packages))


def _of_keras() -> str:
    """The backend that Keras has, or will have."""
    if "keras" in sys.modules:
        return sys.modules["keras"].backend.backend()
    if name := os.environ.get("KERAS_BACKEND"):
        return name
    name = next(filter(_is_installed, filter(None, (_of_file(), *BACKENDS))))
    if name == "jax":
        os.environ["KERAS_BACKEND"] = name
    return name


OF_KERAS = _of_keras()
# `keras_bases` refuses others
NAME = OF_KERAS if OF_KERAS in BACKENDS else next(filter(_is_installed, BACKENDS))
