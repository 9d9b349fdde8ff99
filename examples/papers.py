# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # The losses of the papers, in pictures and small fits
#
# Three families of losses that other libraries lack: selective matching losses ([Shamir and
# Warmuth, 2025](https://arxiv.org/abs/2506.04446)), smooth top-k losses ([Berrada et al.,
# 2018](https://arxiv.org/abs/1802.07595)) with soft top-k selection ([Struski et al.,
# 2025](https://arxiv.org/abs/2503.06242)), and the quadratic softmax approximations RG^2 and RG^x
# ([2025](https://arxiv.org/abs/2506.09454)). For each: the formula, a picture, and a fit that shows
# the effect.
#
# Install: `pip install 'tfrank_sel[plots]'`.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np

from tfrank_sel import links, losses, metrics, models, plots

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)

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
# It is convex in `z`, and its curvature at `z` is the slope `h'(z)`: errors cost most where the
# link is steep.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
link = links.Sigmoid(scale=3.0, shift=1.0)
plots.draw_link(left, link)
left.set(title="The link rises around the score 1", xlabel="score")
plots.draw_loss(right, losses.MatchingLoss(link))
right.set(title="Errors cost where the link rises", xlabel="predicted score", ylabel="loss")
for axes in (left, right):
    axes.legend()
plt.show()

# %% [markdown]
# ## Composite Sigmoid and Softmax: items compete
#
# A composite link first scales the scores by `q`, and then compares the items of a list by a
# softmax. The matching loss of the composite Softmax ranks like a softmax, and is exact about
# scores where `q` is steep. `losses.design` chooses `q` from a description of what matters, and
# measures the result.

# %%
figure, places = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
for axes, matters in zip(places, ("high_score", "low_score", "low_norm"), strict=True):
    choice = losses.design(matters, at=0.0, width=3.0)
    plots.draw_loss(axes, choice.loss)
    axes.set(title=f"{matters}: {type(choice.loss).__name__}", xlabel="predicted score")
places[0].set_ylabel("loss")
places[0].legend()
plt.show()

# %% [markdown]
# The fit: a linear model cannot represent these scores, so it must be wrong somewhere. With the
# selective loss, it is wrong at low scores rather than at high ones.

# %%
features = random.normal(size=(1024, 10, 4)).astype("float32")
scores = np.tanh(features[..., 0]) + 0.5 * np.maximum(features[..., 1], 0.0)
scores += 0.1 * random.normal(size=scores.shape)
choice = losses.design("high_score", at=1.0, width=2.0)
for loss in (choice.loss, losses.MeanSquaredLoss()):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input([None, 4]), keras.layers.Dense(1), keras.layers.Reshape([-1])]
    )
    above, all_scores = (
        metrics.RegionAbsoluteError(low, 9.0, name=name)
        for low, name in ((1.0, "above_1"), (-9.0, "all"))
    )
    model.compile(keras.optimizers.Adam(0.02), loss=loss, metrics=[above, all_scores])
    history = model.fit(features, scores, epochs=10, verbose=0).history
    found = ", ".join(f"{name} {history[name][-1]:.3f}" for name in ("above_1", "all"))
    print(f"{type(loss).__name__}: mean error {found}")

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
# ## Soft top-k: a selection with a gradient
#
# `models.SoftTopK` gives each item its membership in the top `k`, between 0 and 1, with sum `k`. As
# the temperature goes to 0, it becomes a hard selection.

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
# ## RG^2 and RG^x: a softmax that least squares can solve
#
# RG^x is the expansion of the softmax cross-entropy to second order around equal logits, which is
# quadratic in the scores. RG^2 bounds its mixed terms, so that the Hessian is diagonal. Alternating
# least squares minimises both over all items, without sampling negatives
# ([factorisation](../docs/factorisation.md)).

# %%
logits = np.linspace(-4.0, 14.0, 401)
wide = np.column_stack([logits, np.zeros([len(logits), 9])]).astype("float32")
labels = np.eye(10, dtype="float32")[np.zeros(len(logits), int)]
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for make in (losses.SoftmaxLoss, losses.RG2Loss, losses.RGCrossLoss):
    axes.plot(logits, make(reduction="none")(labels, wide), label=make.__name__)
axes.set(
    title="The expansions follow the softmax near equal logits",
    xlabel="logit of the relevant item, the other nine at 0",
    ylabel="loss",
)
axes.legend()
plt.show()

# %% [markdown]
# Far from equal logits, the expansions rise again, and so limit the scores. That does not harm the
# order: both rank this set as well as the softmax.

# %%
grades = np.clip(np.round(features[..., 0] + 0.3 * random.normal(size=scores.shape)), 0.0, 3.0)
for make in (losses.SoftmaxLoss, losses.RG2Loss, losses.RGCrossLoss):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input([None, 4]), keras.layers.Dense(1), keras.layers.Reshape([-1])]
    )
    model.compile(keras.optimizers.Adam(0.02), make(), metrics=[metrics.NDCG(5, name="ndcg")])
    model.fit(features, grades, epochs=5, verbose=0)
    found = model.evaluate(features, grades, verbose=0, return_dict=True)
    print(f"{make.__name__}: NDCG@5 {found['ndcg']:.3f}")
