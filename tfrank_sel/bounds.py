"""What the softmax cross-entropy says about metrics: a bound, and a chart of both."""

import pathlib
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrank_sel import losses, metrics
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.targets import Shares
from tfrank_sel.ops import ranking


class SoftmaxBounds(NamedTuple):
    """Metrics of each list beside the bound of its softmax cross-entropy, all `[batch_size]`.

    Attributes:
        loss: The softmax cross-entropy, towards the gains `2**y - 1`.
        bound: `exp(-loss)`; at most each metric. It is 1 for a list without a relevant item.
        rr: The reciprocal rank.
        ap: The average precision, which `bound` bounds where relevance is binary.
        ndcg: The NDCG.
    """

    loss: tf.Tensor
    bound: tf.Tensor
    rr: tf.Tensor
    ap: tf.Tensor
    ndcg: tf.Tensor


def softmax_bounds(
    y_true: Any, y_pred: Any, temperature: float = 1.0, dtype: str = "float32"
) -> SoftmaxBounds:
    """Puts `exp(-loss)` beside the metrics that it bounds from below.

    ```
    exp(sum_i t_i * log softmax(s / temperature)_i) <= RR, NDCG, and AP of binary relevances
    ```

    where `t` are the shares of the gains `2**y - 1`. An item of rank `r`, last among its ties, has
    at most the probability `1 / r`, for `r` items at least have as large a score. The metrics break
    ties in favour of the less relevant item. By Jensen's inequality, `exp(-mean loss)` bounds the
    means.

    Args:
        y_true: Relevances, as in `ListwiseLoss`.
        y_pred: Scores.
        temperature: Divides the scores in the loss; the bound holds for any.
        dtype: The dtype of the computation.

    Returns:
        Loss, bound and metrics of each list. A list without a relevant item has metrics 0, which no
        bound holds for.

    Example:
        >>> y_true = tf.constant([[0.0, 1.0, 0.0]])
        >>> values = softmax_bounds(y_true, tf.constant([[2.0, 2.0, -99.0]]))
        >>> round(float(values.bound[0]), 4), round(float(values.rr[0]), 4)  # it can be met
        (0.5, 0.5)

    Reference:
        [Bruch et al., An Analysis of the Softmax Cross Entropy Loss for Learning-to-Rank with
        Binary Relevance, 2019](https://dl.acm.org/doi/10.1145/3341981.3344221).
    """
    batch = ListBatch.of(y_true, y_pred, None, min_label=0.0, dtype=dtype)
    # ties keep the order of the list: the least relevant items go first
    labels, scores, mask = ranking.sort_by(
        -batch.labels, batch.labels, batch.scores, batch.mask, mask=batch.mask
    )
    args = (labels, scores, mask, tf.cast(mask, dtype))
    gains = Shares(ranking.exponential_gain)
    loss = losses.SoftmaxLoss(temperature, gains, dtype=dtype).compiled(*args)
    measures = (metrics.MRR, metrics.MAP, metrics.NDCG)
    values = (make(dtype=dtype).compiled(*args) for make in measures)
    return SoftmaxBounds(loss, tf.exp(-loss), *values)


class SoftmaxBoundsCallback(keras.callbacks.Callback):
    """Draws loss, bound and metrics of a validation set as one TensorBoard chart.

    At the end of each epoch it writes, under the one tag `softmax_bounds`, the mean `loss`, the
    `bound` `exp(-loss)`, and the means `rr`, `ap` and `ndcg`, each as a run of its own: TensorBoard
    draws runs of one tag into one chart. Lists without a relevant item do not count.

    Args:
        log_dir: Folder of the logs; the runs are folders in it.
        validation_data: Batches `(features, labels)`, as a `tf.data.Dataset`.
        temperature: Divides the scores in the loss.

    Example:
        >>> data = tf.data.Dataset.from_tensors((tf.zeros([2, 3]), tf.constant([[1.0, 0, 0]] * 2)))
        >>> callback = SoftmaxBoundsCallback("/tmp/softmax_bounds", data)
    """

    tag = "softmax_bounds"

    def __init__(
        self,
        log_dir: str | pathlib.Path,
        validation_data: tf.data.Dataset,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.validation_data = validation_data
        self.temperature = temperature
        self._writers = {
            name: tf.summary.create_file_writer(str(pathlib.Path(log_dir) / name))
            for name in SoftmaxBounds._fields
        }

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluates the validation set and writes a point of each line."""
        means = {n: keras.metrics.Mean() for n in SoftmaxBounds._fields if n != "bound"}
        for features, labels in self.validation_data:
            values = softmax_bounds(labels, self.model(features, training=False), self.temperature)
            # a metric of a list with a relevant item is positive
            for name, mean in means.items():
                mean.update_state(getattr(values, name), tf.cast(values.ndcg > 0.0, tf.float32))
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
