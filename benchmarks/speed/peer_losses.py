"""Speed of losses, forward and backward, compared with those of tensorflow-ranking and keras-rs.

    python -m benchmarks.speed.peer_losses [--rounds 20] [--only ListMLELoss ...]

CPU milliseconds on one core of this machine for lists of graded labels, of our loss and of the
peer's that stands for the same, in a `tf.function` as Keras makes it on a CPU, and the same under
XLA, all from calls in turn. A peer that is not installed is left out: tensorflow-ranking is there
with the extra `tfr`, keras-rs with `benchmarks`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.speed import rows
from benchmarks.speed.interleaved import use_one_core
from benchmarks.speed.losses import Loss, step_of
from tfrank_sel import losses
from tfrank_sel.losses import lambdas

SHAPE = (256, 200)
NDCG = lambdas.NDCGLambdaWeight()


def ours() -> dict[str, Loss]:
    """Our losses; a random one starts TensorFlow's threads."""
    return {
        "SoftmaxLoss": losses.SoftmaxLoss(),
        "CalibratedSoftmaxLoss": losses.CalibratedSoftmaxLoss(),
        "PolyOneSoftmaxLoss": losses.PolyOneSoftmaxLoss(),
        "UniqueSoftmaxLoss": losses.UniqueSoftmaxLoss(),
        "ListMLELoss": losses.ListMLELoss(),
        "ApproxNDCGLoss": losses.ApproxNDCGLoss(),
        "ApproxMRRLoss": losses.ApproxMRRLoss(),
        "GumbelApproxNDCGLoss": losses.GumbelLoss(losses.ApproxNDCGLoss()),
        "NeuralSortCrossEntropyLoss": losses.NeuralSortCrossEntropyLoss(),
        "NeuralSortNDCGLoss": losses.NeuralSortNDCGLoss(),
        "CircleLoss": losses.CircleLoss(gamma=8.0),
        "CoupledRankDistilLoss": losses.CoupledRankDistilLoss(sample_size=8, k=10),
        "ClickEMLoss": losses.ClickEMLoss(),
        "MixtureEMLoss": losses.MixtureEMLoss(),
        "PairwiseLogisticLoss": losses.PairwiseLogisticLoss(),
        "PairwiseHingeLoss": losses.PairwiseHingeLoss(),
        "PairwiseSoftZeroOneLoss": losses.PairwiseSoftZeroOneLoss(),
        "PairwiseMSELoss": losses.PairwiseMSELoss(),
        "PairwiseLogisticLoss, NDCGLambdaWeight": losses.PairwiseLogisticLoss(NDCG),
        "LambdaLoss": losses.LambdaLoss(),
        "YetiLogisticLoss": losses.YetiLogisticLoss(),
        "SigmoidCrossEntropyLoss": losses.SigmoidCrossEntropyLoss(),
        "MeanSquaredLoss": losses.MeanSquaredLoss(),
        "OrdinalLoss": losses.OrdinalLoss(ordinal_size=4),
        "MultiClassLoss": losses.MultiClassLoss(num_classes=5),
    }


# how many scores an item has, where it is not one
SCORES = {"ClickEMLoss": 2, "MixtureEMLoss": 2, "OrdinalLoss": 4, "MultiClassLoss": 5}


def tensorflow_ranking() -> dict[str, Loss]:
    """The losses of tensorflow-ranking, those without a Keras class as such a class calls them."""
    from tensorflow_ranking.python import losses_impl
    from tensorflow_ranking.python.keras import losses as tfr

    def of_keras(loss: losses_impl._RankingLoss) -> Loss:
        def call(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
            values, weights = loss.compute_unreduced_loss(y_true, loss.get_logits(y_pred))
            return tf.reduce_mean(values * weights)

        return call

    return {
        "SoftmaxLoss": tfr.SoftmaxLoss(),
        "CalibratedSoftmaxLoss": tfr.CalibratedSoftmaxLoss(),
        "PolyOneSoftmaxLoss": of_keras(losses_impl.PolyOneSoftmaxLoss("poly")),
        "UniqueSoftmaxLoss": tfr.UniqueSoftmaxLoss(),
        "ListMLELoss": tfr.ListMLELoss(),
        "ApproxNDCGLoss": tfr.ApproxNDCGLoss(),
        "ApproxMRRLoss": tfr.ApproxMRRLoss(),
        "GumbelApproxNDCGLoss": tfr.GumbelApproxNDCGLoss(),
        "NeuralSortCrossEntropyLoss": of_keras(losses_impl.NeuralSortCrossEntropyLoss("sort")),
        "NeuralSortNDCGLoss": of_keras(losses_impl.NeuralSortNDCGLoss("sort")),
        "CircleLoss": of_keras(losses_impl.CircleLoss("circle", gamma=8.0)),
        "CoupledRankDistilLoss": tfr.CoupledRankDistilLoss(sample_size=8, topk=10),
        "ClickEMLoss": tfr.ClickEMLoss(),
        "MixtureEMLoss": tfr.MixtureEMLoss(),
        "PairwiseLogisticLoss": tfr.PairwiseLogisticLoss(),
        "PairwiseHingeLoss": tfr.PairwiseHingeLoss(),
        "PairwiseSoftZeroOneLoss": tfr.PairwiseSoftZeroOneLoss(),
        "PairwiseMSELoss": tfr.PairwiseMSELoss(),
        "PairwiseLogisticLoss, NDCGLambdaWeight": tfr.PairwiseLogisticLoss(
            lambda_weight=tfr.NDCGLambdaWeight()
        ),
        "LambdaLoss": tfr.PairwiseLogisticLoss(lambda_weight=tfr.NDCGLambdaWeightV2()),
        "YetiLogisticLoss": tfr.YetiLogisticLoss(),
        "SigmoidCrossEntropyLoss": tfr.SigmoidCrossEntropyLoss(),
        "MeanSquaredLoss": tfr.MeanSquaredLoss(),
        "OrdinalLoss": tfr.OrdinalLoss(ordinal_size=4),
        "MultiClassLoss": of_keras(
            losses_impl.MultiClassLoss("classes", num_classes=5, from_logits=True)
        ),
    }


def keras_rs() -> dict[str, Loss]:
    """The losses of keras-rs."""
    import keras_rs

    return {
        "ListMLELoss": keras_rs.losses.ListMLELoss(),
        "PairwiseLogisticLoss": keras_rs.losses.PairwiseLogisticLoss(),
        "PairwiseHingeLoss": keras_rs.losses.PairwiseHingeLoss(),
        "PairwiseSoftZeroOneLoss": keras_rs.losses.PairwiseSoftZeroOneLoss(),
        "PairwiseMSELoss": keras_rs.losses.PairwiseMeanSquaredError(),
    }


PEERS = {"tensorflow-ranking": tensorflow_ranking, "keras-rs": keras_rs}


def found(rounds: int, only: Sequence[str] | None) -> Iterator[rows.Found]:
    our_losses = ours()
    peers, left_out = rows.installed(PEERS)
    yield from left_out
    for peer, their_losses in peers.items():
        for name in their_losses if only is None else filter(their_losses.get, only):
            yield from compare(name, our_losses[name], peer, their_losses[name], rounds)


def compare(
    name: str, ours: Loss, peer: rows.Peer, theirs: Loss, rounds: int
) -> Iterator[rows.Row]:
    """The rows of one loss, without XLA and with it."""
    shape = (*SHAPE, SCORES[name]) if name in SCORES else SHAPE
    y_true = tf.constant(np.random.default_rng(0).integers(0, 5, SHAPE), tf.float32)
    y_pred = tf.constant(np.random.default_rng(1).normal(1.0, 1.0, shape), tf.float32)
    for case, jit_compile in ((name, False), (f"{name}, XLA", True)):
        mine, other = (step_of(loss, y_true, y_pred, jit_compile) for loss in (ours, theirs))
        yield from rows.compare({case: mine}, {peer: other}, rounds)


def main() -> None:
    parser = rows.parser(__doc__, rounds=20)
    parser.add_argument("--only", nargs="*", help="names of losses; all of them if not given")
    arguments = parser.parse_args()
    use_one_core()
    rows.show(found(arguments.rounds, arguments.only), arguments.json)


if __name__ == "__main__":
    main()
