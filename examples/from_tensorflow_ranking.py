# %% [markdown]
# # From tensorflow-ranking, line by line
#
# Three programs that the documentation of tensorflow-ranking starts with, ported: the Keras
# quickstart, the DNN on TFRecords, and the text ranker on lists of answers (as in ANTIQUE). Above
# each line that changed stands the line it replaces. `presets.tfr` has the numbers of
# tensorflow-ranking, so learning rates and loss curves stay as they were. The data are made here.

# %%
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

# was: import tensorflow_ranking as tfr
from tfrank_sel import data, export
from tfrank_sel.data import ListFeatures, parsing, writing
from tfrank_sel.presets import tfr

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
folder = pathlib.Path(tempfile.mkdtemp())

# %% [markdown]
# ## 1. The Keras quickstart: ratings of movies
#
# Ratings come one by one. They are grouped by user, and a batch holds ragged lists.

# %%
users, movies = random.normal(size=(100, 4)), random.normal(size=(60, 4))
user, movie = (x.ravel() for x in np.mgrid[:100, :60])
seen = random.random(user.size) < 0.3
user, movie = user[seen], movie[seen]
stars = np.clip(np.round(3.0 + np.sum(users[user] * movies[movie], axis=1)), 1, 5)
ratings = tf.data.Dataset.from_tensor_slices(
    {
        "user_id": [f"user {i}" for i in user],
        "movie_title": [f"movie {i}" for i in movie],
        "user_rating": stars.astype("float32"),
    }
)

# was: tf.keras.layers.experimental.preprocessing.StringLookup(mask_token=None)
user_ids = keras.layers.StringLookup(mask_token=None)
user_ids.adapt(ratings.map(lambda x: x["user_id"]).batch(1000))
titles = keras.layers.StringLookup(mask_token=None)
titles.adapt(ratings.map(lambda x: x["movie_title"]).batch(1000))

lists = ratings.group_by_window(
    key_func=lambda x: user_ids(x["user_id"]),
    reduce_func=lambda key, of_user: of_user.batch(100),
    window_size=100,
).map(lambda x: ({"user_id": x["user_id"], "movie_title": x["movie_title"]}, x["user_rating"]))
# was: lists.apply(tf.data.experimental.dense_to_ragged_batch(batch_size=32))
lists = lists.ragged_batch(32)


class MovieRanker(keras.Model):
    """Scores a movie by the product of its embedding and the user's."""

    def __init__(self):
        super().__init__()
        self.users = keras.layers.Embedding(user_ids.vocabulary_size(), 64)
        self.movies = keras.layers.Embedding(titles.vocabulary_size(), 64)

    def call(self, features):
        """Returns a score for each movie of each list."""
        of_users = self.users(user_ids(features["user_id"]))
        of_movies = self.movies(titles(features["movie_title"]))
        return tf.reduce_sum(of_users * of_movies, axis=2)


model = MovieRanker()
model.compile(
    optimizer=keras.optimizers.Adagrad(0.5),
    # was: tfr.keras.losses.get(tfr.keras.losses.RankingLossKey.SOFTMAX_LOSS, ragged=True)
    loss=tfr.losses.get("softmax_loss"),
    metrics=[
        # was: tfr.keras.metrics.get(key="ndcg", name="metric/ndcg", ragged=True)
        tfr.metrics.get(key="ndcg", name="metric/ndcg"),
        # was: tfr.keras.metrics.get(key="mrr", name="metric/mrr", ragged=True)
        tfr.metrics.get(key="mrr", name="metric/mrr"),
    ],
)
history = model.fit(lists, epochs=3, verbose=0, shuffle=False).history
print("quickstart: NDCG", [round(x, 3) for x in history["metric/ndcg"]])

# %% [markdown]
# The best movies of a user who is in the data:

# %%
candidates = tf.constant([[f"movie {i}" for i in range(60)]])
scores = model({"user_id": tf.fill([1, 60], "user 42"), "movie_title": candidates})
# was: tfr.utils.sort_by_scores(scores, [candidates])[0]
best = tfr.sort_by_scores(scores, [candidates], topn=5)[0]
print("quickstart: best for user 42:", [title.decode() for title in best.numpy()[0]])

# %% [markdown]
# ## 2. A DNN on TFRecords of ELWC
#
# One feature of the query and two of each item. The two feature specs become one `ListFeatures`.

# %%
# was: example_feature_spec, label_spec
items = {
    "price": tf.io.FixedLenFeature([1], tf.float32, [0.0]),
    "quality": tf.io.FixedLenFeature([1], tf.float32, [0.0]),
    "relevance": tf.io.FixedLenFeature([], tf.float32, 0.0),
}
# was: context_feature_spec
context = {"budget": tf.io.FixedLenFeature([1], tf.float32, [0.0])}
features = ListFeatures(items, context, label="relevance")

with tf.io.TFRecordWriter(str(folder / "train.tfrecord")) as file:
    for _ in range(400):
        size = random.integers(5, 15)
        price, quality = random.normal(size=(size, 1)), random.normal(size=(size, 1))
        budget = random.normal(size=1)
        utility = (quality - np.abs(price - budget))[:, 0]
        values = {"price": price, "quality": quality, "budget": budget}
        values["relevance"] = np.clip(np.round(utility + 1.0), 0, 4)
        file.write(writing.serialize_elwc(values, features))

# was: tfr.data.build_ranking_dataset(file_pattern, tfr.data.ELWC, batch_size=32, ...)
batches = data.batches(
    [folder / "train.tfrecord"],
    features,
    batch_size=32,
    parse=parsing.parse_elwc,
    inputs=["price", "quality", "budget"],
    shuffle_buffer=400,
    seed=0,
)

# was: tfr.keras.model.FeatureSpecInputCreator(context_feature_spec, example_feature_spec)
inputs = {
    "price": keras.Input([None, 1], name="price"),
    "quality": keras.Input([None, 1], name="quality"),
    "budget": keras.Input([1], name="budget"),
}
# was: a `Preprocessor`, and `ConcatFeatures`, which repeats the query's features for each item
budget = keras.ops.ones_like(inputs["price"]) * keras.layers.Reshape([1, 1])(inputs["budget"])
x = keras.layers.Concatenate()([inputs["price"], inputs["quality"], budget])
# was: tfr.keras.model.DNNScorer(hidden_layer_dims=[32, 16], output_units=1)
for units in (32, 16):
    x = keras.layers.Dense(units, activation="relu")(x)
# was: tfr.keras.model.ModelBuilder(input_creator, preprocessor, scorer, "mask", name).build()
ranker = keras.Model(inputs, keras.layers.Reshape([-1])(keras.layers.Dense(1)(x)))

# was: tfr.keras.pipeline.SimplePipeline(...).train_and_validate()
ranker.compile(
    keras.optimizers.Adagrad(0.1),
    # was: tfr.keras.losses.get("approx_ndcg_loss")
    loss=tfr.losses.get("approx_ndcg_loss"),
    # was: tfr.keras.metrics.default_keras_metrics()
    metrics=tfr.metrics.default_keras_metrics(),
)
history = ranker.fit(batches, epochs=8, verbose=0, shuffle=False).history
print("TFRecords: NDCG", [round(x, 3) for x in history["metric/ndcg_5"]])

# %% [markdown]
# The export has the signatures of tensorflow-ranking under their names.

# %%
served = ListFeatures({name: items[name] for name in ("price", "quality")}, context)
# was: tfr.keras.saved_model.Signatures(model, context_feature_spec, example_feature_spec)
export.export(ranker, served, folder / "ranker")
signatures = tf.saved_model.load(str(folder / "ranker")).signatures
print("TFRecords:", *(name for name in signatures if name.startswith("tensorflow/serving")))

# %% [markdown]
# ## 3. Answers to questions: lists of texts
#
# ELWC as in ANTIQUE: tokens of the question, tokens of each answer, and a grade from 0 to 3.

# %%
texts = ListFeatures(
    {
        "document_tokens": tf.io.RaggedFeature(tf.string),
        "relevance": tf.io.FixedLenFeature([], tf.float32, 0.0),
    },
    {"query_tokens": tf.io.RaggedFeature(tf.string)},
    padding={"relevance": -1.0},
)
vocabulary = [f"word{i}" for i in range(40)]
answers = []
for _ in range(300):
    question = random.choice(vocabulary, 3, replace=False)
    documents = [random.choice(vocabulary, random.integers(3, 9)) for _ in range(8)]
    shared = [len({*question} & {*document}) for document in documents]
    values = {"query_tokens": question, "document_tokens": documents, "relevance": shared}
    answers.append(writing.serialize_elwc(values, texts))


# was: tfr.data.parse_from_example_list(serialized, list_size, context_spec, example_spec)
def parsed(serialized):
    """Returns tokens, padded with the empty string, and labels, padded with -1."""
    found = parsing.parse_elwc(serialized, texts)
    names = ("query_tokens", "document_tokens")
    return {name: found[name].to_tensor("") for name in names}, found["relevance"]


antique = tf.data.Dataset.from_tensor_slices(answers).batch(32).map(parsed).cache()

query = keras.Input([None], dtype="string", name="query_tokens")
document = keras.Input([None, None], dtype="string", name="document_tokens")
lookup = keras.layers.StringLookup(vocabulary=vocabulary, mask_token="")
embedding = keras.layers.Embedding(lookup.vocabulary_size(), 20)
# was: tf.feature_column.embedding_column, which averages the embeddings of the tokens
of_query = keras.layers.Lambda(lambda x: tf.reduce_mean(x, axis=-2, keepdims=True))(
    embedding(lookup(query))
)
of_documents = keras.layers.Lambda(lambda x: tf.reduce_mean(x, axis=-2))(
    embedding(lookup(document))
)
reader = keras.Model(
    {"query_tokens": query, "document_tokens": document},
    keras.layers.Lambda(lambda x: tf.reduce_sum(x, axis=-1))(of_query * of_documents),
)
reader.compile(
    keras.optimizers.Adam(0.02),
    # was: tfr.keras.losses.SoftmaxLoss()
    loss=tfr.losses.softmax_loss(),
    # was: tfr.keras.metrics.NDCGMetric(name="ndcg_5", topn=5)
    metrics=[tfr.metrics.ndcg(name="ndcg_5", topn=5)],
)
history = reader.fit(antique, epochs=5, verbose=0, shuffle=False).history
print("answers: NDCG", [round(x, 3) for x in history["ndcg_5"]])
