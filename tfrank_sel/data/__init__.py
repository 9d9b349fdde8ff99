"""Ranking data: features, file formats, and batches for training.

Modules are imported at their first use: reading files and tables does not import TensorFlow.
"""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.data import (
        arrays as arrays,
        batching as batching,
        elwc as elwc,
        formats as formats,
        frames as frames,
        letor as letor,
        packed as packed,
        parsing as parsing,
        requests as requests,
        schema as schema,
        sequences as sequences,
        stores as stores,
        synthetic as synthetic,
        table as table,
        trec as trec,
        typed as typed,
        writing as writing,
    )
    from tfrank_sel.data.batching import (
        batches as batches,
        bucket_edges as bucket_edges,
        head as head,
        list_sizes as list_sizes,
        split_segments as split_segments,
        top as top,
    )
    from tfrank_sel.data.cache import Cache as Cache
    from tfrank_sel.data.formats import read as read
    from tfrank_sel.data.lists import ItemList as ItemList, Lists as Lists
    from tfrank_sel.data.rejections import InputError as InputError, Rejected as Rejected
    from tfrank_sel.data.schema import Schema as Schema
    from tfrank_sel.data.sequences import Sequences as Sequences
    from tfrank_sel.data.spec import FeatureSpec as FeatureSpec, ListFeatures as ListFeatures

__getattr__, __dir__, __all__ = lazy.exported(__name__)
