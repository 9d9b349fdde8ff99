"""Files of ONNX, which any of its runtimes reads without TensorFlow."""

from pathlib import Path

import keras

from tfrank_sel import keras_versions
from tfrank_sel.arguments import StrPath
from tfrank_sel.locks import atomic_path


def write(model: keras.Model, path: StrPath) -> None:
    """Writes the file of `tfrank_sel.export.onnx`."""
    if not keras_versions.IS_KERAS_3:
        raise ImportError("`export.onnx` requires Keras 3")
    try:
        from tfrank_sel.onnx import rankers
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise ImportError("`export.onnx` needs onnx: pip install 'tfrank_sel[onnx]'") from error
    with atomic_path(Path(path)) as written:
        written.write_bytes(rankers.serialize(model))
