"""Formulas of one class of each list, without labels, masks or weights of the other classes.

Scores are `[batch_size, num_classes]`, finite, of at least one class; classes are `[batch_size]`,
int32, where an index outside of the classes is none of them. Gradients are exact, and those of
first order take one array of the size of the scores beside their own.
"""

import math

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor

DOUBT = 1 / 64  # a cross-entropy from which on TensorFlow's has all digits but the last two


def are_there(classes: Tensor, scores: Tensor) -> Tensor:
    """Whether each index is one of the classes, `[batch_size]`."""
    return (classes >= 0) & (classes < xp.shape(scores)[1])


def scores_of(classes: Tensor, scores: Tensor) -> Tensor:
    """Returns the score of each class, `[batch_size]`; 0 for none."""

    @xp.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        scores_of_class = xp.gather_nd(scores, _places(classes, scores))

        def gradient(upstream: Tensor) -> Tensor:
            return replace_scores(xp.zeros_like(scores), classes, upstream)

        return xp.where(are_there(classes, scores), scores_of_class, 0.0), gradient

    return f(scores)


def replace_scores(scores: Tensor, classes: Tensor, values: Tensor) -> Tensor:
    """Returns the scores with other ones, `[batch_size]`, of the classes."""
    places = _places(classes, scores)
    values = xp.where(are_there(classes, scores), values, xp.gather_nd(scores, places))
    return xp.tensor_scatter_nd_update(scores, places, values)


def add(scores: Tensor, classes: Tensor, values: Tensor) -> Tensor:
    """Returns the scores with something added, `[batch_size]`, to those of the classes."""
    values = xp.where(are_there(classes, scores), values, 0.0)
    return xp.tensor_scatter_nd_add(scores, _places(classes, scores), values)


def cross_entropy(classes: Tensor, logits: Tensor) -> Tensor:
    """Computes `-log softmax(x)` of each class, `[batch_size]`; 0 for none.

    Where the class has nearly all the probability, it is `-log1p(-q)` of the probability `q` of all
    other classes, and the gradient of the class is `-q`, so that both keep their digits.
    """
    has_class = are_there(classes, logits)

    @xp.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        values, residuals = xp.softmax_cross_entropy(logits, xp.where(has_class, classes, 0))

        def exact() -> tuple[Tensor, Tensor]:
            others = replace_scores(residuals, classes, xp.zeros_like(values))
            q = xp.reduce_sum(others, axis=1)
            logs = xp.log1p(-xp.minimum(q, 0.5))
            return xp.where(q < 0.5, -logs, values), replace_scores(others, classes, -q)

        values, residuals = xp.cond(  # of classes in doubt, three passes are saved
            xp.reduce_any(values < DOUBT), exact, lambda: (values, residuals)
        )

        def gradient(upstream: Tensor) -> Tensor:
            upstream = xp.where(has_class, upstream, 0.0)
            return upstream[:, xp.newaxis] * _residuals(logits, residuals)

        return xp.where(has_class, values, 0.0), gradient

    return f(logits)


def _residuals(logits: Tensor, residuals: Tensor) -> Tensor:
    """Returns the gradient of a cross-entropy, which is known, with a gradient of its own."""

    @xp.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            p = xp.softmax(logits)
            return p * (upstream - xp.reduce_sum(p * upstream, axis=1, keepdims=True))

        return xp.identity(residuals), gradient

    return f(logits)


def log_sum_exp_beside(classes: Tensor, scores: Tensor, value: Tensor | None = None) -> Tensor:
    """Computes `log sum_j exp(s_j)` over all classes but one, `[batch_size]`; -inf for no other.

    Args:
        classes: The classes that are left out.
        scores: Scores of all classes.
        value: The result, if it is known and only its gradient is needed.
    """

    @xp.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        nothing = xp.fill(xp.shape(classes), xp.constant(-math.inf, scores.dtype))
        result = value
        if value is None:
            result = xp.reduce_logsumexp(replace_scores(scores, classes, nothing), axis=1)

        def gradient(upstream: Tensor) -> Tensor:
            logs = log_sum_exp_beside(classes, scores, result)[:, xp.newaxis]
            others = replace_scores(
                scores, classes, nothing
            )  # the exponential of the class may overflow
            return upstream[:, xp.newaxis] * xp.exp(others - xp.where(logs > -math.inf, logs, 0.0))

        return xp.identity(result), gradient

    return f(scores)


def _places(classes: Tensor, scores: Tensor) -> Tensor:
    rows = xp.range(xp.size(classes), dtype=classes.dtype)
    return xp.stack([rows, xp.where(are_there(classes, scores), classes, 0)], axis=1)
