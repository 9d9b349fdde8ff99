# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Search: from a click log to a served ranker
#
# You have a table with one row for each item that was shown: the search session, the item, whether
# it was clicked, and columns that describe the item and the session. This tutorial trains a ranker
# on that table, evaluates it on sessions that it has not seen, exports it, and asks a server to
# rank a list. It takes about a minute.
#
# Install: `pip install 'tfrank_sel[frames,serving]' pandas`.

# %%
import pathlib
import tempfile

import keras
import pandas as pd
from pyarrow import parquet

from tfrank_sel import data, export, features, losses, metrics, models
from tfrank_sel.data import synthetic
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

folder = pathlib.Path(tempfile.mkdtemp())
keras.utils.set_random_seed(0)

# %% [markdown]
# ## Read the log
#
# Replace the first two lines by `frame = pd.read_parquet("your.parquet")`. Here,
# `synthetic.clicks` makes a log: about 20,000 items in 1,159 sessions, of which 19 % were clicked.

# %%
parquet.write_table(synthetic.clicks(20_000, seed=0), folder / "clicks.parquet")
frame = pd.read_parquet(folder / "clicks.parquet")
print(len(frame), "items in", frame["session"].nunique(), "sessions")
print(f"clicked: {frame['clicked'].mean():.0%}")

# %% [markdown]
# ## Name the columns
#
# Each feature has a type. A missing number becomes the mean, beside a column that tells the model
# where it was missing. `of="query"` marks a column that is the same for all items of a session.

# %%
types = {
    "price": features.Number(),
    "rating": features.Number(missing=3.0),
    "in_stock": features.Bool(),
    "brand": features.Category(min_count=5),
    "device": features.Category(of="query", encoding="one_hot"),
    "tags": features.Set(max_values=3),
    "embedding": features.Vector(size=8),
}
columns = {
    "query": "session",
    "label": "clicked",
    "doc_id": "item",
    "features": types,
}

# %% [markdown]
# ## Split by session
#
# A session belongs to one split as a whole. A hash of its name gives the same split every time.

# %%
is_test = pd.util.hash_array(frame["session"].to_numpy(object)) % 10 == 0
train = data.frames.dataset(frame[~is_test], **columns, seed=1)
test = data.frames.dataset(frame[is_test], **columns, shuffle=False)

# %% [markdown]
# ## Train and evaluate
#
# The preparation holds the vocabularies and the means. It is made from the training split only.
# NDCG@10 is 1 when all clicked items are on top. It rises from about 0.36 with random weights
# to about 0.67. The column `utility`, from which the clicks were drawn, ranks with 0.74. No model
# can be better on average.

# %%
preparation = models.Preparation.of(train, types)
network = models.Perceptron([64, 32], dropout=0.2, embeddings=preparation.embeddings)
ranker = models.Prepared(preparation, network)
ndcg = metrics.NDCG(k=10, name="ndcg")
ranker.compile("adam", loss=losses.RGCrossLoss(), metrics=[ndcg])
before = ranker.evaluate(test, return_dict=True, verbose=0)
# the dataset shuffles its lists itself
ranker.fit(train, epochs=8, verbose=2, shuffle=False)
after = ranker.evaluate(test, return_dict=True, verbose=0)
print(f"NDCG@10 before training {before['ndcg']:.2f}, after {after['ndcg']:.2f}")

# %% [markdown]
# ## Export and serve
#
# The SavedModel contains the preparation, so a request has the same columns as the table. The
# endpoint is for development and tests; TensorFlow Serving serves the same folder in production.
# The client refuses a name that the model does not take. The cheap item is ranked first, and the
# dear one last.

# %%
export.export(ranker, types, folder / "saved_model")
export.publish(folder / "saved_model", folder / "ranker", 1)
items = [
    {"doc_id": "cheap", "price": 4.0, "rating": 4.5, "in_stock": True},
    {"doc_id": "dear", "price": 400.0, "rating": 2.0, "in_stock": False},
    {"doc_id": "middle", "price": 20.0, "rating": 3.5, "in_stock": True},
]
with (
    Endpoint([ModelConfig("ranker", folder / "ranker")]) as endpoint,
    Ranker(f"127.0.0.1:{endpoint.grpc_port}", manifest=folder / "saved_model") as client,
):
    for item in client.rank(items, query={"device": "phone"}):
        print(item.rank, item.doc_id, round(item.score, 2))
