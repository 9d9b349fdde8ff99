"""Expectation of any loss over noisy scores."""

from typing import Any

import tensorflow as tf

from tfrank_sel.arguments import Count, Positive
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.bases.sampled import SampledLoss
from tfrank_sel.serialization import register


@register
class GumbelLoss(SampledLoss):
    """Mean of another loss over scores with Gumbel noise.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_k loss(y, (s + g_k) / temperature)
    g_ki = -log(-log(u_ki)),  u_ki uniform in (0, 1)
    ```

    The order of `s + g` follows the Plackett-Luce model of `s`. With the noise, a loss of one order
    also depends on other orders, above all where scores are nearly tied. For example, this smooths
    `ApproxNDCGLoss`, whose gradient vanishes away from ties.

    Args:
        loss: The loss, such as `ApproxNDCGLoss()` or `NeuralSortNDCGLoss()`; its own reduction is
            ignored.
        sample_size: Number of samples of each list; positive.
        temperature: Divides the noisy scores; positive.
        seed: Seed of the noise: the n-th call on inputs of one shape then has the same noise in
            every run. If `None`, a seed is drawn from Python's random numbers, which
            `keras.utils.set_random_seed` seeds.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `sample_size` or `temperature` is not positive.

    Inputs: as in the loss, which takes one score of an item.

    Example:
        >>> loss = losses.GumbelLoss(losses.ApproxNDCGLoss(), sample_size=64, seed=1)
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 0.0, 9.0]])
        >>> -1.0 < float(loss(y_true, y_pred)) < -0.63  # now one item is first, now the other
        True

    Reference:
        [Bruch et al., A Stochastic Treatment of Learning to Rank Scoring Functions, 2020](
        https://dl.acm.org/doi/10.1145/3336191.3371844).
    """

    loss: ListwiseLoss
    sample_size: Count = 8
    temperature: Positive = 1.0
    seed: int | None = None

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras as the loss does."""
        return self.loss.batch_of(y_true, y_pred, sample_weight, dtype)

    def of_noise(
        self,
        labels: tf.Tensor,
        scores: tf.Tensor,
        mask: tf.Tensor,
        weights: tf.Tensor,
        noise: tf.Tensor,
    ) -> tf.Tensor:
        """Averages the loss over the samples of each list."""
        labels, scores, mask, weights = self.samples_of(labels, scores, mask, weights)
        noisy = (scores + tf.reshape(noise, tf.shape(scores))) / self.temperature
        return self.mean_of(self.loss.checked(labels, noisy, mask, weights))
