"""A model of named features of every type, without training."""

import datetime

import keras
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data.formats import Layout
from tfrank_sel.features import Bool, Category, Hash, Number, Set, Timestamp, Vector

TYPES = {
    "price": Number(),
    "stock": Number(missing="refuse"),
    "is_new": Bool(),
    "brand": Category(min_count=1),
    "year": Category(min_count=1, dtype="int64"),
    "tags": Set(min_count=1, max_values=3),
    "seller": Hash(buckets=7, dtype="int64"),
    "embedding": Vector(size=2),
    "published_at": Timestamp(since="shown_at", parts=True),
    "shown_at": Timestamp(of="query"),
    "country": Category(min_count=1, of="query"),
    "age": Number(of="query"),
}
VOCABULARIES = {
    "brand": ["acme", "bolt"],
    "year": ["2024", "2025"],
    "tags": ["red", "wide"],
    "country": ["de"],
}
ITEM = {
    "price": 2.5,
    "stock": 3,
    "is_new": True,
    "brand": "acme",
    "year": 2025,
    "tags": ["wide", "red"],
    "seller": 2**62 + 1,
    "embedding": [0.25, -3.0],
    "published_at": datetime.datetime(2026, 1, 1, 13, 30, tzinfo=datetime.UTC),
}
QUERY = {"shown_at": datetime.datetime(2026, 2, 1), "country": "de", "age": 33}


def model():
    """Returns a model that tells all values of `TYPES` apart, and that each is missing."""
    keras.utils.set_random_seed(5)
    columns = [x for name, feature in TYPES.items() for x in feature.columns(name)]
    preparation = models.Preparation(
        [0.1] * len(columns),
        [1.0] * len(columns),
        features=TYPES,
        vocabularies=VOCABULARIES,
        missing=["price", "is_new", "embedding", "published_at", "age"],
    )
    network = models.Perceptron([16], embeddings=preparation.embeddings)
    made = models.Prepared(preparation, network)
    layout = Layout(TYPES)
    numbers, texts = tf.zeros([1, 1, len(layout.names)]), tf.fill([1, 1, len(layout.texts)], "")
    made({"features": numbers, "texts": texts, "mask": tf.constant([[True]])})
    return made
