"""Workers: processes that train one model synchronously, by sums over all workers."""

import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

LENGTH = struct.Struct("!Q")


class LostWorkerError(ConnectionError):
    """A worker that ended or cannot be reached during training."""


class Workers:
    """Processes that train one model synchronously: worker 0, the chief, and its peers.

    Each worker calls `fit` of Keras with its share of every batch. With `n` workers and shares of
    equal size, a step takes the gradient

    ```
    g = 1 / n * sum_r g_r
    ```

    of the mean losses of the shares, which equals that of one process on the whole batch. The chief
    adds the gradients in the order of the workers, as one vector, and sends the sum to all.
    Therefore all workers have the same weights.

    Args:
        index: Number of this worker; 0 is the chief.
        peers: Connections: those of the chief to all others in their order, or that to the chief.
        count: Number of workers.

    Attributes:
        lost: The error of a connection that failed, or None.

    Example:
        >>> alone = distribution.Workers()
        >>> alone.index, alone.count, alone.sum(np.ones([2]))
        (0, 1, array([1., 1.]))
    """

    def __init__(self, index: int = 0, count: int = 1, peers: Sequence[socket.socket] = ()) -> None:
        self.index, self.count, self._peers = index, count, peers
        self.lost: LostWorkerError | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the chief, which writes the results of training."""
        return self.index == 0

    @classmethod
    @contextlib.contextmanager
    def connected(
        cls, index: int, count: int, peers: Sequence[socket.socket]
    ) -> Iterator["Workers"]:
        """Provides the workers during the block, and then closes the connections.

        Raises:
            LostWorkerError: If the block fails because a connection failed.
        """
        workers = cls(index, count, peers)
        with contextlib.ExitStack() as stack:
            for peer in peers:
                stack.enter_context(peer)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                yield workers
            except Exception as error:
                if workers.lost in (None, error):
                    raise
                raise workers.lost from error  # TensorFlow's error does not name the worker

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of an array over all workers, bitwise equal on each.

        All workers must make the same number of calls, with arrays of the same size.

        Raises:
            LostWorkerError: If another worker ended.
            ValueError: If another worker has an array of another size.
        """
        total = np.array(values, order="C")
        other = np.empty_like(total)
        if self.index:
            self._send(0, total)
            self._receive(0, total)
            return total
        for number in range(len(self._peers)):
            self._receive(number, other)
            total += other
        for number in range(len(self._peers)):
            self._send(number, total)
        return total

    def wait(self) -> None:
        """Waits until all workers have called it.

        Raises:
            LostWorkerError: If another worker ended.
        """
        self.sum(np.zeros([1]))

    def in_step(self, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
        """Makes an optimizer use the mean gradient of all workers in each step.

        Clipping and weight averaging are applied after the mean, as in one process.

        Args:
            optimizer: Optimizer of a model compiled with `jit_compile=False`, because XLA cannot
                compile the exchange. It is saved under its own class.

        Returns:
            The same optimizer.
        """
        if self.count == 1:
            return optimizer
        apply = optimizer.apply_gradients

        def apply_mean(gradients: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
            return apply(self._mean(list(gradients)), *args, **kwargs)

        # an attribute, because a subclass would be saved under another class
        optimizer.apply_gradients = apply_mean
        return optimizer

    def _mean(self, gradients: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """The mean gradients, exchanged as one vector."""
        known = [(tf.convert_to_tensor(g), v) for g, v in gradients if g is not None]
        dtype = max((g.dtype for g, _ in known), key=lambda dtype: dtype.size)
        flat = tf.concat([tf.reshape(tf.cast(g, dtype), [-1]) for g, _ in known], axis=0)
        mean = tf.numpy_function(self.sum, [flat], dtype) / tf.cast(self.count, dtype)
        parts = tf.split(mean, [tf.size(g) for g, _ in known])
        return [
            (tf.cast(tf.reshape(part, v.shape), g.dtype), v)
            for part, (g, v) in zip(parts, known, strict=True)
        ]

    def _send(self, number: int, values: np.ndarray) -> None:
        with self._watched(number):
            self._peers[number].sendall(LENGTH.pack(values.nbytes))
            self._peers[number].sendall(values.data)

    def _receive(self, number: int, values: np.ndarray) -> None:
        with self._watched(number):
            length = bytearray(LENGTH.size)
            self._fill(number, memoryview(length))
            if LENGTH.unpack(length)[0] != values.nbytes:
                raise ValueError(
                    f"all workers must train the same model: worker {number + (not self.index)} "
                    f"must send {values.nbytes} bytes. Received: {LENGTH.unpack(length)[0]}"
                )
            self._fill(number, values.data.cast("B"))

    def _fill(self, number: int, buffer: memoryview) -> None:
        while buffer:
            received = self._peers[number].recv_into(buffer)
            if not received:
                raise ConnectionError("the connection was closed")
            buffer = buffer[received:]

    @contextlib.contextmanager
    def _watched(self, number: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            name = "the chief" if self.index else f"worker {number + 1}"
            self.lost = LostWorkerError(f"{name} ended or cannot be reached: {error}")
            raise self.lost from error


class MeanLogs(keras.callbacks.Callback):
    """Replaces the logs of each epoch by their means over all workers.

    It must come before the callbacks that use the logs. The mean loss of shares of equal size is
    the mean loss of all lists.

    Args:
        workers: The workers.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs:
            values = np.array([float(x) for x in logs.values()])
            means = self._workers.sum(values) / self._workers.count
            logs.update(zip(logs, means.tolist(), strict=True))
