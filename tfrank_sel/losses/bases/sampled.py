"""Base of the losses that are averaged over samples of noise."""

import abc
import functools
import random

import numpy as np
import tensorflow as tf

from tfrank_sel.compilation import Formula
from tfrank_sel.losses.bases.listwise import ListwiseLoss


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
        self._seed = tf.Variable(drawn, trainable=False, dtype=tf.int64, name="seed")
        self._calls = tf.Variable(0, trainable=False, dtype=tf.int64, name="calls")

    @abc.abstractmethod
    def of_noise(
        self,
        labels: tf.Tensor,
        scores: tf.Tensor,
        mask: tf.Tensor,
        weights: tf.Tensor,
        noise: tf.Tensor,
    ) -> tf.Tensor:
        """Computes the loss of each list for `noise`, `[batch_size, sample_size, list_size]`."""

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Draws noise and computes the loss of each list."""
        batch_size, list_size = tf.unstack(tf.shape(scores))
        shape = [batch_size, self.sample_size, list_size]
        seed = tf.stack([self._seed, self._calls.assign_add(1)])
        least = np.finfo(scores.dtype.as_numpy_dtype).tiny  # the noise of 0 would be infinite
        # under XLA, the default algorithm takes ten times as long as Philox
        uniform = tf.random.stateless_uniform(shape, seed, least, 1.0, scores.dtype, alg="philox")
        noise = -tf.math.log(-tf.math.log(uniform))
        return self.of_noise(labels, scores, mask, weights, noise)

    @functools.cached_property
    def checked(self) -> Formula:
        """`or_nan`, also in eager mode, with the same noise for value and gradient."""
        return self.or_nan

    def samples_of(self, *fields: tf.Tensor) -> list[tf.Tensor]:
        """Repeats each list once per sample, `[batch_size * sample_size, list_size]`."""
        return [tf.repeat(x, self.sample_size, axis=0) for x in fields]

    def mean_of(self, values: tf.Tensor) -> tf.Tensor:
        """Averages the samples of each list, from `[batch_size * sample_size]`."""
        return tf.reduce_mean(tf.reshape(values, [-1, self.sample_size]), axis=1)
