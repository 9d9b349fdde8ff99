# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Preferences: align a small language model
#
# A list may be two answers of a language model, of which people prefer one. The score of an answer
# is then its implicit reward, `beta * (log p(answer) - log p_before(answer))`, and a loss of pairs
# teaches the preferences without a model of rewards. This tutorial trains a language model of
# characters on the docstrings of the standard library, makes preferences by a rule, flips 20 % of
# them, and compares losses on held-out preferences. It takes about a minute.
#
# Install: `pip install .`.

# %%
import ast
import pathlib
import string

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import links, losses

CHARACTERS = string.ascii_lowercase + " .,()'"
LENGTH, CHANNELS, BETA, FLIPPED = 40, 128, 0.01, 0.2

# %% [markdown]
# ## Train a language model
#
# Four causal convolutions, 206,000 weights. A text is 40 characters.


# %%
def docstrings() -> np.ndarray:
    """The docstrings of the standard library's modules, as indices of `CHARACTERS`."""
    texts = []
    for path in sorted(pathlib.Path(ast.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                texts.append(ast.get_docstring(node) or "")
    text = " ".join(" ".join(texts).lower().split())
    return np.array([CHARACTERS.index(x) for x in text if x in CHARACTERS])


def network() -> keras.Model:
    """A language model: from characters to the logits of the next ones."""
    characters = keras.Input([None], dtype="int32")
    x = keras.layers.Embedding(len(CHARACTERS), CHANNELS)(characters)
    for dilation in (1, 2, 4, 8):
        options = {"padding": "causal", "dilation_rate": dilation, "activation": "relu"}
        x = keras.layers.LayerNormalization()(x + keras.layers.Conv1D(CHANNELS, 3, **options)(x))
    return keras.Model(characters, keras.layers.Dense(len(CHARACTERS))(x))


def windows(text: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Texts from random places, `[count, LENGTH]`."""
    return text[random.integers(len(text) - LENGTH, size=[count, 1]) + np.arange(LENGTH)]


keras.utils.set_random_seed(0)
text = docstrings()
tuning, held_out = np.split(text, [len(text) * 4 // 5])
before = network()
texts = windows(tuning, 12_000, np.random.default_rng(0))
entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
before.compile(keras.optimizers.Adam(2e-3), loss=entropy, jit_compile=False)
before.fit(texts[:, :-1], texts[:, 1:], batch_size=64, verbose=2)
print(len(text), "characters;", before.count_params(), "weights")

# %% [markdown]
# ## Make preferences
#
# No people were asked: of two texts, the rule prefers the one with more spaces.


# %%
def preferences(text: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Pairs of texts, the preferred first, `[at most count, 2, LENGTH]`."""
    pairs = windows(text, 2 * count, random).reshape([count, 2, LENGTH])
    spaces = (pairs == CHARACTERS.index(" ")).sum(axis=-1)
    pairs = np.take_along_axis(pairs, np.argsort(-spaces, axis=1)[:, :, np.newaxis], axis=1)
    return pairs[spaces[:, 0] != spaces[:, 1]]


def with_flips(pairs: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """The pairs, a share of them in the wrong order."""
    return np.where(random.random([len(pairs), 1, 1]) < share, pairs[:, ::-1], pairs)


# %% [markdown]
# ## Align it by each loss
#
# `PairwiseLogisticLoss` of implicit rewards is the loss of DPO. Squares of their difference less 1
# are IPO's. The others are matching losses of that difference with the same target, 1: `Huber` (a
# `SmeLU` that is odd) and the capped `Sinh` bound the gradient of a pair that is very wrong, as one
# that was flipped. `Tanh` is DPO with smoothed labels; a target of 1 assumes 12 % of flips.

# %%
LOSSES = {
    "DPO": losses.PairwiseLogisticLoss(),
    "IPO": losses.MarginMSELoss(),
    "Huber": losses.ContrastiveMatchingLoss(links.Huber(half_width=1.0)),
    "capped Sinh": losses.ContrastiveMatchingLoss(links.Capped(links.Sinh(), -2.0, 2.0)),
    "Tanh": losses.ContrastiveMatchingLoss(links.Tanh()),
}


def log_probability(model: keras.Model, texts: tf.Tensor) -> tf.Tensor:
    """The logarithms of the probabilities of texts, `[pairs, 2]`."""
    rows = tf.reshape(texts, [-1, LENGTH])
    logits = model(rows[:, :-1])
    negative = keras.losses.sparse_categorical_crossentropy(rows[:, 1:], logits, from_logits=True)
    return tf.reshape(-tf.reduce_sum(negative, axis=1), [-1, 2])


class Rewards(keras.Model):
    """The implicit rewards of texts, by a copy of the language model that learns."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta, self.after = beta, network()
        self.after.set_weights(before.get_weights())

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Computes the rewards from texts and their `log_probability` before."""
        return self.beta * (log_probability(self.after, inputs[0]) - inputs[1])


def aligned(loss: losses.ListwiseLoss, pairs: np.ndarray, beta: float = BETA) -> Rewards:
    """The language model, with the preferences of pairs learnt by a loss."""
    model = Rewards(beta)
    model.compile(keras.optimizers.Adam(1e-3), loss=loss, jit_compile=False)
    labels = np.tile(np.float32([1.0, 0.0]), [len(pairs), 1])
    model.fit((pairs, log_probability(before, pairs)), labels, batch_size=32, verbose=0)
    return model


def are_right(model: Rewards, pairs: np.ndarray) -> np.ndarray:
    """Whether the model prefers the first text of each pair."""
    rewards = model((pairs, log_probability(before, pairs))).numpy()
    return rewards[:, 0] > rewards[:, 1]


if __name__ == "__main__":
    random = np.random.default_rng(0)
    pairs = with_flips(preferences(tuning, 1_500, random), FLIPPED, random)
    clean = preferences(held_out, 1_000, random)
    for name, loss in LOSSES.items():
        print(f"{name}: {are_right(aligned(loss, pairs), clean).mean():.1%} in the right order")
