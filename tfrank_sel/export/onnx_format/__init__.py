"""Export of models as files of ONNX, which any of its runtimes reads without TensorFlow."""

import os
from pathlib import Path

import keras

from tfrank_sel import keras_versions
from tfrank_sel.locks import created


def onnx(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a ranker as a file of ONNX. Requires the extra `onnx`.

    The graph has only standard operators (opset 18), computes in float32 and float64, and takes any
    number of lists of any size. Its inputs are those of the signature `predict` of `export`:

    * `features`, float32 `[batch, items, num_features]`; or each feature of a typed
      `models.Preparation` under its name, as in `export`;
    * `mask`, Boolean `[batch, items]` or broadcast to it, True for an item; optional, and only if
      the model has `takes_mask`;
    * `user`, int64 `[batch]`, and `item`, int64 `[batch, items]`, of a `models.TwoTower`;
    * of a functional model, its own inputs by name, or `features` if it has one.

    The output is `scores`, float32 `[batch, items]`. Scores of padding are the lowest finite
    float32 if there is a mask. A `models.TwoTower` has two more outputs, the vectors `users`
    `[batch, num_factors]` and `items` `[batch, items, num_factors]`.

    Unlike `predict`, the graph does not check that features are finite. Texts match the usual
    spellings of the values of a vocabulary: `True`, `7.0`, and times in ISO format.

    Args:
        model: A model of `tfrank_sel.models`, or a `keras.Sequential` or functional model of
            standard layers; built.
        path: File to write; it must not exist.

    Raises:
        FileExistsError: If `path` exists, or another process is writing it.
        ImportError: If the package `onnx` is not installed, or Keras is older than 3.
        ValueError: If the model has a layer, or an option of a layer, that has no form in ONNX; if
            the scores have the wrong shape; or if the file would have 2 GB or more. No file is
            written then.

    Example:
        ```python
        export.onnx(model, "ranker.onnx")
        session = onnxruntime.InferenceSession("ranker.onnx")
        [scores] = session.run(["scores"], {"features": features, "mask": mask})
        ```
    """
    if not keras_versions.IS_KERAS_3:
        raise ImportError("`export.onnx` requires Keras 3")
    try:
        from tfrank_sel.export.onnx_format import rankers
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise ImportError("`export.onnx` needs onnx: pip install 'tfrank_sel[onnx]'") from error
    with created(Path(path)) as written:
        written.write_bytes(rankers.serialized(model))
