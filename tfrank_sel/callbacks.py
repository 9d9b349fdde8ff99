"""What changes while a model trains."""

from collections.abc import Callable
from typing import Any

import keras

from tfrank_sel.losses.topk import SmoothTopKLoss


class AnnealTau(keras.callbacks.Callback):
    """Sets the temperature of a smooth top-k loss before every training step.

    A small temperature is close to what counts in the end, but it leaves most items without a
    gradient, and so training is better begun with a large one. The step that is compiled reads the
    temperature from a variable: changing it traces and compiles nothing anew.

    Args:
        loss: The loss, as the model was compiled with it.
        schedule: Maps the number of steps that the model's optimizer has taken to the temperature,
            e.g. a `keras.optimizers.schedules.ExponentialDecay`.

    Example:
        >>> import keras
        >>> from tfrank_sel import callbacks
        >>> loss = losses.SmoothTopKLoss(5)
        >>> model = keras.Sequential([keras.layers.Dense(20)])
        >>> model.compile("sgd", loss, jit_compile=True)
        >>> anneal = callbacks.AnnealTau(loss, lambda step: max(0.1, 0.5**step))
        >>> history = model.fit(
        ...     tf.zeros([64, 8]), tf.zeros([64]), batch_size=32, verbose=0, callbacks=[anneal]
        ... )
        >>> history.history["tau"]  # of the last step of each epoch
        [0.5]
    """

    def __init__(self, loss: SmoothTopKLoss, schedule: Callable[[int], Any]) -> None:
        super().__init__()
        self.loss = loss
        self.schedule = schedule

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets the temperature of the step that is about to be taken."""
        tau = float(self.schedule(int(self.model.optimizer.iterations)))
        if not tau > 0.0:
            raise ValueError(f"`schedule` must return positive temperatures. Received: {tau}")
        self.loss.current_tau.assign(tau)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the temperature to the logs."""
        if logs is not None:
            logs["tau"] = float(self.loss.current_tau.numpy())
