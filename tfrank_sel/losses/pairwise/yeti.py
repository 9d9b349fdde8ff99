"""YetiLogistic: a pairwise loss of neighbours in noisy rankings."""

import tensorflow as tf

from tfrank_sel.arguments import Count, Positive
from tfrank_sel.losses.bases.sampled import SampledLoss
from tfrank_sel.losses.lambdas import LambdaWeight, YetiDCGLambdaWeight
from tfrank_sel.losses.listwise.gumbel import GumbelLoss
from tfrank_sel.losses.normalization import Normalizer
from tfrank_sel.losses.pairwise import PairwiseLogisticLoss
from tfrank_sel.serialization import register

NEIGHBOURS = YetiDCGLambdaWeight()


@register
class YetiLogisticLoss(SampledLoss):
    """Logistic loss of the neighbours in noisy rankings of each list.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    z_k  = (s + g_k) / gumbel_temperature
    loss = mean_k sum_{y_i > y_j} w_i * lambda_ij(z_k) * log(1 + exp(-(z_ki - z_kj) / temperature))
    ```

    where `g_k` is Gumbel noise, and `lambda_ij` is by default 0 for items that are not next to each
    other in the order of `z_k`. It is a `GumbelLoss` of the `PairwiseLogisticLoss`.

    Args:
        lambda_weight: Weight of each pair, such as `lambdas.YetiDCGLambdaWeight()`.
        temperature: Divides the noisy scores; positive.
        sample_size: Number of samples of each list; positive.
        gumbel_temperature: Divides the noisy scores before they are ranked; positive.
        seed: Seed of the noise, as in `GumbelLoss`.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `sample_size` or a temperature is not positive.

    Example:
        >>> loss = losses.YetiLogisticLoss(sample_size=64, seed=1)
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[9.0, -9.0, 9.0]])
        >>> float(loss(y_true, y_pred)) < 1e-3  # noise hardly ever turns the order round
        True

    Reference:
        [Lyzhin et al., Which Tricks are Important for Learning to Rank?, 2022](
        https://arxiv.org/abs/2204.01500).
    """

    lambda_weight: LambdaWeight = NEIGHBOURS
    temperature: Positive = 1.0
    sample_size: Count = 8
    gumbel_temperature: Positive = 1.0
    seed: int | None = None
    normalizer: Normalizer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pairwise = PairwiseLogisticLoss(self.lambda_weight, self.temperature, self.normalizer)
        self._noisy = GumbelLoss(pairwise, self.sample_size, self.gumbel_temperature, self.seed)

    @property
    def largest_label(self) -> float:
        return self.lambda_weight.largest_label(self.dtype)

    def of_noise(
        self,
        labels: tf.Tensor,
        scores: tf.Tensor,
        mask: tf.Tensor,
        weights: tf.Tensor,
        noise: tf.Tensor,
    ) -> tf.Tensor:
        """Averages the pairwise loss over the samples of each list."""
        return self._noisy.of_noise(labels, scores, mask, weights, noise)
