"""Losses of keras-rs on JAX, with the arguments of the programs."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import jax
import keras
import keras_rs

from benchmarks.speed.gpu import jax_peers

if keras.backend.backend() != "jax":
    raise ImportError("Keras has another backend than JAX in this process")


def _of(loss: keras.losses.Loss) -> object:
    return jax.value_and_grad(lambda scores, labels: loss(labels.astype(scores.dtype), scores))


PEERS = {
    "ListMLE": _of(keras_rs.losses.ListMLELoss()),
    "pairwise logistic": _of(keras_rs.losses.PairwiseLogisticLoss()),
}
queued = jax_peers.calling(PEERS)
