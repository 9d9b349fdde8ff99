"""A preparation and a network as one model."""

from typing import Any

import keras
import tensorflow as tf

from tfrank_sel.models.perceptron import Perceptron
from tfrank_sel.models.preparation import features_shape, inputs_of
from tfrank_sel.serialization import Configurable, register


@register
class Prepared(Configurable, keras.Model):
    """A preparation followed by a network, as one servable model.

    ```
    scores = network(preparation(inputs))
    ```

    You can train the network alone, on inputs that were prepared once. This model shares its
    weights and takes raw features.

    Args:
        preparation: A layer without weights, such as `Preparation`.
        network: The model that is trained, such as `Perceptron`. It gets the mask of the items only
            if it has the attribute `takes_mask`.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: those of the preparation.

    Outputs: those of the network.

    Example:
        >>> from tfrank_sel import models
        >>> model = Prepared(models.Preparation([0.0], [1.0]), models.Perceptron([8]))
        >>> tuple(model(tf.zeros([3, 5, 1])).shape)
        (3, 5)
    """

    takes_mask = True

    def __init__(
        self,
        preparation: keras.layers.Layer,
        network: keras.Model,
        name: str = "prepared",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        self.preparation = preparation
        self.network = network

    def build(self, input_shape: Any) -> None:
        """Creates the weights of the network."""
        if not self.preparation.built:
            self.preparation.build(input_shape)
        if not self.network.built:
            self.network.build(self.preparation.compute_output_shape(input_shape))
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Returns the scores of the items."""
        prepared = inputs_of(self.network, self.preparation(inputs))
        return self.network(prepared, training=training)

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The layers, starting with those of a perceptron, as version 0.1 saved them."""
        inner = self.network.layers if isinstance(self.network, Perceptron) else []
        return [*inner, self.preparation, self.network]

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores: the shape of the features without the last axis."""
        return tuple(features_shape(input_shape)[:-1])
