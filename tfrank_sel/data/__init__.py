"""Ranking data: features, file formats, and batches for training.

Modules are imported at their first use: reading files and tables does not import TensorFlow.
"""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.data import (
        batching,
        elwc,
        formats,
        frames,
        letor,
        packed,
        parsing,
        requests,
        schema,
        sequences,
        synthetic,
        writing,
    )
    from tfrank_sel.data.batching import (
        batches,
        bucket_edges,
        head,
        list_sizes,
        split_segments,
        top,
    )
    from tfrank_sel.data.cache import Cache
    from tfrank_sel.data.formats import read
    from tfrank_sel.data.lists import InputError, ItemList
    from tfrank_sel.data.schema import Schema
    from tfrank_sel.data.sequences import Sequences
    from tfrank_sel.data.spec import FeatureSpec, ListFeatures

__all__ = [
    "Cache",
    "FeatureSpec",
    "InputError",
    "ItemList",
    "ListFeatures",
    "Schema",
    "Sequences",
    "batches",
    "batching",
    "bucket_edges",
    "elwc",
    "formats",
    "frames",
    "head",
    "letor",
    "list_sizes",
    "packed",
    "parsing",
    "read",
    "requests",
    "schema",
    "sequences",
    "split_segments",
    "synthetic",
    "top",
    "writing",
]

_HOMES = {
    "Cache": "cache",
    "FeatureSpec": "spec",
    "InputError": "lists",
    "ItemList": "lists",
    "ListFeatures": "spec",
    "Schema": "schema",
    "Sequences": "sequences",
    "batches": "batching",
    "bucket_edges": "batching",
    "head": "batching",
    "list_sizes": "batching",
    "read": "formats",
    "split_segments": "batching",
    "top": "batching",
}

__getattr__ = lazy.imports(__name__, set(__all__) - set(_HOMES), _HOMES)


def __dir__() -> list[str]:
    return __all__
