"""From a table with columns of all types to a ranker that a server takes, in memory."""

import pathlib
import tempfile

import pandas as pd
from click_log import clicks

from tfrank_sel import data, export, features, losses, metrics, models

frame = clicks(20_000, seed=0).to_pandas(date_as_object=False)
types = {
    "price": features.Number(),  # the mean where it is missing, and a column that says where
    "rating": features.Number(missing=3.0),
    "in_stock": features.Bool(),
    "brand": features.Category(min_count=5),
    "device": features.Category(of="query", encoding="one_hot"),
    "tags": features.Set(max_values=3),
    "embedding": features.Vector(size=8),
    "published_at": features.Timestamp(since="shown_at"),
    "shown_at": features.Timestamp(of="query", parts=True),
}
columns = {"query": "session", "label": "clicked", "doc_id": "item", "features": types}
is_test = pd.util.hash_array(frame["session"].to_numpy()) % 10 == 0
train = data.frames.dataset(frame[~is_test], **columns, seed=1)
test = data.frames.dataset(frame[is_test], **columns, shuffle=False)

preparation = models.Preparation.of(train, types)
network = models.Perceptron([64, 32], dropout=0.2, embeddings=preparation.embeddings)
ranker = models.Prepared(preparation, network)
ranker.compile("adam", loss=losses.RGCrossLoss(), metrics=[metrics.NDCG(k=10)])
ranker.fit(train, epochs=8, verbose=2, shuffle=False)  # the dataset shuffles itself
found = ranker.evaluate(test, return_dict=True, verbose=0)
print({name: round(value, 3) for name, value in found.items()})

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "ranker")
    export.export(ranker, types, path)  # takes the columns of the table by name
    print("vocabularies:", sorted(file.name for file in (path / "assets").iterdir()))
