"""Losses of Rax, with the arguments of the programs."""

import jax
import rax

from benchmarks.speed.gpu import jax_peers

PEERS = {
    "ListMLE": jax.value_and_grad(rax.listmle_loss),
    "pairwise logistic": jax.value_and_grad(rax.pairwise_logistic_loss),
}
queued = jax_peers.calling(PEERS)
