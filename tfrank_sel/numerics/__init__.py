"""The functions of tensors of which formulas are made, of the backend that Keras has.

Type checkers read the functions of TensorFlow.
"""

from typing import TYPE_CHECKING

from tfrank_sel.numerics.backend import BACKENDS as BACKENDS, NAME as NAME

if TYPE_CHECKING or NAME == "tensorflow":
    from tfrank_sel.numerics.tensorflow import *  # noqa: F403
elif NAME == "jax":
    from tfrank_sel.numerics.jax import *  # noqa: F403
else:
    from tfrank_sel.numerics.numpy import *  # noqa: F403
