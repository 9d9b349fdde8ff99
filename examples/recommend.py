# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Recommendation: from ratings to recommendations and similar items
#
# You have a table of users, items and ratings. This tutorial keeps the ratings that say "liked",
# holds out a part of them, and compares three ways to recommend: the most popular items, a matrix
# factorisation (ALS), and a two-tower model. Then it recommends items to a user, and finds similar
# items. It takes about a minute, and about four on MovieLens-1M.
#
# Install: `pip install '.[als]' pandas`.

# %%
import os
import pathlib
import tempfile
from collections.abc import Sequence

import keras
import numpy as np
import pandas as pd
from scipy import sparse

from tfrank_sel import metrics
from tfrank_sel.models import als

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)

# %% [markdown]
# ## Read the ratings
#
# Download a set of [MovieLens](https://grouplens.org/datasets/movielens/) and set the environment
# variable `MOVIELENS` to its folder. Without it, the tutorial makes ratings: each movie belongs to
# a genre, users prefer some genres, and some movies are far more popular than others.

# %%
FILES = {  # ratings and movies, each with the character between columns
    "ratings.csv": (",", "movies.csv", ","),  # MovieLens-latest, 20M, 25M and 32M
    "ratings.dat": ("::", "movies.dat", "::"),  # 1M
    "u.data": ("\t", "u.item", "|"),  # 100k
}
GENRES = ("action", "comedy", "crime", "drama", "horror", "romance")


def movielens(folder: pathlib.Path) -> tuple[pd.DataFrame, dict[int, str]]:
    """Reads the ratings and the titles of any set of MovieLens."""
    [ratings] = [name for name in FILES if (folder / name).exists()]
    between, movies, between_movies = FILES[ratings]
    header = 0 if ratings.endswith(".csv") else None
    kinds = {"header": header, "engine": "python" if between == "::" else "c"}
    names = ["user", "item", "rating", "time"]
    table = pd.read_csv(folder / ratings, sep=between, names=names, **kinds)
    if not (folder / movies).exists():
        return table, {}
    encoding = "utf-8" if header == 0 else "latin-1"
    named = {"usecols": [0, 1], "index_col": 0, "encoding": encoding}
    titles = pd.read_csv(folder / movies, sep=between_movies, **kinds | named)
    return table, titles.iloc[:, 0].to_dict()


def made(num_users: int = 1500, num_items: int = 600) -> tuple[pd.DataFrame, dict[int, str]]:
    """Makes 40 ratings of each user, and titles."""
    genres = random.integers(0, len(GENRES), num_items)
    kinds = np.eye(len(GENRES))[genres] + 0.3 * random.normal(size=(num_items, len(GENRES)))
    fit = random.normal(size=(num_users, len(GENRES))) @ kinds.T
    popularity = -1.2 * np.log(1.0 + random.permutation(num_items))
    seen = np.argsort(-(1.5 * fit + popularity + random.gumbel(size=fit.shape)), axis=1)[:, :40]
    user = np.repeat(np.arange(num_users), 40)
    stars = 3.5 + fit[user, seen.ravel()] + 0.5 * random.normal(size=user.size)
    rating = np.clip(np.round(stars), 1, 5)
    titles = {i: f"{GENRES[genre]} {i}" for i, genre in enumerate(genres)}
    return pd.DataFrame({"user": user, "item": seen.ravel(), "rating": rating}), titles


folder = os.environ.get("MOVIELENS")
ratings, titles = movielens(pathlib.Path(folder)) if folder else made()
print(f"{len(ratings):,} ratings of {ratings['user'].nunique():,} users")

# %% [markdown]
# ## Keep what users liked, and hold out a part
#
# A rating of 4 or more counts as "liked". Models take users and items as numbers from 0 on, which
# `pd.factorize` gives. One liked item in five is held out for the test. If your ratings have times,
# hold out the last ones: that is closer to production.

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
print(f"{train.nnz:,} to train on, {test.nnz:,} to test on, {len(items):,} items")

# %% [markdown]
# ## How to compare
#
# Each way gives a score to every item. Items that the user liked in the training part are left out:
# their label is NaN. Recall@20 is the share of the held-out items among the first 20. NDCG@20 also
# counts how early they come. This is what to expect:
#
# | Recall@20, NDCG@20 | ratings made here | MovieLens-100k |
# |---|---|---|
# | popularity | 0.28, 0.21 | 0.19, 0.17 |
# | ALS | 0.50, 0.47 | 0.38, 0.35 |
# | two towers | 0.50, 0.47 | 0.38, 0.35 |

# %%
tested = np.flatnonzero(np.diff(test.indptr))[:2000]
labels = test[tested].toarray()
labels[train[tested].toarray() > 0.0] = np.nan
evaluate = metrics.Evaluator([metrics.Recall(20, name="recall"), metrics.NDCG(20, name="ndcg")])


def show(name: str, scores: np.ndarray) -> None:
    """Prints the quality of the scores of the tested users."""
    found = {metric: float(x.mean()) for metric, x in evaluate(labels, scores).items()}
    print(f"{name}: Recall@20 {found['recall']:.3f}, NDCG@20 {found['ndcg']:.3f}")


# %% [markdown]
# ## Popularity
#
# The baseline recommends the same items to everybody. A model that is not better than this is of no
# use.

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
    als.RG2(alpha=0.03),
    num_factors=64,
    regularization=1.0,
    count_exponent=0.5,
    sweeps=10,
)
factorizer.fit(train)
show("ALS", factorizer.user_factors_[tested] @ factorizer.item_factors_.T)

# %% [markdown]
# ## Two towers
#
# The towers are networks, so they may take any features, and give vectors to users and items that
# are new; here they are embeddings of the identifiers. `fit_towers` trains them by the same loss
# over all items, with gradient steps. In-batch negatives, the usual way, are [another
# choice](../docs/towers.md).


# %%
def tower(size: int) -> keras.Model:
    """Returns a network from identifiers to vectors."""
    start = keras.initializers.RandomNormal(stddev=0.1)
    table = keras.layers.Embedding(size, 64, embeddings_initializer=start)
    return keras.Sequential([keras.Input([], dtype="int32"), table])


towers = tower(len(users)), tower(len(items))
by_towers = als.RGFactorizer(als.RG2(alpha=0.03), num_factors=64, regularization=1.0)
identifiers = np.arange(len(users)), np.arange(len(items))
adam = keras.optimizers.Adam(0.02)
als.fit_towers(by_towers, train, towers, identifiers, adam, epochs=30, batch_size=128)
show("two towers", by_towers.user_factors_[tested] @ by_towers.item_factors_.T)

# %% [markdown]
# ## Recommend to a user
#
# `recommend` leaves out what the user had in the interactions of the fit.


# %%
def named(found: Sequence[int]) -> str:
    """Returns the titles of some items."""
    return ", ".join(str(titles.get(items[i], items[i])) for i in found)


best, scores = factorizer.recommend(0, k=5)
print("liked:", named(train[0].indices[:5]))
print("recommended:", named(best))

# %% [markdown]
# ## Find similar items
#
# Similar items are nearest neighbours: those whose vectors have the largest cosines. For
# millions of items, put the vectors into an index for approximate nearest neighbours, such as
# ScaNN or Faiss. Most neighbours
# here have the genre of the item, which no model was told. In MovieLens, the neighbours of Star
# Wars are The Empire Strikes Back and Return of the Jedi.

# %%
chosen = int(np.argsort(-counts)[20])  # a popular item
similar, cosines = factorizer.similar_items(chosen, k=5)
print("item:", named([chosen]))
print("similar by ALS:", named(similar))
nearest, _ = by_towers.similar_items(chosen, k=5)
print("similar by two towers:", named(nearest))

# %% [markdown]
# ## Save
#
# `save` and `load` keep the factors. `to_keras` returns a `TwoTower` with these embeddings, which
# scores lists of items: train it further, or export it.

# %%
path = pathlib.Path(tempfile.mkdtemp()) / "factorizer"
factorizer.save(path)
model = als.RGFactorizer.load(path).to_keras()
inputs = {"user": np.array([0]), "item": best[np.newaxis]}
print(bool(np.allclose(model(inputs)[0], scores, rtol=1e-4)))
