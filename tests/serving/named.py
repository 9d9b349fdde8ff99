"""A model of named features of every type, without training."""

import datetime

import keras
import tensorflow as tf

from tfrank_sel import export, models
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.spec import ListFeatures
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


# names that no identifier can be
ODD_TYPES = {
    name: Category(of="query") if name == "Land des Käufers" else Number()
    for name in (
        "unit price",
        "is-new",
        "1st",
        "class",
        "_a",
        "U_20",
        "size",
        "mask",
        "Land des Käufers",
    )
}
LOOKUPS = ListFeatures(
    {
        "brand": tf.io.FixedLenFeature([], tf.string, ""),
        "price": tf.io.FixedLenFeature([], tf.float32, 1.0),
        "sizes": tf.io.FixedLenFeature([2], tf.float32, [0.0, 0.0]),
    },
    {"country": tf.io.FixedLenFeature([], tf.string, "")},
)


def lookups_model():
    """Returns a model of named features that looks texts up itself, without types."""
    inputs = {
        "brand": keras.Input([None], dtype="string", name="brand"),
        "price": keras.Input([None], name="price"),
        "sizes": keras.Input([None, 2], name="sizes"),
        "country": keras.Input([], dtype="string", name="country"),
    }
    ids = keras.layers.StringLookup(vocabulary=["acme", "bolt"], name="lookup")(inputs["brand"])
    numbers = keras.layers.Concatenate()(
        [keras.layers.Embedding(3, 2)(ids), inputs["sizes"], inputs["price"][..., None]]
    )
    scores = keras.layers.Reshape([-1])(keras.layers.Dense(1)(numbers))
    return keras.Model(inputs, scores)


def odd_model():
    """Returns a model of `ODD_TYPES`."""
    return built(ODD_TYPES, {"Land des Käufers": ["de"]}, [])


def model():
    """Returns a model that tells all values of `TYPES` apart, and that each is missing."""
    missing = ["price", "is_new", "embedding", "published_at", "age"]
    return built(TYPES, VOCABULARIES, missing)


def built(types, vocabularies, missing):
    """Returns a model of features of some types."""
    keras.utils.set_random_seed(5)
    columns = [x for name, feature in types.items() for x in feature.columns(name)]
    preparation = models.Preparation(
        [0.1] * len(columns),
        [1.0] * len(columns),
        features=types,
        vocabularies=vocabularies,
        missing=missing,
    )
    network = models.Perceptron([16], embeddings=preparation.embeddings)
    made = models.Prepared(preparation, network)
    layout = Schema(types)
    numbers, texts = tf.zeros([1, 1, len(layout.names)]), tf.fill([1, 1, len(layout.texts)], "")
    made({"features": numbers, "texts": texts, "mask": tf.constant([[True]])})
    return made


def export_all(folder):
    """Exports the models."""
    export.export(model(), TYPES, folder / "typed")
    export.export(odd_model(), ODD_TYPES, folder / "odd")
    export.export(lookups_model(), LOOKUPS, folder / "lookups")
