"""Turns a table of clicks into TFRecords of lists, and trains on batches of them."""

import pathlib
import tempfile

import keras
import numpy as np
import pyarrow
import tensorflow as tf

from tfrank_sel import data, losses, metrics, models

random = np.random.default_rng(0)
price, rating = random.lognormal(size=6000), random.normal(size=6000)
table = pyarrow.table(
    {
        "query_id": np.repeat([f"q{i}" for i in range(400)], 15),
        "relevance": (rating - np.log(price) + random.normal(size=6000) > 1.0).astype("float32"),
        "price": price,
        "rating": rating,
    }
)
spec = data.FeatureSpec(num_features=2)
lists = list(data.frames.lists(table, query="query_id", label="relevance"))

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "train.tfrecord")
    with tf.io.TFRecordWriter(str(path)) as file:
        for one in lists:
            file.write(data.packed.serialize(one.features, spec, labels=one.labels))
    batches = data.batches([path], spec, batch_size=32, shuffle_buffer=400, seed=0)
    rows = np.concatenate([one.features for one in lists])
    model = models.ListScorer(*models.moments(rows))
    model.compile(keras.optimizers.Adam(0.01), losses.SoftmaxLoss(), metrics=[metrics.NDCG(k=5)])
    history = model.fit(batches, epochs=5, verbose=0).history
print({name: round(values[-1], 3) for name, values in history.items()})
