"""Dynamic batching: requests of one signature that come together are run together.

As TensorFlow Serving does it: every input and output has the batch as its first axis; a request
that asks for some of the outputs alone is run by itself; what fails in a batch fails for all of
its requests. Scores of lists of different lengths come padded to the longest of the batch, which
only a mask tells from items.
"""

import collections
import concurrent.futures
import dataclasses
import itertools
import math
import os
import pathlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.serving.deployment import config, config_messages
from tfrank_sel.serving.engine.model import Model, Signature
from tfrank_sel.serving.engine.versions import Load
from tfrank_sel.serving.status import Code, ServingError, invalid

FILE = "batching_params.pbtxt"

_RETRY_SECONDS = 0.01  # a full queue may empty meanwhile
_MAX_PADDED_RANK = 6


class BatchedModel(Model):
    """A model that runs requests in batches.

    Args:
        model: The model.
        parameters: The `BatchingParameters`. Their threads are this version's own.

    Raises:
        ServingError: INVALID_ARGUMENT if `parameters` break a rule.
    """

    def __init__(self, model: Model, parameters: Any) -> None:
        super().__init__(model.version, model.definitions, model.signatures)
        for field, rule in config.faults(parameters):
            raise invalid(f"{field} {rule}")
        self._model = model
        self._max_batch_size = config.max_batch_size(parameters)
        self._largest = config.largest_batch(parameters)
        self._splits = parameters.enable_large_batch_splitting.value
        self._sizes = list(parameters.allowed_batch_sizes)
        self._pads = parameters.pad_variable_length_inputs
        self._wait = parameters.batch_timeout_micros.value / 1e6
        self._max_enqueued = parameters.max_enqueued_batches.value or config.MAX_ENQUEUED_BATCHES
        self._changed = threading.Condition()
        self._waiting: collections.deque[_Batch] = collections.deque()
        self._is_closed = False
        threads = parameters.num_batch_threads.value or os.cpu_count() or 1
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def run(
        self,
        signature: Signature,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str],
        timeout: float | None = None,
    ) -> list[np.ndarray]:
        # A type that is wrong is refused by the model, and must not reach a neighbour.
        if set(outputs) != set(signature.fetches) or not _has_types_of(signature, inputs):
            return self._model.run(signature, inputs, outputs, timeout)
        size = _size(inputs)
        if size > self._max_batch_size:
            raise invalid(
                f"Task size {size} is larger than maximum input batch size {self._max_batch_size}",
            )
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        step = self._largest if self._splits else max(size, 1)
        tasks = [
            _Task(
                {name: array[start : start + step] for name, array in inputs.items()},
                min(step, size - start),
                deadline,
            )
            for start in range(0, max(size, 1), step)
        ]
        for task in tasks:
            self._enqueue(signature, task)
        parts = [task.answer.result() for task in tasks]
        joined = (
            parts[0] if len(parts) == 1 else list(map(np.concatenate, zip(*parts, strict=True)))
        )
        found = dict(zip(signature.fetches, joined, strict=True))
        return [found[name] for name in outputs]

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self.definitions, self.signatures = {}, {}
        self._model.close()

    def _enqueue(self, signature: Signature, task: "_Task") -> None:
        def own() -> list[_Batch]:
            return [batch for batch in self._waiting if batch.signature is signature]

        def fits() -> bool:
            waiting = own()
            return bool(waiting) and waiting[-1].size + task.size <= self._largest

        with self._changed:
            if not self._changed.wait_for(
                lambda: fits() or len(own()) < self._max_enqueued, _RETRY_SECONDS
            ):
                raise ServingError(
                    Code.UNAVAILABLE,
                    "The batch scheduling queue to which this task was submitted is full; "
                    f"max_enqueued_batches is {self._max_enqueued}",
                )
            if not fits():
                for batch in own():
                    batch.is_full = True
                self._waiting.append(_Batch(signature, time.monotonic() + self._wait))
            batch = own()[-1]
            batch.tasks.append(task)
            batch.is_full = batch.size >= self._largest
            self._changed.notify_all()

    def _work(self) -> None:
        while batch := self._next():
            self._run(batch)

    def _next(self) -> "_Batch | None":
        """Takes the first batch that is full or has waited; None once closed."""
        with self._changed:
            while True:
                now = time.monotonic()
                for batch in self._waiting:
                    if batch.is_full or batch.ripe <= now or self._is_closed:
                        self._waiting.remove(batch)
                        self._changed.notify_all()
                        return batch
                if self._is_closed:
                    return None
                self._changed.wait(self._waiting[0].ripe - now if self._waiting else None)

    def _run(self, batch: "_Batch") -> None:
        try:
            inputs = self._merged(batch)
            outputs = list(batch.signature.fetches)
            values = self._model.run(batch.signature, inputs, outputs, batch.timeout())
            answers = _split(values, _size(inputs), [task.size for task in batch.tasks])
        # Whatever it is: who waits must hear of it, and the thread must go on.
        except Exception as error:
            for task in batch.tasks:
                task.answer.set_exception(error)
            return
        for task, answer in zip(batch.tasks, answers, strict=True):
            task.answer.set_result(answer)

    def _merged(self, batch: "_Batch") -> dict[str, np.ndarray]:
        """Returns the inputs of all tasks, one behind the other, and rows to an allowed size."""
        size = next((size for size in self._sizes if size >= batch.size), batch.size)
        merged = {}
        for name in batch.signature.feeds:
            arrays = [task.inputs[name] for task in batch.tasks]
            if self._pads:
                arrays = _padded(arrays)
            elif any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
                feed = batch.signature.definition.inputs[name].name
                raise ServingError(
                    Code.FAILED_PRECONDITION,
                    f"Tensors with name '{feed}' from different tasks have different shapes and "
                    "padding is turned off. Set pad_variable_length_inputs to true, or ensure that "
                    "all tensors with the same name have equal dimensions starting with the first "
                    "dim.",
                )
            filling = [arrays[-1][:1]] * (size - batch.size)
            whole = len(arrays) + len(filling) == 1
            merged[name] = arrays[0] if whole else np.concatenate([*arrays, *filling])
        return merged


@dataclasses.dataclass
class _Task:
    """A request, or a part of one that was split."""

    inputs: Mapping[str, np.ndarray]
    size: int  # rows
    deadline: float
    answer: concurrent.futures.Future[list[np.ndarray]] = dataclasses.field(
        default_factory=concurrent.futures.Future
    )


@dataclasses.dataclass(eq=False)
class _Batch:
    """Tasks that will run together, at the latest when they are `ripe`."""

    signature: Signature
    ripe: float
    tasks: list[_Task] = dataclasses.field(default_factory=list)
    is_full: bool = False

    @property
    def size(self) -> int:
        """How many rows its tasks have."""
        return sum(task.size for task in self.tasks)

    def timeout(self) -> float | None:
        """Returns the seconds until the last of the tasks' deadlines; None without one."""
        left = max(task.deadline for task in self.tasks) - time.monotonic()
        if left <= 0.0:
            raise ServingError(
                Code.DEADLINE_EXCEEDED, "Run() timeout exceeded while waiting in batching queue"
            )
        return None if left == math.inf else left


def opener(load: Load, parameters: Any, *, per_model: bool = False) -> Load:
    """Returns what loads a version and runs it in batches.

    Args:
        load: What loads a version.
        parameters: The `BatchingParameters`.
        per_model: Whether they come from `batching_params.pbtxt` in the folder of a version
            instead; one without the file is not batched.
    """

    def opened(path: pathlib.Path, version: int) -> Model:
        own = parameters
        if per_model:
            if not (path / FILE).exists():
                return load(path, version)
            own = config.read(path / FILE, config_messages.BatchingParameters)
        return BatchedModel(load(path, version), own)

    return opened


def _has_types_of(signature: Signature, inputs: Mapping[str, np.ndarray]) -> bool:
    return all(array.dtype == signature.dtypes[name] for name, array in inputs.items())


def _size(inputs: Mapping[str, np.ndarray]) -> int:
    """Returns the number of rows, which all inputs share."""
    if any(array.ndim == 0 for array in inputs.values()):
        raise invalid(
            "Batching session Run() input tensors must have at least one dimension.",
        )
    sizes = {len(array) for array in inputs.values()}
    if len(sizes) != 1:
        raise invalid(
            "Batching session Run() input tensors must have equal 0th-dimension size.",
        )
    return sizes.pop()


def _padded(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Returns arrays of one inner shape: what is added is each one's first element."""
    ranks = {array.ndim for array in arrays}
    if max(ranks) > _MAX_PADDED_RANK or len(ranks) > 1:
        raise invalid(
            f"Only tensors of one rank from 1 to 6 can be padded. Received: {sorted(ranks)}",
        )
    shapes = [array.shape[1:] for array in arrays]
    inner = tuple(map(max, zip(*shapes, strict=True)))
    padded = []
    for array in arrays:
        if array.shape[1:] != inner:
            empty = b"" if array.dtype == np.object_ else 0
            first = array.flat[0] if array.size else empty
            whole = np.full((len(array), *inner), first, array.dtype)
            whole[tuple(map(slice, array.shape))] = array
            array = whole
        padded.append(array)
    return padded


def _split(values: list[np.ndarray], size: int, sizes: list[int]) -> list[list[np.ndarray]]:
    """Returns each task's rows of the outputs of a batch of a size."""
    for array in values:
        if array.ndim == 0:
            raise ServingError(Code.FAILED_PRECONDITION, "Batched output tensor has 0 dimensions")
        if len(array) != size:
            raise ServingError(
                Code.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension "
                "sizes of the input tensors",
            )
    edges = itertools.accumulate(sizes, initial=0)
    return [[array[a:b] for array in values] for a, b in itertools.pairwise(edges)]
