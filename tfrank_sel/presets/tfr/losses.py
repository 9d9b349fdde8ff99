"""Losses with the scale of `tfr.keras.losses`.

Each function takes the arguments of the class in tensorflow-ranking, except `ragged`: every loss
takes dense and ragged tensors. `reduction` is `"sum_over_batch_size"` or `"sum"`, which counts what
tensorflow-ranking counts: items in pointwise and pairwise losses, lists in others. With `"none"`,
there is one value per list. Further keywords are `name` and `dtype`, as in `losses.ListwiseLoss`.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrank_sel import losses
from tfrank_sel.errors import refusal
from tfrank_sel.losses import lambdas, targets
from tfrank_sel.serialization import register

LambdaWeight = lambdas.LambdaWeight | None
Normalizer = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
GAINS = targets.Gains()
NEIGHBOURS = lambdas.YetiDCGLambdaWeight()


def get(loss: str, **arguments: Any) -> losses.ListwiseLoss:
    """Makes a loss by its key, as `tfr.keras.losses.get` does.

    Args:
        loss: A key of `tfr.keras.losses.RankingLossKey`, such as `"softmax_loss"`.
        **arguments: The arguments of the function of that name in this module. As there, a
            `lambda_weight` of `None` is accepted for each key.

    Raises:
        ValueError: If there is no such key.

    Example:
        >>> loss = presets.tfr.losses.get("softmax_loss", temperature=0.5)
        >>> loss.temperature
        0.5
    """
    if loss not in KEYS:
        raise refusal("No loss has this key", f"{loss!r}. Accepted: {[*KEYS]}")
    if arguments.get("lambda_weight", loss) is None:
        del arguments["lambda_weight"]
    return KEYS[loss](**arguments)


def softmax_loss(
    temperature: float = 1.0, lambda_weight: lambdas.SwapLambdaWeight | None = None, **kwargs: Any
) -> losses.SoftmaxLoss:
    """Makes a softmax loss that is not divided by the sum of the labels of a list.

    Example:
        >>> loss = presets.tfr.losses.softmax_loss()
        >>> round(float(loss([[2.0, 1.0]], [[0.0, 0.0]])), 4)  # 3 * log(2)
        2.0794
    """
    return losses.SoftmaxLoss(temperature, GAINS, lambda_weight, **kwargs)


def calibrated_softmax_loss(
    temperature: float = 1.0, virtual_label: float = 0.0, **kwargs: Any
) -> losses.CalibratedSoftmaxLoss:
    """Makes a calibrated softmax loss that is not divided by the sum of the labels of a list."""
    return losses.CalibratedSoftmaxLoss(virtual_label, temperature, GAINS, **kwargs)


def poly_one_softmax_loss(
    epsilon: float = 1.0, temperature: float = 1.0, **kwargs: Any
) -> losses.PolyOneSoftmaxLoss:
    """Makes a Poly-1 softmax loss that is not divided by the sum of the labels of a list."""
    return losses.PolyOneSoftmaxLoss(epsilon, temperature, GAINS, **kwargs)


def unique_softmax_loss(temperature: float = 1.0, **kwargs: Any) -> losses.UniqueSoftmaxLoss:
    """Makes a unique softmax loss; its scale is that of this package."""
    return losses.UniqueSoftmaxLoss(temperature, **kwargs)


def pairwise_hinge_loss(
    lambda_weight: LambdaWeight = None, temperature: float = 1.0, **kwargs: Any
) -> losses.PairwiseHingeLoss:
    """Makes a pairwise hinge loss that is divided by the list size."""
    normalizer = _of_pairs(lambda_weight, kwargs)
    return losses.PairwiseHingeLoss(lambda_weight, temperature, normalizer, **kwargs)


def pairwise_logistic_loss(
    lambda_weight: LambdaWeight = None, temperature: float = 1.0, **kwargs: Any
) -> losses.PairwiseLogisticLoss:
    """Makes a pairwise logistic loss that is divided by the list size."""
    normalizer = _of_pairs(lambda_weight, kwargs)
    return losses.PairwiseLogisticLoss(lambda_weight, temperature, normalizer, **kwargs)


def pairwise_soft_zero_one_loss(
    lambda_weight: LambdaWeight = None, temperature: float = 1.0, **kwargs: Any
) -> losses.PairwiseSoftZeroOneLoss:
    """Makes a pairwise soft zero-one loss that is divided by the list size."""
    normalizer = _of_pairs(lambda_weight, kwargs)
    return losses.PairwiseSoftZeroOneLoss(lambda_weight, temperature, normalizer, **kwargs)


def pairwise_mse_loss(
    lambda_weight: LambdaWeight = None, temperature: float = 1.0, **kwargs: Any
) -> losses.PairwiseMSELoss:
    """Makes a pairwise squared loss that is divided by the list size."""
    normalizer = _of_pairs(lambda_weight, kwargs)
    return losses.PairwiseMSELoss(lambda_weight, temperature, normalizer, **kwargs)


def yeti_logistic_loss(
    lambda_weight: lambdas.LambdaWeight = NEIGHBOURS,
    temperature: float = 1.0,
    sample_size: int = 8,
    gumbel_temperature: float = 1.0,
    seed: int | None = None,
    **kwargs: Any,
) -> losses.YetiLogisticLoss:
    """Makes a YetiLogistic loss; its random numbers differ from those of tensorflow-ranking."""
    noise = (sample_size, gumbel_temperature, seed)
    normalizer = _of_pairs(lambda_weight, kwargs)
    return losses.YetiLogisticLoss(lambda_weight, temperature, *noise, normalizer, **kwargs)


def sigmoid_cross_entropy_loss(**kwargs: Any) -> losses.SigmoidCrossEntropyLoss:
    """Makes a sigmoid cross-entropy loss that is divided by the list size."""
    return losses.SigmoidCrossEntropyLoss(_of_items(kwargs), **kwargs)


def mean_squared_loss(**kwargs: Any) -> losses.MeanSquaredLoss:
    """Makes a mean squared loss that is divided by the list size."""
    return losses.MeanSquaredLoss(_of_items(kwargs), min_label=0.0, **kwargs)


def ordinal_loss(
    ordinal_size: int = 1, use_fraction_label: bool = False, **kwargs: Any
) -> losses.OrdinalLoss:
    """Makes an ordinal loss that is divided by the list size."""
    return losses.OrdinalLoss(ordinal_size, use_fraction_label, _of_items(kwargs), **kwargs)


def list_mle_loss(
    lambda_weight: Callable[[Any], Any] | None = None, temperature: float = 1.0, **kwargs: Any
) -> losses.ListMLELoss:
    """Makes a ListMLE loss, in which tied items share their ranks.

    Args:
        lambda_weight: The `rank_discount_fn` of a `tfr.keras.losses.ListMLELambdaWeight`.
        temperature: Divides the scores; positive.
        **kwargs: `name`, `reduction` and `dtype`, as in `losses.ListwiseLoss`.
    """
    return losses.ListMLELoss(lambda_weight, temperature, **kwargs)


def approx_ndcg_loss(temperature: float = 0.1, **kwargs: Any) -> losses.ApproxNDCGLoss:
    """Makes an ApproxNDCG loss; its scale is that of this package."""
    return losses.ApproxNDCGLoss(temperature, **kwargs)


def approx_mrr_loss(temperature: float = 0.1, **kwargs: Any) -> losses.ApproxMRRLoss:
    """Makes an ApproxMRR loss; its scale is that of this package."""
    return losses.ApproxMRRLoss(temperature, **kwargs)


def gumbel_approx_ndcg_loss(
    temperature: float = 0.1,
    sample_size: int = 8,
    gumbel_temperature: float = 1.0,
    seed: int | None = None,
    **kwargs: Any,
) -> losses.GumbelLoss:
    """Makes a noisy ApproxNDCG loss; its random numbers differ from those of tensorflow-ranking."""
    ndcg = losses.ApproxNDCGLoss(temperature)
    return losses.GumbelLoss(ndcg, sample_size, gumbel_temperature, seed, **kwargs)


def coupled_rankdistil_loss(
    sample_size: int = 8, topk: int | None = None, temperature: float = 1.0, **kwargs: Any
) -> losses.CoupledRankDistilLoss:
    """Makes a CoupledRankDistil loss; its random numbers differ from tensorflow-ranking."""
    return losses.CoupledRankDistilLoss(sample_size, topk, temperature, **kwargs)


def click_em_loss(
    exam_loss_weight: float = 1.0, rel_loss_weight: float = 1.0, **kwargs: Any
) -> losses.ClickEMLoss:
    """Makes a click EM loss that is divided by the list size."""
    return losses.ClickEMLoss(exam_loss_weight, rel_loss_weight, _of_items(kwargs), **kwargs)


def mixture_em_loss(
    alpha: float = 1.0, temperature: float = 1.0, **kwargs: Any
) -> losses.MixtureEMLoss:
    """Makes a mixture EM loss; `temperature` has no effect, as in tensorflow-ranking."""
    return losses.MixtureEMLoss(alpha, **kwargs)


@register
def sum_times_slots(total: tf.Tensor, terms: tf.Tensor, list_size: tf.Tensor) -> tf.Tensor:
    """Multiplies by the list size, padding included, as the weights of a DCG do there."""
    return total * tf.cast(list_size, total.dtype)


def _of_items(arguments: dict[str, Any]) -> Normalizer:
    """Returns what makes the reduction of lists the reduction of items."""
    return losses.sum_over_terms if _is_sum(arguments) else losses.mean_over_slots


def _of_pairs(weight: LambdaWeight, arguments: dict[str, Any]) -> Normalizer:
    """Returns the same for pairs, where the weights of a DCG are multiplied by the list size."""
    if not isinstance(weight, lambdas.GainLambdaWeight):
        return _of_items(arguments)
    return sum_times_slots if _is_sum(arguments) else losses.sum_over_terms


def _is_sum(arguments: dict[str, Any]) -> bool:
    return arguments.get("reduction") == "sum"


KEYS: dict[str, Callable[..., losses.ListwiseLoss]] = {
    function.__name__: function
    for function in (
        pairwise_hinge_loss,
        pairwise_logistic_loss,
        pairwise_soft_zero_one_loss,
        pairwise_mse_loss,
        yeti_logistic_loss,
        softmax_loss,
        calibrated_softmax_loss,
        unique_softmax_loss,
        sigmoid_cross_entropy_loss,
        mean_squared_loss,
        ordinal_loss,
        list_mle_loss,
        approx_ndcg_loss,
        approx_mrr_loss,
        gumbel_approx_ndcg_loss,
        coupled_rankdistil_loss,
    )
}
