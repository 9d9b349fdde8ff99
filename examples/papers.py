# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # The losses of the papers, in pictures and small fits
#
# Families of losses that other libraries lack: selective matching losses ([Shamir and
# Warmuth, 2025](https://arxiv.org/abs/2506.04446)), smooth top-k losses ([Berrada et al.,
# 2018](https://arxiv.org/abs/1802.07595)) with soft top-k selection ([Struski et al.,
# 2025](https://arxiv.org/abs/2503.06242)), the quadratic softmax approximations RG^2 and RG^x
# ([2025](https://arxiv.org/abs/2506.09454)), the bounds of the softmax, and losses of many rows and
# classes. For each: the formula, a picture, and a fit that shows
# the effect. It takes about two minutes.
#
# Install: `pip install '.[plots]'`.

# %%
# %matplotlib inline
import keras
import matplotlib.pyplot as plt
import numpy as np
from figures import FIGURES
from matplotlib.figure import Figure

from tfrank_sel import bounds, links, losses, metrics, models

random = np.random.default_rng(0)


def figure_of(name: str) -> Figure:
    """Draws a figure of the gallery, with its title."""
    figure = FIGURES[name].draw()
    figure.suptitle(FIGURES[name].title)
    return figure


# %% [markdown]
# ## A matching loss: the link says where errors matter
#
# An increasing function `h`, the link, defines the matching loss of a predicted score `z` and an
# observed score `s`:
#
# ```
# loss(z, s) = integral from s to z of (h(t) - h(s)) dt
# ```
#
# It is the area between the link and its value at the observed score. It is convex in `z`.

# %%
figure_of("1")

# %% [markdown]
# Its curvature at `z` is the slope `h'(z)`, so errors cost most where the link is steep. Red, green
# and blue are a low, a middle and a high observed score. With the second link, errors cost most
# around the score 4.

# %%
figure_of("2")

# %% [markdown]
# The fit: a linear model without a bias cannot fit low and high scores together (each has its own
# feature). The shift `b` of the sigmoid link chooses which scores it fits, and the squared error
# fits neither. Contours are those of the loss by both weights.

# %%
figure_of("F.1")

# %% [markdown]
# The same in numbers: the bias update sensitivity, `links.bust`, says how far an error at one score
# moves a bias, and `links.best_bias` where the bias of a model that errs at all scores ends.

# %%
figure_of("BUST")

# %% [markdown]
# ## The composite Sigmoid: a score against zero
#
# A composite link is made of probabilities `p`, and a scaling `q` of the scores, such as a sigmoid.
# The composite Sigmoid has the probability that an item is chosen rather than nothing:
#
# ```
# h(z) = p(z) * q(z),    p(z) = sigmoid(integral of q up to z)
# ```
#
# Its matching loss (solid) is convex. The cross-entropy of the same probability (dashed) is not.

# %%
figure_of("3")

# %% [markdown]
# ## The composite Softmax: the items of a list compete
#
# The composite Softmax has the probabilities of a softmax over the items of the list. Its matching
# loss ranks like a softmax, and is exact about scores where `q` is steep.

# %%
figure_of("4")

# %% [markdown]
# The fit: a linear model cannot represent the scores below, so it must be wrong somewhere. Tell
# `losses.design` that high scores matter. It compares losses on held-out scores; here
# clipped squares are level with the best. `ReLU` is a matching loss of the same region. Above the
# score 1, the mean error of both is smaller than that of the squared error, by a third and by half.
# Below, where they do not learn labels, it is larger, most of all below 0.

# %%
features = random.normal(size=(1024, 10, 4)).astype("float32")
scores = np.tanh(features[..., 0]) + 0.5 * np.maximum(features[..., 1], 0.0)
scores += 0.1 * random.normal(size=scores.shape)


def linear_model() -> keras.Model:
    """Returns a model of one linear score per item."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input([None, 4]), keras.layers.Dense(1), keras.layers.Reshape([-1])]
    )


choice = losses.design("high_score", scores=scores)
print(choice.reason)
relu = losses.MatchingLoss(links.ReLU(shift=float(np.quantile(scores, 0.8))))
for loss in (choice.loss, relu, losses.MeanSquaredLoss()):
    model = linear_model()
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=metrics.by_region([0.0, 1.0]))
    model.fit(features, scores, epochs=10, verbose=0)
    errors = model.evaluate(features, scores, verbose=0)[1:]
    print(f"{type(loss).__name__}: mean errors", [round(x, 3) for x in errors])

# %% [markdown]
# ## Smooth top-k: the right item among the first k
#
# With the scores `s`, the right item `y`, and the mean `s_A` of the scores of a set `A` of `k`
# items:
#
# ```
# loss = tau * log sum_{A of size k} exp((margin * [y not in A] + s_A) / tau)
#        - tau * log sum_{A of size k with y} exp(s_A / tau)
# ```
#
# The sums have too many terms to write down, and are elementary symmetric polynomials of
# `exp(s / (k * tau))`, which the library computes without overflow. For `k` = 1 it is the softmax
# cross-entropy.

# %%
others = np.linspace(-2.0, 2.0, 9)
s = np.linspace(-4.0, 6.0, 401)
lists = np.column_stack([s, np.tile(others, [len(s), 1])])
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for k in (1, 3, 5):
    loss = losses.SmoothTopKLoss(k, tau=0.05, margin=0.1, reduction="none")
    axes.plot(s, loss(np.zeros(len(s), int), lists), label=f"k = {k}")
axes.plot(others, np.zeros(9), "k|", label="scores of the other items")
axes.set(
    title="With a larger k, a lower rank is good enough",
    xlabel="score of the right item",
    ylabel="loss",
)
axes.legend()
plt.show()

# %% [markdown]
# The fit: 100 classes in groups of five. Six labels in ten are replaced by a class of the same
# group, drawn at random. The smooth top-5 loss has the right class among the first five more often
# than the softmax cross-entropy (about 98 % and 95 %). `TopKCrossEntropyLoss` rewards the first
# place as well as the first five, and has the right class in the first place most often (about
# 65 %; smooth top-5 has 53 %, and the cross-entropy 47 %). [Quality](../docs/quality.md) has other
# shares of noise.

# %%
groups = np.repeat(0.6 * random.normal(size=(20, 32)), 5, axis=0)
centres = groups + 0.5 * random.normal(size=groups.shape)
right = np.tile(np.arange(100), 80)
points = (centres[right] + 0.7 * random.normal(size=(8000, 32))).astype("float32")
drawn = right // 5 * 5 + random.integers(5, size=8000)
noisy = np.where(random.random(8000) < 0.6, drawn, right)
train, test = slice(0, 5000), slice(5000, None)
for loss in (
    losses.SoftmaxLoss(),
    losses.SmoothTopKLoss(5),
    losses.TopKCrossEntropyLoss([1, 5]),
):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(128, "relu"), keras.layers.Dense(100)])
    model.compile(keras.optimizers.Adam(0.004), loss, jit_compile=True)
    model.fit(points[train], noisy[train], batch_size=100, epochs=30, verbose=0)
    ranked = np.argsort(-model.predict(points[test], verbose=0), axis=1)
    hits = ranked == right[test, np.newaxis]
    first, first_five = hits[:, 0].mean(), hits[:, :5].any(axis=1).mean()
    print(f"{type(loss).__name__:<21} accuracy {first:.2f}, top-5 accuracy {first_five:.2f}")

# %% [markdown]
# ## Soft top-k: a selection with a gradient
#
# `models.SoftTopK` gives each item its membership in the top `k`, between 0 and 1, with sum `k`:
#
# ```
# p_i = F((s_i - b) / temperature),    sum_i p_i = k
# ```
#
# where `F` is the distribution function of Laplace's distribution. As the temperature goes to 0, it
# becomes a hard selection.

# %%
items = np.sort(random.normal(size=20))[::-1].astype("float32")
figure, axes = plt.subplots(figsize=(6, 3.0), layout="constrained")
for temperature in (1.0, 0.3, 0.05):
    memberships = models.SoftTopK(5.0, temperature=temperature)(items[np.newaxis])[0]
    axes.plot(range(1, 21), memberships, marker="o", label=f"temperature {temperature}")
axes.set(
    title="A lower temperature selects five items more sharply",
    xlabel="rank of the item",
    ylabel="membership",
    xticks=(1, 5, 10, 15, 20),
)
axes.legend()
plt.show()

# %% [markdown]
# The fit: the five best items of each list of twenty were taken, and the data has only the sum of
# their values. The best items have a large first feature and a small second one. The model finds
# that out, because the selection has a gradient: its weights are opposite for these features, and
# near 0 for the others. About 98 % of the items that it selects are right.

# %%
described = random.normal(size=(2000, 20, 4)).astype("float32")
values = random.normal(size=(2000, 20)).astype("float32")


def best_five(x: np.ndarray) -> np.ndarray:
    """Returns whether each item is among the five best of its list."""
    return x >= -np.partition(-x, 4, axis=1)[:, 4:5]


taken = best_five(described[..., 0] - described[..., 1])
sums = np.sum(values * taken, axis=1)
scorer = linear_model()
item_values = keras.Input([20])
memberships = models.SoftTopK(5.0, temperature=0.3)(scorer.outputs[0])
total = keras.ops.sum(memberships * item_values, axis=1)
model = keras.Model([scorer.inputs[0], item_values], total)
model.compile(keras.optimizers.Adam(0.02), "mean_squared_error")
inputs = [described, values]
model.fit([x[:1500] for x in inputs], sums[:1500], epochs=15, verbose=0)
selected = best_five(scorer.predict(described[1500:], verbose=0))
print("weights", scorer.layers[0].get_weights()[0].ravel().round(1))
print(f"right: {np.mean(taken[1500:][selected]):.3f} of the selected items")

# %% [markdown]
# ## RG^2 and RG^x: a softmax that least squares can solve
#
# RG^x is the expansion of the softmax cross-entropy to second order around equal scores, with the
# mean `mu` and the variance `var` of the scores `o` of the `n` items of a list, and gains `g`:
#
# ```
# RG^x = sum_i g_i * (log n + mu + var / 2 - o_i)
# RG^2 = sum_i g_i * (log n + mu + var / 2 + mu**2 / 2 - o_i)
# ```
#
# RG^2 adds the square of the mean, so that its Hessian is diagonal. Alternating least squares
# minimises both over all items, without sampling negatives
# ([recommendation](../docs/recommendation.md)).

# %%
logits = np.linspace(-4.0, 14.0, 401)
wide = np.column_stack([logits, np.zeros([len(logits), 9])]).astype("float32")
labels = np.eye(10, dtype="float32")[np.zeros(len(logits), int)]
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for make in (losses.SoftmaxLoss, losses.RG2Loss, losses.RGCrossLoss):
    axes.plot(logits, make(reduction="none")(labels, wide), label=make.__name__)
axes.set(
    title="The expansions follow the softmax near equal scores",
    xlabel="score of the relevant item, the other nine at 0",
    ylabel="loss",
)
axes.legend()
plt.show()

# %% [markdown]
# The fit: far from equal scores, the expansions rise again, and so limit the scores. The norm of
# the scores shows it. That does not harm the order: all three rank this set equally well.

# %%
grades = np.clip(np.round(features[..., 0] + 0.3 * random.normal(size=scores.shape)), 0.0, 3.0)
for make in (losses.SoftmaxLoss, losses.RG2Loss, losses.RGCrossLoss):
    model = linear_model()
    measured = [metrics.NDCG(5, name="ndcg"), metrics.LogitNorm(name="norm")]
    model.compile(keras.optimizers.Adam(0.02), make(), metrics=measured)
    model.fit(features, grades, epochs=10, verbose=0)
    found = model.evaluate(features, grades, verbose=0, return_dict=True)
    print(f"{make.__name__:<11} NDCG@5 {found['ndcg']:.3f}, norm of scores {found['norm']:.2f}")

# %% [markdown]
# ## The softmax bounds ranking metrics
#
# With one relevant item, the probability `exp(-loss)` of the softmax cross-entropy is at most the
# reciprocal rank, and at most the NDCG ([Bruch et al., 2019](https://doi.org/10.1145/3341981.3344221)).
# So a smaller loss guarantees a better list. The picture moves the relevant item past nine others.

# %%
right = np.column_stack([s, np.tile(others, [len(s), 1])])
values = bounds.softmax_bounds(np.eye(10)[np.zeros(len(s), int)], right)
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.plot(s, values.ndcg, label="NDCG")
axes.plot(s, values.rr, label="reciprocal rank")
axes.plot(s, values.bound, "k", label="exp(-loss)")
axes.set(
    title="A smaller loss guarantees a better list",
    xlabel="score of the relevant item",
    ylabel="value of the list",
)
axes.legend()
plt.show()

# %% [markdown]
# ## n rows of m classes: rare classes
#
# A cross-entropy per row counts a frequent class more. The loss of [Su,
# 2022](https://kexue.fm/archives/9158) takes all rows of a batch together, with one logarithm for
# each class: a frequent class adds to the inside of its logarithm only. For rows `i` with the
# probabilities `t` and the scores `s`:
#
# ```
# loss = sum_j log(1 + sum_i t_ij * sum_{k != j} exp(s_ik - s_ij))
# ```
#
# The fit: classes of 1,000, 100 and 20 overlapping points in the plane. The lines are where
# decisions change: the cross-entropy leaves the rare classes little room.

# %%
centres = np.array([[0.0, 0.0], [1.6, 0.4], [0.4, 1.6]])
owner = np.repeat([0, 1, 2], [1000, 100, 20])
spots = np.float32(centres[owner] + 0.8 * random.normal(size=(len(owner), 2)))
plane = np.stack(np.meshgrid(*2 * [np.linspace(-2.5, 4.0, 200)]), axis=-1).astype("float32")
figure, each = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
for axes, loss in zip(each, (losses.SoftmaxLoss(), losses.NWayJointLoss()), strict=True):
    x, y = spots, np.eye(3, dtype="float32")[owner]
    if isinstance(loss, losses.NWayJointLoss):
        x, y = x[np.newaxis], y[np.newaxis]  # all rows together
    classifier = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(3)])
    classifier.compile(keras.optimizers.Adam(0.1), loss)
    classifier.fit(x, y, batch_size=len(owner), epochs=200, verbose=0)
    weights, bias = classifier.layers[-1].get_weights()
    decided = np.argmax(spots @ weights + bias, axis=-1)
    axes.scatter(*spots.T, c=owner, s=6, cmap="brg")
    axes.contour(*plane.transpose(2, 0, 1), np.argmax(plane @ weights + bias, axis=-1), colors="k")
    axes.set(title=type(loss).__name__)
    recalls = [np.mean(decided[owner == j] == j) for j in range(3)]
    print(f"{type(loss).__name__:<13} recall of each class", np.round(recalls, 2))
plt.show()
