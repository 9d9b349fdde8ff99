"""Groups of processes by the collectives of TensorFlow."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.distribution.groups import ALL, Array, Cluster, Group, Indices
from tfrank_sel.errors import refusal


class CollectiveGroup(Group):
    """The processes of a TensorFlow cluster, described by `TF_CONFIG`.

    The cluster is that of `tf.distribute.MultiWorkerMirroredStrategy`, and the collectives are
    TensorFlow's: rings over gRPC. Create the group before TensorFlow runs anything else in the
    process. It waits until all processes have created theirs, up to an hour.

    If a process is lost, collectives of the others and `fit` raise `tf.errors.UnavailableError`: at
    once if its connections were closed, or after missing heartbeats. All must start again, because
    TensorFlow cannot leave a cluster.

    Collectives were faster than one Beam pipeline per half-sweep in measurements
    (`benchmarks/speed/als_sharded.py exchange`). A process keeps its interactions and factors in
    memory between half-sweeps, so that only factors are exchanged. Beam would read the interactions
    and start its workers again.

    Args:
        piece_bytes: Number of bytes that all processes together send at a time, which bounds the
            memory for copies.

    Its server takes connections from any address, and asks for no password: keep its port to the
    network of the processes.

    Raises:
        ValueError: If a process has more than one replica, or its address is not free.
    """

    # of the process, since TensorFlow remembers the kind and shape of each of them: a second group
    # must not take a number of the first
    _instances = itertools.count()

    def __init__(self, piece_bytes: int = 1 << 26) -> None:
        self.piece_bytes = piece_bytes
        cluster = Cluster.of_environment()
        self.rank, self.size = cluster.index, len(cluster.addresses)
        # starts the server, and watches the other processes
        try:
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        except tf.errors.UnknownError as error:
            # The error of TensorFlow names no address.
            address = cluster.addresses[self.rank]
            raise refusal("the address of this process must be free", address) from error
        replicas = self._strategy.num_replicas_in_sync
        if self.size != replicas:
            raise refusal(
                "Each process must have exactly one replica: make one GPU visible to it",
                f"{replicas} replicas of {self.size} processes",
            )
        [self._device] = self._strategy.extended.worker_devices

    def total(self, values: Array) -> Array:
        values = np.asarray(values)
        # integers as such: a double holds those up to 2^53
        kind = np.int64 if values.dtype.kind in "biu" else np.float64
        summed = self._sum(tf.constant(values.astype(kind)), next(self._instances))
        return summed.numpy().astype(values.dtype)

    def gather_rows(self, rows: Array, needed: Indices = ALL) -> Array:
        counts = self._each(np.array([len(rows)]))[:, 0]
        ends = np.cumsum(counts)
        indices = np.arange(ends[-1])[needed]
        out = np.empty((len(indices), *rows.shape[1:]), rows.dtype)
        for at, parts in self.pieces(rows):
            for begin, part in zip(ends - counts + at, parts, strict=True):
                low, high = np.searchsorted(indices, (begin, begin + len(part)))
                out[low:high] = part[indices[low:high] - begin]
        return out

    def pieces(self, rows: Array) -> Iterator[tuple[int, list[Array]]]:
        counts = self._each(np.array([len(rows)]))[:, 0]
        bytes_of_all = self.size * rows.itemsize * int(np.prod(rows.shape[1:]))
        step = max(1, self.piece_bytes // max(1, bytes_of_all))
        for begin in range(0, counts.max(), step):
            lengths = np.clip(counts - begin, 0, step)
            piece = np.zeros((lengths.max(), *rows.shape[1:]), rows.dtype)
            piece[: lengths[self.rank]] = rows[begin : begin + step]
            parts = self._each(piece)
            yield begin, [part[:length] for part, length in zip(parts, lengths, strict=True)]

    def in_step(self, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
        # one number for all steps: see `_sum`
        apply, instance = optimizer.apply_gradients, next(self._instances)

        def apply_mean(gradients: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
            return apply(self._mean(gradients, instance), *args, **kwargs)

        # an attribute, because a subclass would be saved under another class
        optimizer.apply_gradients = apply_mean
        return optimizer

    def _mean(self, gradients: Iterable[tuple[Any, Any]], instance: int) -> list[tuple[Any, Any]]:
        """The mean gradients, exchanged as one vector."""
        present = [(tf.convert_to_tensor(g), v) for g, v in gradients if g is not None]
        dtype = max((g.dtype for g, _ in present), key=lambda dtype: dtype.size)
        flat = tf.concat([tf.reshape(tf.cast(g, dtype), [-1]) for g, _ in present], axis=0)
        mean = self._sum(flat, instance) / tf.cast(self.size, dtype)
        parts = tf.split(mean, [tf.size(g) for g, _ in present])
        return [
            (tf.cast(tf.reshape(part, v.shape), g.dtype), v)
            for part, (g, v) in zip(parts, present, strict=True)
        ]

    def _each(self, values: Array) -> Array:
        """Returns the stacked arrays of all processes, which have the same shape."""
        if not values.size:
            return np.empty((self.size, *values.shape), values.dtype)
        # Bytes carry values of any dtype.
        octets = np.frombuffer(values.tobytes(), np.uint8)
        words = np.pad(octets, (0, -len(octets) % 4)).view(np.float32)
        with tf.device(self._device):
            gathered = tf.raw_ops.CollectiveGatherV2(
                input=tf.constant(words), **self._keys(next(self._instances))
            ).numpy()
        each = gathered.view(np.uint8).reshape(self.size, words.nbytes)[:, : len(octets)]
        return np.ascontiguousarray(each).view(values.dtype).reshape(self.size, *values.shape)

    # An operation, because `strategy.run` fails in the loop that Keras makes of
    # `steps_per_execution`: it cannot hand a new key to each step. TensorFlow remembers the shape
    # of the values of a key. Therefore an optimizer has one, and so has each call outside of steps.
    def _sum(self, values: tf.Tensor, instance: int) -> tf.Tensor:
        with tf.device(self._device):
            return tf.raw_ops.CollectiveReduceV2(
                input=values, merge_op="Add", final_op="Id", **self._keys(instance)
            )

    def _keys(self, instance: int) -> dict[str, Any]:
        return {
            "group_size": self.size,
            "group_key": 1,
            "instance_key": instance,
            "ordering_token": [],
            "communication_hint": "auto",
        }


class MeanLogs(keras.callbacks.Callback):
    """Replaces the logs of each epoch by their means over the processes of a group.

    It must come before the callbacks that use the logs. The mean loss of shares of equal size is
    the mean loss of all lists.

    Args:
        group: The processes that train together.
    """

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs:
            values = np.array([float(x) for x in logs.values()])
            means = self._group.total(values) / self._group.size
            logs.update(zip(logs, means.tolist(), strict=True))
