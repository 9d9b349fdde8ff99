# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Sequences: from a log to the next items
#
# You have a log of users, items and times. This tutorial holds out what came last, trains a
# transformer over the whole catalogue, without sampled negatives, and compares it with the last
# item, popularity and a factorisation (ALS). Then it serves the next items of a history. It takes
# about a minute.
#
# Install: `pip install '.[als,frames,serving]'`.

# %%
import json
import os
import pathlib
import tempfile
import urllib.request

import keras
import numpy as np
from scipy import sparse

from tfrank_sel import export, losses, metrics, models
from tfrank_sel.data import Sequences
from tfrank_sel.models import als
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
folder = pathlib.Path(tempfile.mkdtemp())

# %% [markdown]
# ## Read the log
#
# Set the environment variable `SEQUENCES` to a CSV file with the columns `user`, `item` and `time`,
# a number such as Unix seconds. Without it, the tutorial makes a log: a user follows two series by
# turns, and takes one item in ten at random. So the next item depends on the one before the last.


# %%
def made(path: pathlib.Path, num_users: int = 2000, num_series: int = 50) -> None:
    """Writes up to 12 different items of each user."""
    odds = 1.0 / np.arange(1.0, num_series + 1.0)
    rows = ["user,item,time"]
    for user in range(num_users):
        two = random.choice(num_series, 2, replace=False, p=odds / odds.sum())
        start, begin = random.integers(10, size=2), random.random() * 50.0
        items = [f"s{two[n % 2]}-{(start[n % 2] + n // 2) % 10}" for n in range(12)]
        for n in np.flatnonzero(random.random(12) < 0.1):
            items[n] = f"s{random.choice(num_series, p=odds / odds.sum())}-{random.integers(10)}"
        rows += [f"u{user},{x},{begin + n:.3f}" for n, x in enumerate(dict.fromkeys(items))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


path = pathlib.Path(os.environ.get("SEQUENCES") or folder / "log.csv")
if "SEQUENCES" not in os.environ:
    made(path)
sequences = Sequences.read(path)
num_items = len(sequences.item_ids)
print(f"{len(sequences.users):,} interactions, {num_items:,} items")

# %% [markdown]
# ## Hold out the future
#
# The test asks for the first item of each user after a time. Nothing of a later time trains a
# model. `sequences.leave_one_out()` holds out the last item of each user instead, as many papers
# do; then models learn from what others did later.

# %%
train, test = sequences.split(np.quantile(sequences.times, 0.9))
users, first = np.unique(test.users, return_index=True)
targets = test.items[first]
histories = train.histories()[users]
is_fair = (histories.max(axis=1) > 0) & ~np.any(histories == targets[:, np.newaxis], axis=1)
users, targets, histories = (x[is_fair][:2000] for x in (users, targets, histories))
labels = np.zeros((len(users), num_items + 1))
rows = np.arange(len(users))
labels[rows[:, np.newaxis], histories] = np.nan  # what a user took, and padding, are left out
labels[rows, targets] = 1.0
evaluate = metrics.Evaluator([metrics.NDCG(10, name="ndcg"), metrics.Recall(10, name="recall")])


def show(name: str, scores: np.ndarray) -> None:
    """Prints the quality of the scores of all items, of which the first is padding."""
    found = {metric: float(x.mean()) for metric, x in evaluate(labels, scores).items()}
    print(f"{name}: NDCG@10 {found['ndcg']:.3f}, Recall@10 {found['recall']:.3f}")


# %% [markdown]
# ## Baselines
#
# How often an item followed the last one, how often it was taken, and a factorisation, which knows
# no order. The transformer must be better than all of them, or your data have no order to learn.

# %%
inputs, following = train.windows(max_length=20)
there = inputs > 0
pairs = (inputs[there], following[there])
follows = sparse.csr_matrix((np.ones(there.sum()), pairs), (num_items + 1, num_items + 1))
show("last item", follows[histories[:, -1]].toarray())
show("popularity", np.tile(np.bincount(train.items, minlength=num_items + 1), (len(users), 1)))
factorizer = als.RGFactorizer(als.RGCross(0.05), num_factors=64, regularization=2.0)
shape = (len(sequences.user_ids), num_items + 1)
factorizer.fit(sparse.csr_matrix((np.ones(len(train.users)), (train.users, train.items)), shape))
show("ALS", factorizer.user_factors_[users] @ factorizer.item_factors_.T)

# %% [markdown]
# ## A transformer over the whole catalogue
#
# `CatalogueLoss` compares the state of each position with the vectors of all items. Their logits
# are in memory only for a few positions at a time. `RGCrossLoss` and `RG2Loss` need none at all.

# %%
encoder = models.SequenceEncoder(num_items, num_factors=64, max_length=20)
loss = losses.CatalogueLoss(losses.SoftmaxLoss(), encoder.items)
encoder.compile(keras.optimizers.Adam(0.003), loss)
encoder.fit(inputs, following, batch_size=128, epochs=15, verbose=0)
states = encoder.predict(histories[:, -20:], verbose=0)[:, -1]
show("transformer", states @ encoder.items.get_weights()[0].T)

# %% [markdown]
# ## Serve
#
# The exported model takes ids and returns ids, without those of the history. The endpoint is for
# development; TensorFlow Serving answers the same request:
#
# ```sh
# curl -d '{"instances": [["s3-1", "s3-2"]]}' localhost:8501/v1/models/next:predict
# ```

# %%
export.next_items(encoder, sequences.item_ids, folder / "saved_model", k=3)
export.publish(folder / "saved_model", folder / "next", 1)
history = sequences.item_ids[train.items[train.users == users[0]] - 1].tolist()
with Endpoint([ModelConfig("next", folder / "next")]) as endpoint:
    url = f"http://127.0.0.1:{endpoint.rest_port}/v1/models/next:predict"
    with urllib.request.urlopen(url, json.dumps({"instances": [history]}).encode()) as response:
        [answer] = json.load(response)["predictions"]
print("history:", ", ".join(history[-5:]))
print("next:", ", ".join(answer["items"]))
