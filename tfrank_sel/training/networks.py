"""Training of a network on lists that are prepared and cached."""

import collections
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import compilation, metrics
from tfrank_sel.data import batching
from tfrank_sel.data.cache import Cache
from tfrank_sel.distribution import Workers
from tfrank_sel.metrics.evaluator import ListValues
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.ops.ranking import gain_arguments

BUCKETS = 6  # of list sizes, so that there is little padding
STEPS_AT_A_TIME = 8  # per execution, without Python code of Keras between them


class Validation(keras.callbacks.Callback):
    """Measures a model after each epoch: metrics on held-out lists, and the loss on both splits.

    The loss of a fixed sample of the training lists replaces the mean that Keras computes in
    training. An epoch of `fit` is not a whole pass, and batches of similar list sizes follow each
    other, so that mean depends on which lists an epoch contains.

    Args:
        measured: Batches of one pass over the sample, and over the held-out lists, as `batches`
            returns them; with several workers, the share of this worker.
        loss: The loss, computed in addition to the metrics.
        workers: The workers whose results are combined.
        gain: Gain of NDCG, as in `ranking.gain_arguments`.
    """

    def __init__(
        self,
        measured: tuple[tf.data.Dataset, tf.data.Dataset],
        loss: keras.losses.Loss,
        workers: Workers | None = None,
        gain: str | float = "exponential",
    ) -> None:
        super().__init__()
        self._passes = [iter(x.repeat()) for x in measured]
        self._steps = [int(x.cardinality()) for x in measured]
        self._loss, self._workers = loss, workers or Workers()
        self._evaluate = _evaluator(gain)
        names = "loss", "val_loss", "val_ndcg", "val_mrr"
        self._means = {name: keras.metrics.Mean() for name in names}
        self._scored = compilation.graph(self._of_batch)  # traced once for both passes

    # the passes are arguments, because graphs, which Python does not free, would keep them open
    @tf.function
    def _measure(self, sample: Any, held_out: Any) -> None:
        sample_steps, steps = self._steps
        for _ in tf.range(sample_steps):
            self._measure_batch("loss", *next(sample))
        for _ in tf.range(steps):
            self._measure_batch("val_loss", *next(held_out))

    @compilation.unconverted
    def _measure_batch(
        self, name: str, inputs: Any, labels: tf.Tensor, weights: Any = None
    ) -> None:
        scores, loss, size = self._scored(inputs, labels, weights)
        self._means[name].update_state(loss, size)
        if name == "val_loss":
            for metric, result in self._evaluate(labels, scores).items():
                self._means[metric].update_state(result.values, result.weights)

    def _of_batch(
        self, inputs: Any, labels: tf.Tensor, weights: Any
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The scores, the mean loss and the number of lists."""
        scores = self.model(inputs, training=False)
        # an empty list, which fills up a batch, adds 0 to the mean loss
        is_list = tf.cast(tf.reduce_any(labels == labels, axis=1), tf.float32)
        loss = tf.math.divide_no_nan(self._loss(labels, scores, weights), tf.reduce_mean(is_list))
        return scores, loss, tf.reduce_sum(is_list)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        for mean in self._means.values():
            mean.reset_state()
        self._measure(*self._passes)
        variables = [v for mean in self._means.values() for v in mean.variables]
        for variable in variables if self._workers.count > 1 else ():
            variable.assign(self._workers.sum(variable.numpy()))
        assert logs is not None
        # for the subsequent callbacks
        logs.update({name: float(mean.result()) for name, mean in self._means.items()})


@functools.cache
def _evaluator(gain: str | float) -> Callable[[tf.Tensor, tf.Tensor], dict[str, ListValues]]:
    """Evaluates the metrics of a batch, in a graph that all trainings share."""
    options = gain_arguments(gain)
    ndcg = metrics.NDCG(10, **options, name="val_ndcg", ties=AVERAGED)
    mrr = metrics.MRR(above=options["above"], name="val_mrr", ties=AVERAGED)
    evaluate = metrics.Evaluator([ndcg, mrr])
    compiled: Callable[[tf.Tensor, tf.Tensor], dict[str, ListValues]] = compilation.graph(evaluate)
    return compiled


def batches(
    network: keras.Model,
    learned: Cache,
    held_out: Cache | None,
    batch_size: int,
    seed: int,
    *,
    epochs: int = 0,
    workers: Workers | None = None,
) -> tuple[tf.data.Dataset, tuple[tf.data.Dataset, tf.data.Dataset] | None, int]:
    """Returns batches to learn from, without an end, batches to measure on, and steps per epoch.

    The batches to measure on are those of a sample of the lists to learn from, about as many as are
    held out, and those of the held-out lists.

    Args:
        network: The model that is trained. It is given the mask only if it has `takes_mask`.
        learned: Lists to learn from.
        held_out: Lists to measure on; None if there are none.
        batch_size: Number of lists in a batch.
        seed: Seed of the order of the lists.
        epochs: Number of epochs that were trained before.
        workers: The workers that train together, each on a share of every batch.
    """
    workers = workers or Workers()
    sizes = collections.Counter(learned.sizes.tolist())
    sizes.update([] if held_out is None else held_out.sizes.tolist())
    edges = batching.bucket_edges(sizes, BUCKETS, min_lists=batch_size)
    shard = (workers.index, workers.count)
    shuffled = functools.partial(learned.batches, batch_size, edges, seed=seed, shard=shard)
    steps = int(shuffled().cardinality())
    # Keras does not shorten the last execution of an epoch
    seen = epochs * math.ceil(steps / STEPS_AT_A_TIME) * STEPS_AT_A_TIME
    dataset = shuffled(first_pass=seen // steps).repeat().skip(seen % steps)
    measured = None
    if held_out is not None:
        every = math.ceil(len(learned.sizes) / len(held_out.sizes))
        sample = learned.batches(batch_size, edges, shard=shard, every=every)
        measured = sample, held_out.batches(batch_size, edges, shard=shard)
    if not getattr(network, "takes_mask", False):
        dataset = dataset.map(_without_mask)
        measured = None if measured is None else tuple(x.map(_without_mask) for x in measured)
    return dataset, measured, steps


def build(network: keras.Model, dataset: tf.data.Dataset) -> None:
    """Makes the weights of a network for the inputs of a dataset, if it has none."""
    if not network.built:
        inputs, *_ = dataset.element_spec
        network(tf.nest.map_structure(lambda x: keras.Input(x.shape[1:], dtype=x.dtype), inputs))


def decay_per_step(share: float, learning_rate: float, steps: int) -> float:
    """Returns the `weight_decay` of a Keras optimizer that decays weights by a share in each pass.

    The same share suits small and large data, and all learning rates.

    Args:
        share: Share of the weights.
        learning_rate: Learning rate, by which Keras multiplies the decay.
        steps: Number of steps of a pass.

    Reference:
        [Wang and Aitchison, How to set AdamW's weight decay as you scale model and dataset size,
        2024](https://arxiv.org/abs/2405.13698).
    """
    return share / (learning_rate * steps)


def fit(
    network: keras.Model,
    loss: keras.losses.Loss,
    optimizer: keras.optimizers.Optimizer,
    dataset: tf.data.Dataset,
    *,
    steps: int,
    epochs: int,
    callbacks: Sequence[keras.callbacks.Callback],
    initial_epoch: int = 0,
    verbose: int = 0,
) -> None:
    """Trains a network, with the averages of its weights in place after each epoch.

    Args:
        network: The model.
        loss: The loss.
        optimizer: The optimizer, with `use_ema`.
        dataset: Batches without an end, as `batches` returns them.
        steps: Number of steps of an epoch.
        epochs: Maximum number of epochs.
        callbacks: Callbacks of Keras, in order.
        initial_epoch: Number of epochs that were trained before.
        verbose: As in `fit` of Keras.
    """
    optimizer.build(network.trainable_variables)  # a step that makes variables is traced twice
    network.compile(
        optimizer=optimizer,
        loss=loss,
        steps_per_execution=STEPS_AT_A_TIME,
        # on a CPU, compiling for each shape would take longer than it saves in thousands of steps
        jit_compile=False,
    )
    network.fit(
        dataset,  # infinite, because starting a dataset takes as long as some steps
        epochs=epochs,
        initial_epoch=initial_epoch,
        steps_per_epoch=steps,
        callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True), *callbacks],
        shuffle=False,  # the lists are shuffled
        verbose=verbose,
    )


def _without_mask(inputs: dict[str, tf.Tensor], *others: tf.Tensor) -> Any:
    return inputs["features"], *others
