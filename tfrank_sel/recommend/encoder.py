"""Retriever by a transformer over the items of a history, which needs TensorFlow."""

import functools
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from tfrank_sel.arguments import Count, Natural, Positive
from tfrank_sel.data import Sequences
from tfrank_sel.recommend.candidates import Source, incidence
from tfrank_sel.recommend.scores import Products, Scores
from tfrank_sel.serialization import register

_WEIGHT = "weight "  # begins the names of the weights of the encoder


@register
class Encoder(Source):
    """Items of the largest products with the state of a history, by `models.SequenceEncoder`.

    Vectors start from a factorisation by RG^x. The loss is `losses.RGCrossLoss` of the next item,
    by which the vectors of the items are solved in closed form after each epoch.

    Args:
        count: As in `Source`.
        num_factors: Length of the states and vectors.
        num_blocks: Number of layers of attention.
        max_length: Number of last items that make a state.
        epochs: Number of epochs.
        rate: Learning rate of Adam.
        seed: Seed of the first weights and of the order of the histories; sets those of Keras.
    """

    count: Natural = 60
    num_factors: Count = 256
    num_blocks: Count = 1
    max_length: Count = 20
    epochs: Count = 3
    rate: Positive = 0.001
    seed: Natural = 0

    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Trains the encoder."""
        import keras

        from tfrank_sel import losses
        from tfrank_sel.models import als

        keras.utils.set_random_seed(self.seed)
        encoder = self._new(len(taken.item_ids), "float32")
        options: Any = {"num_threads": num_threads, "seed": self.seed}
        start = als.RGFactorizer(als.RGCross(alpha=0.02), self.num_factors, 0.6, 0.5, **options)
        vectors = np.pad(start.fit(incidence(taken)).item_factors_, [(1, 0), (0, 0)])
        norm = np.sqrt(np.mean(np.sum(vectors**2, axis=1)))
        encoder.items.set_weights([vectors])
        encoder.items_of_inputs.set_weights([vectors / max(norm, np.finfo(np.float32).tiny)])
        inputs, targets = taken.windows(self.max_length)
        if len(inputs):
            loss = losses.CatalogueLoss(losses.RGCrossLoss(alpha=0.0025), encoder.items)
            encoder.compile(keras.optimizers.Adam(self.rate), loss)
            solvers = [als.ItemSolver(inputs, targets, num_threads=num_threads)]
            encoder.fit(inputs, targets, 256, self.epochs, verbose=0, callbacks=solvers)
        weights = {f"{_WEIGHT}{i:03}": x for i, x in enumerate(encoder.get_weights())}
        return {"items": encoder.items.get_weights()[0][1:], **weights}

    def restore(self, learned: Mapping[str, Any]) -> Self:
        """Returns a copy that has learned what `learned` holds."""
        fitted = super().restore(learned)
        vars(fitted).pop("encoder", None)  # of what was learned before
        return fitted

    @functools.cached_property
    def encoder(self) -> Any:
        """The encoder in float64, so that a state is the same in any company."""
        encoder = self._new(len(self.learned["items"]), "float64")
        encoder.set_weights([x for name, x in self.learned.items() if name.startswith(_WEIGHT)])
        return encoder

    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns the products with the states."""
        import tensorflow as tf

        states = self.encoder(histories.histories(self.max_length), training=False)[:, -1]
        states = states.numpy() if tf.executing_eagerly() else states
        return {"product": Products(states, self.learned["items"])}

    def _new(self, num_items: int, dtype: str) -> Any:
        from tfrank_sel.models import SequenceEncoder

        sizes: Any = {"num_blocks": self.num_blocks, "max_length": self.max_length}
        return SequenceEncoder(num_items, self.num_factors, **sizes, tied=False, dtype=dtype)
