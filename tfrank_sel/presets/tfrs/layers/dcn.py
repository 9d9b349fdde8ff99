"""The cross layer of deep and cross networks."""

from typing import Any

import keras
from tensorflow import Tensor

from tfrank_sel.errors import refusal
from tfrank_sel.serialization import Configurable, register


@register
class Cross(Configurable, keras.layers.Layer):
    """Products of features: `x0 * (W x + diag_scale * x + b) + x`.

    Args:
        projection_dim: Rank of `W`, as two matrices; full if `None`.
        diag_scale: Not negative.
        use_bias: Whether there is a `b`.
        preactivation: Activation of the bracket.
        kernel_initializer: Initializer of `W`.
        bias_initializer: Initializer of `b`.
        kernel_regularizer: Regularizer of `W`.
        bias_regularizer: Regularizer of `b`.
        **kwargs: Arguments of the layer, such as `name`.

    Raises:
        ValueError: If `diag_scale` is negative, or `x0` and `x` have different widths.

    Reference:
        [DCN V2, Wang et al. 2021](https://arxiv.org/abs/2008.13535), eq. (1).
    """

    def __init__(
        self,
        projection_dim: int | None = None,
        diag_scale: float = 0.0,
        use_bias: bool = True,
        preactivation: Any = None,
        kernel_initializer: Any = "truncated_normal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if diag_scale < 0.0:
            raise refusal("`diag_scale` must not be negative", diag_scale=diag_scale)
        self.projection_dim = projection_dim if projection_dim is None else int(projection_dim)
        self.diag_scale, self.use_bias = diag_scale, use_bias
        self.preactivation = keras.activations.get(preactivation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        width = input_shape[-1]
        options = {
            "kernel_initializer": self.kernel_initializer,
            "kernel_regularizer": self.kernel_regularizer,
        }
        self._projection = None
        if self.projection_dim is not None:
            self._projection = keras.layers.Dense(self.projection_dim, use_bias=False, **options)
            self._projection.build(input_shape)
        self._dense = keras.layers.Dense(
            width,
            self.preactivation,
            self.use_bias,
            bias_initializer=self.bias_initializer,
            bias_regularizer=self.bias_regularizer,
            **options,
        )
        self._dense.build((*input_shape[:-1], self.projection_dim or width))
        super().build(input_shape)

    def call(self, x0: Tensor, x: Tensor | None = None) -> Tensor:
        """Returns the crossed features; `x` is `x0` if `None`."""
        x = x0 if x is None else x
        if x0.shape[-1] != x.shape[-1]:
            raise refusal("`x0` and `x` must be equally wide", f"{x0.shape[-1]}, {x.shape[-1]}")
        crossed = self._dense(x if self._projection is None else self._projection(x))
        return x0 * (crossed + self.diag_scale * x) + x
