"""Ensemble of several scorers."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
import tensorflow as tf

from tfrank_sel.keras_versions import LayerOptions
from tfrank_sel.listwise import as_lists
from tfrank_sel.models.preparation import features_and_mask, features_shape, inputs_of, standardised
from tfrank_sel.refusals import refusal
from tfrank_sel.serialization import Configurable, register


@register
class Ensemble(Configurable, keras.Model):
    """Mean of the scores of several models, each standardised within the list.

    ```
    score_i = sum_m share_m * (s_mi - mean_j s_mj) / deviation_j s_mj
    ```

    Standardisation gives equal weight to models trained with different losses, whose scores differ
    in scale. Scores are then not comparable between lists. A member whose scores of a list differ
    by no more than rounding, as those of equal items do, adds 0. Train the members independently,
    for example with several seeds, so that their errors cancel.

    Args:
        members: The models, trained or not; each maps features to scores, and also takes a mask if
            it has the attribute `takes_mask`.
        shares: Relative weight of each member, positive; None for equal weights.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: as in `ListScorer`.

    Outputs: scores of shape `[batch_size, list_size]`, float32; 0 at padding.

    Raises:
        ValueError: If `members` is empty, or `shares` are not as many positive numbers.

    Example:
        >>> from tfrank_sel import models
        >>> scorers = [models.Scorer([0.0], [1.0], [4]) for _ in range(3)]
        >>> tuple(models.Ensemble(scorers)(tf.zeros([2, 5, 1])).shape)
        (2, 5)
    """

    takes_mask = True

    def __init__(
        self,
        members: Sequence[keras.Model],
        shares: Sequence[float] | None = None,
        name: str = "ensemble",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        # float16 cannot represent all features; the members cast what they take
        super().__init__(name=name, autocast=False, **kwargs)
        if not members:
            raise refusal("`members` must not be empty", members)
        if shares is not None and [share > 0.0 for share in shares] != [True] * len(members):
            raise refusal(
                f"`shares` must be a positive number for each of {len(members)} members", shares
            )
        self.members = list(members)
        self.shares = None if shares is None else list(shares)

    @property
    def factors(self) -> list[float]:
        """The factor of the scores of each member; the sum is 1."""
        shares = self.shares or [1.0] * len(self.members)
        return [share / sum(shares) for share in shares]

    def build(self, input_shape: Any) -> None:
        """Creates the weights of the members."""
        shape = features_shape(input_shape)
        for member in self.members:
            if not member.built:
                member.build(shape)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Returns the scores of the items."""
        features, mask = features_and_mask(inputs)
        both, total = {"features": features, "mask": mask}, tf.zeros_like(mask, tf.float64)
        for member, factor in zip(self.members, self.factors, strict=True):
            scores = as_lists(member(inputs_of(member, both), training=training))
            total += factor * standardised(scores, mask)
        return tf.cast(total, tf.float32)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores: the shape of the features without the last axis."""
        shape = features_shape(input_shape)
        return tuple(shape[:-1])
