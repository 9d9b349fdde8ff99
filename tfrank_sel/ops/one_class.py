"""Formulas of one class of each list, without labels, masks or weights of the other classes.

Scores are `[batch_size, num_classes]`, finite, of at least one class; classes are `[batch_size]`,
int32, where an index outside of the classes is none of them. Gradients are exact, and those of
first order take one array of the size of the scores beside their own.
"""

import math

import tensorflow as tf
from tensorflow import Tensor

DOUBT = 1 / 64  # a cross-entropy from which on TensorFlow's has all digits but the last two


def are_there(classes: Tensor, scores: Tensor) -> Tensor:
    """Whether each index is one of the classes, `[batch_size]`."""
    return (classes >= 0) & (classes < tf.shape(scores)[1])


def scores_of(classes: Tensor, scores: Tensor) -> Tensor:
    """Returns the score of each class, `[batch_size]`; 0 for none."""

    @tf.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        scores_of_class = tf.gather_nd(scores, _places(classes, scores))

        def gradient(upstream: Tensor) -> Tensor:
            return replace_scores(tf.zeros_like(scores), classes, upstream)

        return tf.where(are_there(classes, scores), scores_of_class, 0.0), gradient

    return f(scores)


def replace_scores(scores: Tensor, classes: Tensor, values: Tensor) -> Tensor:
    """Returns the scores with other ones, `[batch_size]`, of the classes."""
    places = _places(classes, scores)
    values = tf.where(are_there(classes, scores), values, tf.gather_nd(scores, places))
    return tf.tensor_scatter_nd_update(scores, places, values)


def add(scores: Tensor, classes: Tensor, values: Tensor) -> Tensor:
    """Returns the scores with something added, `[batch_size]`, to those of the classes."""
    values = tf.where(are_there(classes, scores), values, 0.0)
    return tf.tensor_scatter_nd_add(scores, _places(classes, scores), values)


def cross_entropy(classes: Tensor, logits: Tensor) -> Tensor:
    """Computes `-log softmax(x)` of each class, `[batch_size]`; 0 for none.

    Where the class has nearly all the probability, it is `-log1p(-q)` of the probability `q` of all
    other classes, and the gradient of the class is `-q`, so that both keep their digits.
    """
    has_class = are_there(classes, logits)

    @tf.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        values, residuals = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=logits, labels=tf.where(has_class, classes, 0)
        )

        def exact() -> tuple[Tensor, Tensor]:
            others = replace_scores(residuals, classes, tf.zeros_like(values))
            q = tf.reduce_sum(others, axis=1)
            logs = tf.math.log1p(-tf.minimum(q, 0.5))
            return tf.where(q < 0.5, -logs, values), replace_scores(others, classes, -q)

        values, residuals = tf.cond(  # of classes in doubt, three passes are saved
            tf.reduce_any(values < DOUBT), exact, lambda: (values, residuals)
        )

        def gradient(upstream: Tensor) -> Tensor:
            upstream = tf.where(has_class, upstream, 0.0)
            return upstream[:, tf.newaxis] * _residuals(logits, residuals)

        return tf.where(has_class, values, 0.0), gradient

    return f(logits)


def _residuals(logits: Tensor, residuals: Tensor) -> Tensor:
    """Returns the gradient of a cross-entropy, which is known, with a gradient of its own."""

    @tf.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            p = tf.nn.softmax(logits)
            return p * (upstream - tf.reduce_sum(p * upstream, axis=1, keepdims=True))

        return tf.identity(residuals), gradient

    return f(logits)


def log_sum_exp_beside(classes: Tensor, scores: Tensor, value: Tensor | None = None) -> Tensor:
    """Computes `log sum_j exp(s_j)` over all classes but one, `[batch_size]`; -inf for no other.

    Args:
        classes: The classes that are left out.
        scores: Scores of all classes.
        value: The result, if it is known and only its gradient is needed.
    """

    @tf.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        nothing = tf.fill(tf.shape(classes), tf.constant(-math.inf, scores.dtype))
        result = value
        if value is None:
            result = tf.reduce_logsumexp(replace_scores(scores, classes, nothing), axis=1)

        def gradient(upstream: Tensor) -> Tensor:
            logs = log_sum_exp_beside(classes, scores, result)[:, tf.newaxis]
            others = replace_scores(
                scores, classes, nothing
            )  # the exponential of the class may overflow
            return upstream[:, tf.newaxis] * tf.exp(others - tf.where(logs > -math.inf, logs, 0.0))

        return tf.identity(result), gradient

    return f(scores)


def _places(classes: Tensor, scores: Tensor) -> Tensor:
    rows = tf.range(tf.size(classes), dtype=classes.dtype)
    return tf.stack([rows, tf.where(are_there(classes, scores), classes, 0)], axis=1)
