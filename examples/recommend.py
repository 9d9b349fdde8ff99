# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Recommendation: from ratings to recommendations and similar items
#
# You have a table of users, items and ratings. This tutorial keeps the ratings that say "liked",
# holds out a part of them, and compares three ways to recommend: the most popular items, a matrix
# factorisation (ALS), and a two-tower model. Then it recommends items to a user, and finds similar
# items. It takes about a minute.
#
# Install: `pip install 'tfrank_sel[als,frames]'`.

# %%
import os
import pathlib
import tempfile

import keras
import numpy as np
import pandas as pd
from scipy import sparse

from tfrank_sel import losses, metrics
from tfrank_sel.models import als

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)

# %% [markdown]
# ## Read the ratings
#
# Download a set of [MovieLens](https://grouplens.org/datasets/movielens/) and set the environment
# variable `MOVIELENS` to its folder. Without it, the tutorial makes ratings: users like movies that
# fit their taste, and some movies are far more popular than others.


# %%
def movielens(folder: pathlib.Path) -> pd.DataFrame:
    """Reads `ratings.csv` of the newer sets, or `ratings.dat` of MovieLens-1M."""
    names = ["user", "item", "rating", "time"]
    if (folder / "ratings.csv").exists():
        return pd.read_csv(folder / "ratings.csv", names=names, header=0)
    return pd.read_csv(folder / "ratings.dat", names=names, sep="::", engine="python")


def made(num_users: int = 1500, num_items: int = 600) -> pd.DataFrame:
    """Makes ratings of some 40 items by each user."""
    tastes, kinds = random.normal(size=(num_users, 6)), random.normal(size=(num_items, 6))
    fit = tastes @ kinds.T
    popularity = -1.2 * np.log(1.0 + random.permutation(num_items))
    noise = random.gumbel(size=fit.shape)
    seen = np.argsort(-(0.7 * fit + popularity + noise), axis=1)[:, :40]
    user = np.repeat(np.arange(num_users), 40)
    stars = 3.5 + 0.5 * fit[user, seen.ravel()] + 0.5 * random.normal(size=user.size)
    rating = np.clip(np.round(stars), 1, 5)
    return pd.DataFrame({"user": user, "item": seen.ravel(), "rating": rating})


folder = os.environ.get("MOVIELENS")
ratings = movielens(pathlib.Path(folder)) if folder else made()
print(f"{len(ratings):,} ratings, {ratings['user'].nunique():,} users")

# %% [markdown]
# ## Keep what users liked, and hold out a part
#
# A rating of 4 or more counts as "liked". Models take users and items as numbers from 0 on, which
# `pd.factorize` gives. One liked item in five is held out for the test.

# %%
liked = ratings[ratings["rating"] >= 4.0]
user, users = pd.factorize(liked["user"])
item, items = pd.factorize(liked["item"])
held_out = random.random(len(user)) < 0.2
shape = (len(users), len(items))


def matrix(rows: np.ndarray) -> sparse.csr_matrix:
    """Returns the chosen interactions as a matrix of users and items."""
    return sparse.csr_matrix((np.ones(rows.sum()), (user[rows], item[rows])), shape)


train, test = matrix(~held_out), matrix(held_out)
print(f"{train.nnz:,} interactions to train on, {test.nnz:,} to test on, {len(items):,} items")

# %% [markdown]
# ## How to compare
#
# Each way gives a score to every item. Items that the user liked in the training part are left out:
# their label is NaN. Recall@20 is the share of the held-out items among the first 20. NDCG@20 also
# counts how early they come.

# %%
tested = np.flatnonzero(np.diff(test.indptr))[:2000]
labels = test[tested].toarray()
labels[train[tested].toarray() > 0.0] = np.nan
evaluate = metrics.Evaluator([metrics.Recall(20, name="recall"), metrics.NDCG(20, name="ndcg")])


def show(name: str, scores: np.ndarray) -> None:
    """Prints the quality of the scores of the tested users."""
    found = {metric: float(x.mean()) for metric, x in evaluate(labels, scores).items()}
    print(f"{name:<12} Recall@20 {found['recall']:.3f}, NDCG@20 {found['ndcg']:.3f}")


# %% [markdown]
# ## Popularity
#
# The baseline recommends the same items to everybody.

# %%
counts = np.asarray(train.sum(axis=0)).ravel()
show("popularity", np.tile(counts, [len(tested), 1]))

# %% [markdown]
# ## Matrix factorisation
#
# `RGFactorizer` minimises a ranking loss over all items, without sampling negatives. Set `alpha`,
# `regularization` and `count_exponent` together, by validation: these values suit MovieLens.

# %%
factorizer = als.RGFactorizer(
    als.RG2(alpha=0.03), num_factors=64, regularization=1.0, count_exponent=0.5, sweeps=10
)
factorizer.fit(train)
show("ALS", factorizer.user_factors_[tested] @ factorizer.item_factors_.T)

# %% [markdown]
# ## Two towers
#
# A two-tower model learns by gradient steps, so its towers may take any features; here they are
# embeddings of the identifiers. Each pair of a batch uses the items of the other pairs as
# negatives. Popular items are negatives more often, and `log_q` corrects that.


# %%
def tower(name: str, size: int) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Returns an input of identifiers, and their vectors of length 1."""
    identifiers = keras.Input([], dtype="int32", name=name)
    embeddings = keras.layers.Embedding(size, 64, name=f"{name}s")(identifiers)
    return identifiers, keras.layers.UnitNormalization()(embeddings)


(user_input, user_vectors), (item_input, item_vectors) = (
    tower(name, size) for name, size in zip(("user", "item"), shape, strict=True)
)
similarities = keras.ops.matmul(user_vectors, keras.ops.transpose(item_vectors))
towers = keras.Model({"user": user_input, "item": item_input}, similarities)
towers.compile(
    keras.optimizers.Adam(0.01),
    losses.InBatchInfoNCELoss(temperature=0.15, log_q=np.log(np.maximum(counts, 1.0))),
)
# each batch of 512 pairs is a square of similarities
order = random.permutation(np.flatnonzero(~held_out))[: train.nnz // 512 * 512]
pairs = {"user": user[order], "item": item[order]}
towers.fit(pairs, pairs["item"], batch_size=512, epochs=12, verbose=0)
vectors = {}
for name in ("users", "items"):
    weights = towers.get_layer(name).get_weights()[0]
    vectors[name] = weights / np.linalg.norm(weights, axis=1, keepdims=True)
show("two towers", vectors["users"][tested] @ vectors["items"].T)

# %% [markdown]
# ## Recommend and find similar items
#
# `recommend` leaves out what the user had in the interactions of the fit. `similar_items` compares
# the item vectors by their cosine.


# %%
def listed(found: np.ndarray, values: np.ndarray) -> str:
    """Returns items, each with its score."""
    return ", ".join(f"{items[i]} ({x:.2f})" for i, x in zip(found[0], values[0], strict=True))


print(f"user {users[0]}: {listed(*factorizer.recommend([0], k=5))}")
print(f"item {items[0]}: {listed(*factorizer.similar_items([0], k=5))}")

# %% [markdown]
# ## Save
#
# `save` and `load` keep the factors. `to_keras` returns a `TwoTower` with these embeddings: train
# it further, or export it.

# %%
path = pathlib.Path(tempfile.mkdtemp()) / "factorizer.npz"
factorizer.save(path)
print(f"{als.RGFactorizer.load(path).to_keras().count_params():,} parameters")
