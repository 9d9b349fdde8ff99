"""What differs between the two Keras versions that the package runs on, and nothing else."""

from typing import Any

import keras

if keras.__version__.startswith("2."):

    class _Keras2Loss(keras.losses.Loss):
        """Gives the losses of Keras 2 the `dtype` that those of Keras 3 have."""

        def __init__(
            self,
            name: str | None = None,
            reduction: str | None = "sum_over_batch_size",
            dtype: str | None = None,
        ) -> None:
            super().__init__(name=name, reduction=reduction or "none")
            self.dtype = dtype or keras.backend.floatx()

        def call(self, y_true: Any, y_pred: Any) -> Any:
            """Computes the loss of each list; a subclass writes it."""
            raise NotImplementedError

    Loss: Any = _Keras2Loss
    # for `Layer.add_weight`: a weight that keeps its dtype under mixed precision
    FULL_PRECISION = {"experimental_autocast": False}
else:
    Loss = keras.losses.Loss
    FULL_PRECISION = {"autocast": False}
