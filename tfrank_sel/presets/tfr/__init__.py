"""Losses and metrics with the numbers of tensorflow-ranking 0.5.5.

`losses` and `metrics` have a function for each loss and metric of `tfr.keras`, named by its key.
Arguments have the names that tensorflow-ranking gives them; results are losses and metrics of this
package. A model that is trained with them keeps its learning rate and its loss curve.
"""

from tfrank_sel import lazy
from tfrank_sel.presets.tfr import losses as losses, metrics as metrics
from tfrank_sel.presets.tfr.sorting import sort_by_scores as sort_by_scores

__getattr__, __dir__, __all__ = lazy.exported(__name__)
