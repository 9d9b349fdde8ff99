# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Search: from a click log to a served ranker
#
# You have a table with one row for each item that was shown: the search session, the item, whether
# it was clicked, and columns that describe the item and the session. This tutorial trains a ranker
# on that table, evaluates it on sessions that it has not seen, exports it, and asks a server to
# rank a list. It takes about a minute.
#
# Install: `pip install 'tfrank_sel[frames,serving]'`.

# %%
import pathlib
import tempfile

import keras
import pandas as pd
from click_log import clicks
from pyarrow import parquet

from tfrank_sel import data, export, features, losses, metrics, models
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

folder = pathlib.Path(tempfile.mkdtemp())
keras.utils.set_random_seed(0)

# %% [markdown]
# ## Read the log
#
# Replace these two lines by `frame = pd.read_parquet("your.parquet")`. The log of this tutorial
# is made by `click_log.py`.

# %%
parquet.write_table(clicks(20_000, seed=0), folder / "clicks.parquet")
frame = pd.read_parquet(folder / "clicks.parquet")
print(len(frame), "items in", frame["session"].nunique(), "sessions")

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
columns = {"query": "session", "label": "clicked", "doc_id": "item", "features": types}

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
# NDCG@10 is 1 when all clicked items are on top.

# %%
preparation = models.Preparation.of(train, types)
network = models.Perceptron([64, 32], dropout=0.2, embeddings=preparation.embeddings)
ranker = models.Prepared(preparation, network)
ranker.compile("adam", loss=losses.RGCrossLoss(), metrics=[metrics.NDCG(k=10)])
before = ranker.evaluate(test, return_dict=True, verbose=0)
ranker.fit(train, epochs=8, verbose=2, shuffle=False)  # the dataset shuffles its lists itself
after = ranker.evaluate(test, return_dict=True, verbose=0)
[name] = [name for name in after if name != "loss"]
print(f"NDCG@10 before training {before[name]:.3f}, after training {after[name]:.3f}")

# %% [markdown]
# ## Export and serve
#
# The SavedModel contains the preparation, so a request has the same columns as the table. The
# endpoint is for development and tests; TensorFlow Serving serves the same folder in production.
# The client refuses a name that the model does not take.

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
