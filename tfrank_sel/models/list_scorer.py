"""Listwise scorer, which compares an item with the others of its list."""

from collections.abc import Sequence
from typing import Any

from tfrank_sel.models.perceptron import Perceptron
from tfrank_sel.models.preparation import Preparation
from tfrank_sel.models.prepared import Prepared
from tfrank_sel.serialization import register


@register
class ListScorer(Prepared):
    """Multilayer perceptron over the features of an item and their values relative to its list.

    It combines a `Preparation` with `within_list` and a `Perceptron`; with `num_heads`, the items
    of a list also attend to one another. Scores do not depend on the order of the items or on
    padding.

    To train faster, prepare the data once, and train the network alone. The scorer shares its
    weights and takes raw features:

    ```python
    prepared = batches.map(lambda inputs, labels: (scorer.preparation(inputs), labels)).cache()
    scorer.network.compile("adam", losses.RGCrossLoss())
    scorer.network.fit(prepared, epochs=20)
    ```

    Args:
        mean: As in `Preparation`.
        variance: As in `Preparation`.
        hidden_units: Widths of the hidden layers; at least one.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        num_heads: Heads of the attention, which must divide the last width; 0 for no attention.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Attributes:
        preparation: The layer that standardises and compares the features.
        network: The model with the weights.

    Inputs: a dict of the features `[batch_size, list_size, num_features]`, under any name, and
    `mask` `[batch_size, list_size]`, True for an item, as in the batches of
    `data.batches(..., inputs=["features", "mask"])`; or only the features, if there is no padding.

    Outputs: scores of shape `[batch_size, list_size]`, float32; ignore the scores of padding.

    Raises:
        ValueError: If `mean` and `variance` differ in length, a variance is negative, a width is
            not positive, `dropout` is out of range, or `num_heads` does not divide the last width.

    Example:
        >>> scorer = ListScorer(mean=[0.0, 0.0], variance=[1.0, 1.0], hidden_units=[8])
        >>> features = tf.random.stateless_normal([3, 5, 2], seed=[0, 0])
        >>> mask = tf.sequence_mask([5, 3, 0], 5)
        >>> tuple(scorer({"features": features, "mask": mask}).shape)
        (3, 5)
    """

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        hidden_units: Sequence[int] = (64, 32),
        dropout: float = 0.3,
        num_heads: int = 0,
        name: str = "list_scorer",
        **kwargs: Any,
    ) -> None:
        if not hidden_units:
            raise ValueError(f"`hidden_units` must not be empty. Received: {hidden_units}")
        preparation = Preparation(mean, variance, within_list=True)
        network = Perceptron(hidden_units, dropout, num_heads)
        super().__init__(preparation, network, name, **kwargs)
        self.mean, self.variance = preparation.mean, preparation.variance
        self.hidden_units, self.dropout = network.hidden_units, dropout
        self.num_heads = num_heads
