"""Export of models as SavedModels for TensorFlow Serving, and their release to servers.

Names are imported at their first use: a release needs no TensorFlow.
"""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.export.recommenders import (
        factorization as factorization,
        next_items as next_items,
    )
    from tfrank_sel.export.releases import (
        publish as publish,
        remove_old as remove_old,
        roll_back as roll_back,
        versions as versions,
    )
    from tfrank_sel.export.runtimes import onnx as onnx, search_engine as search_engine
    from tfrank_sel.export.saved_model import check_servable as check_servable
    from tfrank_sel.export.signatures import (
        PADDING_SCORE as PADDING_SCORE,
        dense_inputs as dense_inputs,
        export as export,
    )

__getattr__, __dir__, __all__ = lazy.exported(__name__)
