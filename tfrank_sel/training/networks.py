"""Training of a network on lists that are prepared and cached."""

import collections
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import metrics, numerics
from tfrank_sel.data import batching
from tfrank_sel.data.cache import Cache
from tfrank_sel.distribution import Group, SingleProcess
from tfrank_sel.metrics.evaluator import ListValues
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.ops.ranking import gain_arguments
from tfrank_sel.training.settings import SettingsLike

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
        workers: Group = SingleProcess(),  # noqa: B008, it has no state
        gain: str | float = "exponential",
    ) -> None:
        super().__init__()
        sample, held_out = measured
        self._pass = iter(sample.concatenate(held_out).repeat())
        self._steps = int(sample.cardinality()), int(held_out.cardinality())
        self._loss, self._workers = loss, workers
        self._evaluate = evaluator(gain)

    # the pass is an argument, because graphs, which Python does not free, would keep it open
    @tf.function(autograph=False)
    def _sums(self, batches: Any) -> tf.Tensor:
        """The sum and the weight of loss, NDCG and MRR on both splits, `[2, 3, 2]`."""
        sample_steps, steps = self._steps

        def add(step: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            split = tf.cast(step >= sample_steps, tf.int32)
            of_batch = self._of_batch(*next(batches))
            return step + 1, tf.tensor_scatter_nd_add(sums, [[split]], of_batch[tf.newaxis])

        start = 0, tf.zeros([2, 3, 2])
        _, sums = tf.while_loop(lambda step, _: step < sample_steps + steps, add, start)
        return sums

    def _of_batch(self, inputs: Any, labels: tf.Tensor, weights: Any = None) -> tf.Tensor:
        scores = self.model(inputs, training=False)
        # an empty list, which fills up a batch, or one of weight 0, adds 0 to the mean loss
        is_item = labels == labels
        if weights is not None:
            is_item &= weights > 0.0
        is_list = tf.cast(tf.reduce_any(is_item, axis=1), tf.float32)
        loss = tf.math.divide_no_nan(self._loss(labels, scores, weights), tf.reduce_mean(is_list))
        size = tf.reduce_sum(is_list)
        measured = self._evaluate(labels, scores, weights)
        metrics = (
            tf.reduce_sum([x.values * x.weights, x.weights], axis=1)
            for x in (measured["ndcg"], measured["mrr"])
        )
        return tf.stack([[loss * size, size], *metrics])

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        sums, sizes = np.moveaxis(self._workers.total(self._sums(self._pass).numpy()), -1, 0)
        [[loss, *_], [val_loss, ndcg, mrr]] = (sums / np.where(sizes > 0.0, sizes, 1.0)).tolist()
        assert logs is not None
        # Callbacks that follow read these values.
        logs.update({"loss": loss, "val_loss": val_loss, "val_ndcg": ndcg, "val_mrr": mrr})


@functools.cache
def evaluator(gain: str | float) -> Callable[..., dict[str, ListValues]]:
    """Returns what evaluates NDCG and MRR of a batch, in a graph that all trainings share."""
    options = gain_arguments(gain)
    ndcg = metrics.NDCG(10, **options, name="ndcg", ties=AVERAGED)
    mrr = metrics.MRR(above=options["above"], name="mrr", ties=AVERAGED)
    evaluate = metrics.Evaluator([ndcg, mrr])
    compiled: Callable[..., dict[str, ListValues]] = numerics.graph(evaluate)
    return compiled


def batches(
    network: keras.Model,
    learned: Cache,
    held_out: Cache | None,
    batch_size: int,
    seed: int,
    *,
    epochs: int = 0,
    workers: Group = SingleProcess(),  # noqa: B008, it has no state
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
    sizes = collections.Counter(learned.sizes.tolist())
    sizes.update([] if held_out is None else held_out.sizes.tolist())
    edges = batching.bucket_edges(sizes, BUCKETS, min_lists=batch_size)
    shard = (workers.rank, workers.size)
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


def adam(settings: SettingsLike, steps: int) -> keras.optimizers.Optimizer:
    """Returns the default optimizer, for epochs of so many steps."""
    return keras.optimizers.Adam(**optimization(settings, steps))


def optimization(settings: SettingsLike, steps: int) -> dict[str, Any]:
    """Returns the arguments of an optimizer: learning rate, decay and averaging of the weights."""
    return {
        "learning_rate": settings.learning_rate,
        "weight_decay": decay_per_step(settings.weight_decay, settings.learning_rate, steps),
        "use_ema": True,
        "ema_momentum": settings.averaging,
    }


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
    network.train_function = _steps(network)
    # Weights and their averages are swapped by one operation for all.
    averages = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    averages._swap_variables = tf.function(averages._swap_variables, autograph=False)
    network.fit(
        dataset,  # infinite, because starting a dataset takes as long as some steps
        epochs=epochs,
        initial_epoch=initial_epoch,
        steps_per_epoch=steps,
        callbacks=[averages, *callbacks],
        # The dataset has shuffled the lists.
        shuffle=False,
        verbose=verbose,
    )


def _steps(network: keras.Model) -> Callable[[Any], dict[str, tf.Tensor]]:
    """`STEPS_AT_A_TIME` training steps as one graph, with fewer operations than that of Keras."""

    def steps(batches: Any) -> dict[str, tf.Tensor]:
        def step(number: tf.Tensor) -> tf.Tensor:
            network.train_step(next(batches))
            return number + 1

        tf.while_loop(lambda number: number < STEPS_AT_A_TIME, step, [0])
        metrics: dict[str, tf.Tensor] = network.get_metrics_result()
        return metrics

    return numerics.graph(steps)  # several networks are no retracing


@numerics.entry_point
def _without_mask(inputs: dict[str, tf.Tensor], *others: tf.Tensor) -> Any:
    return inputs["features"], *others
