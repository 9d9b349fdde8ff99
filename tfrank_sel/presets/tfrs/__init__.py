"""Models, tasks, metrics and layers with the numbers of TensorFlow Recommenders 0.7.7, in Keras 3.

Names, arguments and modules are those of TensorFlow Recommenders, so that a program keeps its code
but for the import. Any loss of this package can be the loss of a task.
"""

from tfrank_sel import lazy
from tfrank_sel.presets.tfrs import (
    layers as layers,
    metrics as metrics,
    models as models,
    tasks as tasks,
)
from tfrank_sel.presets.tfrs.models import Model as Model

__getattr__, __dir__, __all__ = lazy.exported(__name__)
