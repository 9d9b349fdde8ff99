# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Search: from a click log to a served ranker
#
# You have a log with one row for each item that a user saw: the search, the item, its position,
# whether it was clicked, and columns that describe the item and the search. Users click the first
# items most, whatever they are. This tutorial trains one ranker on the clicks as they are and one
# on clicks without that bias, compares them on searches that they have not seen, exports the better
# one, and asks a server to rank a list. It takes about a minute.
#
# Install: `pip install '.[frames,serving]' pandas`.

# %%
import pathlib
import tempfile

import keras
import numpy as np
import pandas as pd

from tfrank_sel import clicks, data, export, features, losses, metrics, models
from tfrank_sel.data import synthetic
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

folder = pathlib.Path(tempfile.mkdtemp())
keras.utils.set_random_seed(0)

# %% [markdown]
# ## Make a log
#
# Skip this cell if you have a log. Here, `synthetic.clicks` makes the items of 1,159 searches,
# whose `grade` tells how good they are. Users of `synthetic.sessions` see ten items of a search in
# the order of their ratings, with some noise, and look at position k with probability 1 / k.

# %%
items = synthetic.clicks(20_000, seed=0).to_pandas().rename(columns={"item": "product"})
items = items.drop_duplicates(["session", "product"]).drop(columns=["clicked", "weight"])
items["grade"] = items.pop("utility").clip(0.0, 4.0).round()
items["rating"] = items["rating"].astype("float32")
searches = [x.reset_index(drop=True) for _, x in items.groupby("session", sort=False)]
shown = synthetic.sessions(
    [x["grade"].to_numpy() for x in searches],
    60_000,
    scores=[x["rating"].fillna(3.0).to_numpy() for x in searches],
    temperature=0.5,
)
by_place = pd.concat(searches, keys=range(len(searches))).rename(columns={"session": "search"})
truth = ["attraction", "propensity"]  # what a real log does not tell
log = pd.DataFrame(shown).drop(columns=truth).join(by_place, on=["query", "item"])
log.drop(columns=["query", "item"]).to_parquet(folder / "log.parquet")

# %% [markdown]
# ## Correct the log
#
# Replace the file by your own. The propensity of a position is how often users look at it, relative
# to the first one; here it is 1 / k. `clicks.labels` makes one label for each search and item: the
# probability of a click by a user who looks.

# %%
log = pd.read_parquet(folder / "log.parquet")
print(len(log), "items shown in", log["session"].nunique(), "sessions")
read = clicks.Log.of(log, query="search", item="product")
propensities = clicks.estimate(read)
print("propensities:", propensities.values.round(2))
corrected = clicks.labels(read, propensities)
as_clicked = clicks.labels(read, np.ones(len(log)))
labels = pd.DataFrame(
    {
        "search": corrected["query"],
        "product": corrected["item"],
        "corrected": corrected["label"],
        "clicks": as_clicked["label"],
    }
)
frame = log.drop_duplicates(["search", "product"]).merge(labels, on=["search", "product"])

# %% [markdown]
# ## Name the columns
#
# Each feature has a type. A missing number becomes the mean, beside a column that tells the model
# where it was missing. `of="query"` marks a column that is the same for all items of a search.

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
columns = {"query": "search", "doc_id": "product", "features": types}

# %% [markdown]
# ## Train and compare
#
# A search belongs to one split as a whole: a hash of its name gives the same split every time. The
# preparation holds the vocabularies and the means. It is made from the training split only. NDCG@10
# is 1 when the best items are on top. Here it is that of the true grades: about 0.77 for the ranker
# of clicks, and 0.86 for that of corrected clicks. A real log has no grades: compare the clicks
# that it lets each ranker expect by `clicks.reordered`, and both rankers by interleaving.

# %%
is_test = pd.util.hash_array(frame["search"].to_numpy(object)) % 10 == 0
test = data.frames.dataset(frame[is_test], **columns, label="grade", shuffle=False)
rankers = {}
for label in ("clicks", "corrected"):
    train = data.frames.dataset(frame[~is_test], **columns, label=label, seed=1)
    preparation = models.Preparation.of(train, types)
    network = models.Perceptron([64, 32], dropout=0.2, embeddings=preparation.embeddings)
    ranker = rankers[label] = models.Prepared(preparation, network)
    ndcg = metrics.NDCG(k=10, name="ndcg")
    ranker.compile("adam", loss=losses.SoftmaxLoss(), metrics=[ndcg])
    # the dataset shuffles its lists itself
    ranker.fit(train, epochs=8, verbose=0, shuffle=False)
    found = ranker.evaluate(test, return_dict=True, verbose=0)
    print(f"trained on {label}: NDCG@10 {found['ndcg']:.3f}")
ranker = rankers["corrected"]

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
