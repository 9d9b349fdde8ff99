"""Comparisons of each class with the other classes of its row.

Scores and masses are `[batch_size, num_rows, num_classes]`.
"""

import tensorflow as tf

from tfrank_sel.ops import masking


def log_sum_exp_of_others(scores: tf.Tensor) -> tf.Tensor:
    """Computes `log sum_{k != j} exp(s_ik)` for each class `j` of each row `i`."""
    highest = tf.math.argmax(scores, axis=-1)
    is_top = tf.one_hot(highest, tf.shape(scores)[-1], on_value=True, off_value=False)
    top = tf.stop_gradient(tf.reduce_max(scores, axis=-1, keepdims=True))
    exp = tf.exp(scores - top)
    # without the other class the sum still contains the top, 1, so the difference does not cancel
    others = tf.reduce_sum(exp, axis=-1, keepdims=True) - exp
    below_top = top + tf.math.log(tf.where(is_top, tf.ones_like(exp), others))
    at_top = masking.log_sum_exp(scores, ~is_top)[..., tf.newaxis]
    return tf.where(is_top, at_top, below_top)


def pair_sums(masses: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Computes `sum_{k != j} log(1 + sum_i m_ij * exp(s_ik - s_ij))` for each class `j`.

    One class is compared at a time, also in the gradient, so memory is that of the scores.

    Args:
        masses: The mass `m_ij` of each row in each class, at least 0.
        scores: The scores `s_ij`.

    Returns:
        The sum of each class, `[batch_size, num_classes]`, differentiable in the scores.
    """
    classes = tf.range(tf.shape(scores)[-1])

    def of_class(j: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        is_j = classes == j
        own, mass = (
            tf.reduce_sum(tf.where(is_j, x, tf.zeros_like(x)), axis=-1, keepdims=True)
            for x in (scores, masses)
        )
        pairs = masking.log1p_sum_exp(scores - own, mass, axis=1)
        return masking.masked_sum(pairs, tf.broadcast_to(~is_j, tf.shape(pairs)))

    @tf.custom_gradient
    def f(scores: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            def add(j: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                with tf.GradientTape() as tape:
                    tape.watch(scores)
                    value = of_class(j, scores)
                here = tf.reduce_sum(tf.where(classes == j, upstream, 0.0), axis=-1)
                return j + 1, total + tape.gradient(value, scores, here)

            return _loop(classes, add, tf.zeros_like(scores))

        def add(j: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            value = of_class(j, scores)[:, tf.newaxis]
            return j + 1, total + tf.where(classes == j, value, tf.zeros_like(total))

        return _loop(classes, add, tf.reduce_sum(tf.zeros_like(scores), axis=1)), gradient

    return f(scores)


def _loop(classes: tf.Tensor, body: object, start: tf.Tensor) -> tf.Tensor:
    size = tf.size(classes)
    return tf.while_loop(lambda j, _: j < size, body, (tf.constant(0), start))[1]
