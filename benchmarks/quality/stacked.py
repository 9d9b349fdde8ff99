"""Many copies of one small network, trained in parallel with different seeds and settings.

One step of all of them takes little longer than one of each, and is compiled once: an experiment of
sixty trainings takes about a minute a loss. The same training again gives the same networks.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Settings:
    """How one network is trained.

    Args:
        seed: Seed of its first weights.
        learning_rate: Of Adam.
        dropout: Share of the hidden units dropped, in [0, 1).
    """

    seed: int
    learning_rate: float
    dropout: float = 0.0


class Networks:
    """Multilayer perceptrons of one shape; each sees inputs, and has weights, of its own.

    Predictions are of weights averaged over the last steps, which spares them the noise of the last
    batch.

    Args:
        widths: Of the inputs, the hidden layers and the outputs.
        settings: One for each network.
        objective: Of targets and outputs `[networks, ...]`, to a scalar: the sum of the losses of
            the networks. None of them sees the others' gradient.
        decay: Of the averaged weights.
        jit_compile: Whether XLA compiles a step; some peers' losses do not compile.
    """

    def __init__(
        self,
        widths: Sequence[int],
        settings: Sequence[Settings],
        objective: Callable[[Any, tf.Tensor], tf.Tensor],
        decay: float = 0.98,
        jit_compile: bool = True,
    ) -> None:
        self.objective, self.decay = objective, decay
        self.rates = _column([x.learning_rate for x in settings])
        self.dropouts = _column([x.dropout for x in settings])
        weights = [first_weights(widths, x.seed) for x in settings]
        self.weights = [tf.Variable(np.stack(parts)) for parts in zip(*weights, strict=True)]
        self.averages = [tf.Variable(x) for x in self.weights]
        self._means = [tf.Variable(tf.zeros_like(x)) for x in self.weights]
        self._squares = [tf.Variable(tf.zeros_like(x)) for x in self.weights]
        self._steps = tf.Variable(0.0)
        self.step = tf.function(self._step, jit_compile=jit_compile, autograph=False)
        self.predict = tf.function(self._predict, jit_compile=True, autograph=False)

    def _predict(self, inputs: tf.Tensor) -> tf.Tensor:
        return self._outputs(self.averages, inputs, None)

    def _step(self, inputs: tf.Tensor, targets: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = self.objective(targets, self._outputs(self.weights, inputs, self.dropouts))
        gradients = tape.gradient(loss, self.weights)
        steps = self._steps.assign_add(1.0)
        rate = self.rates * tf.sqrt(1.0 - 0.999**steps) / (1.0 - 0.9**steps)
        for i, gradient in enumerate(gradients):
            mean = self._means[i].assign(0.9 * self._means[i] + 0.1 * gradient)
            square = self._squares[i].assign(0.999 * self._squares[i] + 0.001 * gradient**2)
            weights = self.weights[i].assign_sub(rate * mean / (tf.sqrt(square) + 1e-7))
            self.averages[i].assign(self.decay * self.averages[i] + (1.0 - self.decay) * weights)
        return loss

    def _outputs(
        self, weights: Sequence[tf.Tensor], inputs: tf.Tensor, dropouts: tf.Tensor | None
    ) -> tf.Tensor:
        """Outputs `[networks, ..., outputs]` of inputs `[networks, ..., inputs]`."""
        values = tf.reshape(inputs, [inputs.shape[0], -1, inputs.shape[-1]])
        layers = list(zip(weights[::2], weights[1::2], strict=True))
        for number, (matrix, bias) in enumerate(layers[:-1]):
            values = tf.nn.relu(values @ matrix + bias)
            if dropouts is not None:
                seed = tf.stack([tf.cast(self._steps, tf.int32), number])
                # under XLA, what TensorFlow would choose takes nine times as long
                drawn = tf.random.stateless_uniform(tf.shape(values), seed, alg="philox")
                kept = drawn >= dropouts
                values = tf.where(kept, values / (1.0 - dropouts), 0.0)
        matrix, bias = layers[-1]
        return tf.reshape(values @ matrix + bias, [*inputs.shape[:-1], bias.shape[-1]])


def first_weights(widths: Sequence[int], seed: int) -> list[np.ndarray]:
    """Returns matrices by He's rule and biases of 0, in turn."""
    random = np.random.default_rng(seed)
    weights = []
    for above, below in itertools.pairwise(widths):
        matrix = random.normal(size=(above, below)) * np.sqrt(2.0 / above)
        weights += [matrix.astype(np.float32), np.zeros([1, below], np.float32)]
    return weights


def _column(values: Sequence[float]) -> tf.Tensor:
    return tf.reshape(tf.constant(values, tf.float32), [-1, 1, 1])
