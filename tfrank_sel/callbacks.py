"""Keras callbacks: annealing of a temperature, and charts of bounds."""

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import bounds
from tfrank_sel.arguments import Checked, Positive
from tfrank_sel.errors import refusal
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.topk import SmoothTopKLoss
from tfrank_sel.ops import masking


class AnnealTau(Checked, keras.callbacks.Callback):
    """Sets the temperature of a smooth top-k loss before every training step.

    With `steps_per_execution`, Keras calls it once for so many steps, which have one temperature.

    A small temperature is close to the top-k error, but leaves most items without a gradient, so
    training should begin with a large one. The compiled step reads the temperature from a variable:
    changing it does not retrace or recompile.

    Args:
        loss: The loss with which the model was compiled.
        schedule: Maps the number of optimizer steps to the temperature, for example a
            `keras.optimizers.schedules.ExponentialDecay`.

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
        """Sets the temperature of the next step."""
        tau = float(self.schedule(int(self.model.optimizer.iterations.numpy())))
        if not tau > 0.0:
            raise refusal("`schedule` must return positive temperatures", tau)
        self.loss.current_tau.assign(tau)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the temperature to the logs."""
        if logs is not None:
            logs["tau"] = float(self.loss.current_tau.numpy())


class LogSoftmaxBounds(Checked, keras.callbacks.Callback):
    """Plots loss, bound and metrics of a validation set in one TensorBoard chart.

    At the end of each epoch it writes, under the tag `softmax_bounds`, the mean `loss`, the `bound`
    `exp(-loss)`, and the means `rr`, `ap` and `ndcg`, each as a separate run: TensorBoard plots
    runs of one tag in one chart. Lists without a relevant item do not count.

    Args:
        log_dir: Folder of the logs; each run is a subfolder.
        validation_data: Batches `(features, labels)` or `(features, labels, weights)`, as a
            `tf.data.Dataset`; weights are those of lists, or of items, whose mean is their list's.
        temperature: Divides the scores in the loss; positive.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> import pathlib, tempfile
        >>> import keras
        >>> from tfrank_sel import callbacks
        >>> labels = tf.constant([[1.0, 0.0, 0.0]])
        >>> data = tf.data.Dataset.from_tensors((tf.zeros([1, 2]), labels))
        >>> model = keras.Sequential([keras.layers.Dense(3)])
        >>> model.compile("sgd", losses.SoftmaxLoss())
        >>> with tempfile.TemporaryDirectory() as log_dir:
        ...     log = callbacks.LogSoftmaxBounds(log_dir, data)
        ...     history = model.fit(data, verbose=0, callbacks=[log])
        ...     sorted(run.name for run in pathlib.Path(log_dir).iterdir())
        ['ap', 'bound', 'loss', 'ndcg', 'rr']
    """

    tag = "softmax_bounds"

    def __init__(
        self,
        log_dir: str | pathlib.Path,
        validation_data: tf.data.Dataset,
        temperature: Positive = 1.0,
    ) -> None:
        super().__init__()
        self.validation_data = validation_data
        self.temperature = temperature
        self.log_dir = pathlib.Path(log_dir)
        self._writers: dict[str, Any] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Opens a run for each curve."""
        self._writers = {
            name: tf.summary.create_file_writer(str(self.log_dir / name))
            for name in bounds.SoftmaxBounds._fields
        }

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluates the validation set and writes a point of each curve."""
        means = {n: keras.metrics.Mean() for n in bounds.SoftmaxBounds._fields if n != "bound"}
        for features, labels, *weights in self.validation_data:
            scores = self.model(features, training=False)
            values = bounds.softmax_bounds(labels, scores, self.temperature)
            counted = tf.cast(values.ndcg > 0.0, tf.float32)
            if weights:
                batch = ListBatch.of(labels, scores, weights[0], min_label=0.0, dtype="float32")
                counted *= batch.list_weights * masking.masked_mean(batch.weights, batch.mask)
            for name, mean in means.items():
                mean.update_state(getattr(values, name), counted)
        points = {name: mean.result() for name, mean in means.items()}
        points["bound"] = tf.exp(-points["loss"])
        for name, writer in self._writers.items():
            with writer.as_default(step=epoch):
                tf.summary.scalar(self.tag, points[name])
            writer.flush()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Closes the files."""
        for writer in self._writers.values():
            writer.close()
