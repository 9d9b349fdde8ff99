"""Losses that are averaged over samples of noise."""

import abc
import functools
import random
from typing import Any

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Count, Positive
from tfrank_sel.compilation import Formula
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


class SampledLoss(ListwiseLoss):
    """A loss averaged over samples of Gumbel noise, with new samples at each call.

    A subclass implements `of_noise`, a stateless function of the noise. The state of the noise is a
    variable, which advances in eager mode, in a graph and under XLA.

    Args:
        sample_size: Number of samples of each list; positive.
        seed: Seed of the noise: the n-th call on inputs of one shape then has the same noise in
            every run, but XLA draws different noise. If `None`, a seed is drawn from Python's
            random numbers, which `keras.utils.set_random_seed` seeds.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `sample_size` is not positive.

    Inputs: as in `ListwiseLoss`. The noise of padding is ignored.
    """

    @property
    @abc.abstractmethod
    def sample_size(self) -> int:
        """Number of samples of each list."""

    @property
    @abc.abstractmethod
    def seed(self) -> int | None:
        """Seed of the noise."""

    def __post_init__(self) -> None:
        drawn = random.getrandbits(63) if self.seed is None else self.seed
        # also a variable, so that a resumed training can restore it
        self._seed = xp.Variable(drawn, trainable=False, dtype=xp.int64, name="seed")
        self._calls = xp.Variable(0, trainable=False, dtype=xp.int64, name="calls")

    @abc.abstractmethod
    def of_noise(
        self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor, noise: Tensor
    ) -> Tensor:
        """Computes the loss of each list for `noise`, `[batch_size, sample_size, list_size]`."""

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Draws noise and computes the loss of each list."""
        batch_size, list_size = xp.unstack(xp.shape(scores))
        shape = [batch_size, self.sample_size, list_size]
        seed = xp.stack([self._seed, self._calls.assign_add(1)])
        least = np.finfo(scores.dtype.name).tiny  # the noise of 0 would be infinite
        # under XLA, the default algorithm takes ten times as long as Philox
        uniform = xp.stateless_uniform(shape, seed, least, 1.0, scores.dtype, alg="philox")
        noise = -xp.log(-xp.log(uniform))
        return self.of_noise(labels, scores, mask, weights, noise)

    @functools.cached_property
    def shared_formula(self) -> Formula:
        """`or_nan`, also in eager mode, with the same noise for value and gradient."""
        return self.or_nan

    def samples_of(self, *fields: Tensor) -> list[Tensor]:
        """Repeats each list once per sample, `[batch_size * sample_size, list_size]`."""
        return [xp.repeat(x, self.sample_size, axis=0) for x in fields]

    def mean_of(self, values: Tensor) -> Tensor:
        """Averages the samples of each list, from `[batch_size * sample_size]`."""
        return xp.reduce_mean(xp.reshape(values, [-1, self.sample_size]), axis=1)


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

    @property
    def takes_minus_infinity(self) -> bool:
        """As of the loss."""
        return self.loss.takes_minus_infinity

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras as the loss does."""
        return self.loss.batch_of(y_true, y_pred, sample_weight, dtype)

    def of_noise(
        self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor, noise: Tensor
    ) -> Tensor:
        """Averages the loss over the samples of each list."""
        if self.loss.ignores_level:  # so that the sum with the noise keeps the digits of both
            scores = masking.centre(scores, mask)
        labels, scores, mask, weights = self.samples_of(labels, scores, mask, weights)
        noisy = (scores + xp.reshape(noise, xp.shape(scores))) / self.temperature
        return self.mean_of(self.loss.shared_formula(labels, noisy, mask, weights))
