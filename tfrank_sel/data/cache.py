"""Disk cache of prepared lists, which are parsed and prepared only once."""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrank_sel import artefacts
from tfrank_sel.arguments import Checked, StrPath
from tfrank_sel.errors import received, refusal
from tfrank_sel.numerics import entry_point

LABELS, WEIGHTS = "labels", "weights"
INDEX = "index.npz"
_TAKEN = (LABELS, WEIGHTS, INDEX, artefacts.DIGESTS)
BLOCK = 2**22  # bytes of batches of one list size that follow each other
IN_MEMORY = 2**28  # bytes of lists that are kept in memory when they are read


@dataclasses.dataclass(frozen=True)
class Cache(Checked):
    """Unpadded lists on disk, from which batches are read in any order.

    Lists of up to 256 MiB are read into memory once. Reading a batch of others copies its items
    from the file, usually from the page cache of the system. Nothing is parsed.

    Args:
        folder: Folder of the lists, with a file for each part.
        sizes: Number of items of each list.
        parts: Kind of each part of an item, such as its prepared features.

    Example:
        >>> import tempfile
        >>> mask = tf.sequence_mask([2, 5, 3])
        >>> batch = {"features": tf.zeros([3, 5, 1]), "mask": mask}, tf.zeros([3, 5])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = Cache.write([batch], f"{folder}/lists")
        ...     batches = cache.batches(batch_size=2, bucket_edges=[3, 5], seed=1)
        ...     sorted(labels.shape.as_list() for _, labels in batches)
        [[2, 3], [2, 5]]
    """

    folder: Path
    sizes: np.ndarray
    parts: Mapping[str, tf.TensorSpec]

    @classmethod
    def write(cls, batches: Iterable[tuple[Any, ...]], folder: StrPath) -> Self:
        """Writes lists to a new folder, without empty lists.

        Args:
            batches: Inputs and labels, and weights if there are any, such as a dataset of
                `data.batches`. Inputs are a dict of `mask` `[batch_size, list_size]`, True for an
                item, and parts `[batch_size, list_size, ...]`, no strings. The labels and weights
                are `[batch_size, list_size]`.
            folder: Folder to write.

        Raises:
            FileExistsError: If `folder` exists.
            ValueError: If there is no list, the parts of a batch differ from those of the first in
                name, type or shape, a part is of strings or of other lists than the mask, or its
                name is that of another file of the cache.
        """
        folder = Path(folder)
        with artefacts.folder(folder, cls.__name__) as written:
            sizes, parts = _write(batches, written)
            index = {name: [kind.shape.as_list(), kind.dtype.name] for name, kind in parts.items()}
            np.savez(written / INDEX, sizes=sizes, parts=json.dumps(index))
        return cls(folder, sizes, parts)

    @classmethod
    def load(cls, folder: StrPath) -> Self:
        """Returns the lists that `write` wrote to a folder.

        Raises:
            OSError: If a file is missing or cannot be read.
            ValueError: If a file is not as it was written; the error names it.
        """
        folder = Path(folder)
        artefacts.check(folder, cls.__name__)
        with (
            artefacts.name_file_in_errors(folder / INDEX, "the index of a Cache"),
            np.load(folder / INDEX, allow_pickle=False) as index,
        ):
            described = json.loads(str(index["parts"]))
            parts = {name: tf.TensorSpec(*kind) for name, kind in described.items()}
            cache = cls(folder, index["sizes"], parts)
            items = int(cache.sizes.sum())
        # Caches of earlier versions have no digests that `check` could compare.
        for name, kind in parts.items():
            size = items * kind.shape.num_elements() * kind.dtype.size
            if (got := (folder / name).stat().st_size) != size:
                expected = f"{folder / name}: must have {size} bytes, of {items} items"
                raise refusal(expected, f"{got} bytes")
        return cache

    def batches(
        self,
        batch_size: int,
        bucket_edges: Sequence[int],
        *,
        seed: int | None = None,
        first_pass: int = 0,
        shard: tuple[int, int] = (0, 1),
        every: int = 1,
    ) -> tf.data.Dataset:
        """Returns batches for `fit`, all of `batch_size` lists, with one shape per edge.

        Args:
            batch_size: Number of lists in a batch.
            bucket_edges: List sizes to pad to, increasing; the last is at least the longest size.
            seed: Seed of the order of the lists, which changes in each pass. The remaining lists of
                a bucket go to the next bucket, and other lists fill the last batch. If None, lists
                keep their order, and empty lists fill the last batch of a bucket.
            first_pass: Number of passes to skip, to resume training: the order of the first pass is
                the one that follows this number of passes.
            shard: `(index, count)`: the share of each batch to read, every `count`-th list from
                `index` on, for training on several workers.

        Returns:
            A dataset of one pass, with the inputs, labels and weights given to `write`: 0 at
                padding, NaN for labels.

        Raises:
            ValueError: If a list is longer than the last edge, `batch_size` is not positive, or
                `shard` is not a share of it.
        """
        edges = np.asarray(bucket_edges)
        if batch_size < 1 or self.sizes.max() > edges[-1]:
            raise refusal(
                "`batch_size` must be positive, and the last edge at least the longest list size, "
                f"{self.sizes.max()}",
                batch_size=batch_size,
                bucket_edges=edges,
            )

        index, shards = shard
        if not 0 <= index < shards <= batch_size:
            raise refusal(
                "`shard` must be (index, count) with 0 <= index < count <= batch_size",
                shard=shard,
                batch_size=batch_size,
            )

        def plan() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            blocks = self._plan(batch_size, edges, orders, every)
            widths = np.repeat([edge for edge, _ in blocks], [len(lists) for _, lists in blocks])
            yield widths, np.concatenate([lists for _, lists in blocks])[:, index::shards]

        # a pass has as many batches in any order
        orders = None if seed is None else np.random.default_rng(seed)
        count = sum(len(lists) for _, lists in self._plan(batch_size, edges, orders, every))
        for _ in range(first_pass):  # draws their orders, as the interrupted training did
            self._plan(batch_size, edges, orders, every)
        lists = tf.TensorSpec([None, len(range(index, batch_size, shards))], tf.int64)
        if seed is None:  # the same in each pass
            dataset = tf.data.Dataset.from_tensor_slices(next(plan()))
        else:
            signature = tf.TensorSpec([None], tf.int64), lists
            dataset = tf.data.Dataset.from_generator(plan, output_signature=signature).unbatch()
        # if Keras knows the number of batches, it does not warn at their end
        counted = tf.data.experimental.assert_cardinality(count)
        options = tf.data.Options()
        # with `repeat`, a pass must not begin and draw its order before it is requested
        options.experimental_optimization.inject_prefetch = False
        # the thread that tunes sometimes does not end when the iterator is freed (TensorFlow 2.21)
        options.autotune.enabled = False
        dataset = dataset.map(self._read).apply(counted)
        return dataset.prefetch(2).with_options(options)

    def items(self, part: str) -> np.ndarray:
        """Returns a part of all items, the lists one after the other, as a map of its file.

        Args:
            part: Name of the part, or `labels` or `weights`.
        """
        kind = self.parts[part]
        shape = (int(self.sizes.sum()), *kind.shape)
        if 0 in shape:  # an empty file has no map
            return np.zeros(shape, kind.dtype.as_numpy_dtype)
        return np.memmap(self.folder / part, kind.dtype.as_numpy_dtype, "r", shape=shape)

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum(self.sizes) - self.sizes

    @property
    def _item_bytes(self) -> int:
        return sum(kind.dtype.size * kind.shape.num_elements() for kind in self.parts.values())

    def _plan(
        self, batch_size: int, edges: np.ndarray, orders: np.random.Generator | None, every: int
    ) -> list[tuple[int, np.ndarray]]:
        """The edges and the lists of blocks of batches, `[batches, batch_size]`, for a pass.

        -1 is an empty list.
        """
        buckets = np.searchsorted(edges, self.sizes)
        blocks, rest = [], np.array([], int)
        for bucket, edge in enumerate(edges.tolist()):
            lists = np.flatnonzero(buckets == bucket)[::every]
            if orders is not None:
                lists = orders.permutation(lists)
            lists = np.concatenate([rest, lists])
            whole = len(lists) // batch_size * batch_size
            batches, rest = lists[:whole].reshape([-1, batch_size]), lists[whole:]
            step = max(1, BLOCK // (batch_size * edge * self._item_bytes))
            blocks += [(edge, batches[i : i + step]) for i in range(0, len(batches), step)]
        if len(rest):
            others = np.array([-1])
            if orders is not None:  # those of the batch come last
                others = orders.permutation(len(self.sizes))
                others = others[np.argsort(np.isin(others, rest), kind="stable")]
            filled = np.append(rest, np.resize(others, batch_size - len(rest)))
            blocks.append((int(edges[-1]), filled[np.newaxis]))
        return blocks if orders is None else [blocks[i] for i in orders.permutation(len(blocks))]

    @entry_point
    def _read(self, edge: tf.Tensor, lists: tf.Tensor) -> tuple[Any, ...]:
        """Reads a batch of lists, of which -1 is an empty one."""
        numbers = tf.maximum(lists, 0)
        sizes = tf.gather(tf.constant(self.sizes, tf.int64), numbers)
        mask = tf.sequence_mask(sizes * tf.cast(lists >= 0, tf.int64), edge)
        if self._in_memory is None:
            batch = self._from_files(edge, lists)
        else:
            # the item behind the last one is padding
            starts = tf.gather(tf.constant(self._starts, tf.int64), numbers)
            rows = starts[:, tf.newaxis] + tf.range(edge)
            rows = tf.where(mask, rows, tf.constant(self.sizes.sum(), tf.int64))
            batch = {name: tf.gather(items, rows) for name, items in self._in_memory.items()}
        others = [batch.pop(name) for name in (LABELS, WEIGHTS) if name in batch]
        return {**batch, "mask": mask}, *others

    @functools.cached_property
    def _in_memory(self) -> Mapping[str, tf.Tensor] | None:
        """The parts of all items and of padding, if they are small enough."""
        if self.sizes.sum() * self._item_bytes > IN_MEMORY:
            return None
        tensors = {}
        for name, kind in self.parts.items():
            padding = np.full([1, *kind.shape], _padding_value(name), kind.dtype.as_numpy_dtype)
            with tf.init_scope(), tf.device("CPU"):  # not of the graph that reads a batch
                tensors[name] = tf.constant(np.concatenate([self.items(name), padding]))
        return tensors

    def _from_files(self, edge: tf.Tensor, lists: tf.Tensor) -> dict[str, tf.Tensor]:
        def read(edge: np.ndarray, lists: np.ndarray) -> list[np.ndarray]:
            return [self._from_file(name, int(edge), lists) for name in self.parts]

        kinds = [kind.dtype for kind in self.parts.values()]
        arrays = tf.numpy_function(read, [edge, lists], kinds, stateful=False)
        return {
            name: tf.ensure_shape(x, [*lists.shape, None, *kind.shape])
            for x, (name, kind) in zip(arrays, self.parts.items(), strict=True)
        }

    def _from_file(self, name: str, edge: int, lists: np.ndarray) -> np.ndarray:
        kind = self.parts[name]
        shape = [len(lists), edge, *kind.shape]
        values = np.full(shape, _padding_value(name), kind.dtype.as_numpy_dtype)
        width = values[0, 0].nbytes
        with (self.folder / name).open("rb", buffering=0) as file:
            for row, number in zip(values, lists, strict=True):
                items = row[: self.sizes[number] if number >= 0 else 0].data
                offset = int(self._starts[number]) * width
                if os.preadv(file.fileno(), [items], offset) < items.nbytes:
                    expected = f"{self.folder / name} must not change"
                    raise OSError(received(expected, "it ends early"))
        return values


def _padding_value(part: str) -> float:
    return np.nan if part == LABELS else 0


def _write(
    batches: Iterable[tuple[Any, ...]], folder: Path
) -> tuple[np.ndarray, Mapping[str, tf.TensorSpec]]:
    """Writes the parts of lists; returns the sizes of the lists and the kinds of the parts."""
    sizes: list[np.ndarray] = []
    parts: dict[str, tf.TensorSpec] = {}
    with contextlib.ExitStack() as stack:
        files: dict[str, Any] = {}
        for number, (inputs, *others) in enumerate(batches, start=1):
            if taken := [name for name in inputs if name in _TAKEN or "/" in name]:
                raise refusal("a part must have another name", taken)
            names = [*inputs, LABELS, WEIGHTS][: len(inputs) + len(others)]
            named_values = zip(names, (*inputs.values(), *others), strict=True)
            values = {name: _array(name, x) for name, x in named_values}
            mask = values.pop("mask")
            kinds = {
                name: _kind(f"batch {number}: {name!r}", x, mask) for name, x in values.items()
            }
            parts = parts or kinds
            for name in {**parts, **kinds}:
                if parts.get(name) != kinds.get(name):
                    expected = f"batch {number}: {name!r} must be {_words(parts.get(name))}"
                    raise refusal(f"{expected}, as in the first", _words(kinds.get(name)))
            lengths = mask.sum(axis=1)
            sizes.append(lengths[lengths > 0])
            for name, x in values.items():
                if name not in files:
                    files[name] = stack.enter_context((folder / name).open("wb"))
                files[name].write(x[mask].data)
    if not sum(map(len, sizes)):
        raise refusal("`batches` must have at least one list", "none")
    return np.concatenate(sizes), parts


def _array(name: str, values: Any) -> np.ndarray:
    """A part in the byte order of this machine; labels as floats, because NaN is their padding."""
    array = np.asarray(values)
    if name == LABELS and array.dtype.kind in "biu":
        return array.astype(np.float32)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _kind(name: str, values: np.ndarray, mask: np.ndarray) -> tf.TensorSpec:
    """The type and shape of a part of an item."""
    if mask.dtype != bool or mask.ndim != 2 or values.shape[:2] != mask.shape:
        expected = f"{name} must have the items of a Boolean mask, [batch_size, list_size]"
        raise refusal(expected, values.shape, f"mask {mask.dtype} {mask.shape}")
    if values.dtype.kind in "OSU":
        raise refusal(f"{name} must be numbers", values.dtype)
    return tf.TensorSpec(values.shape[2:], values.dtype)


def _words(kind: tf.TensorSpec | None) -> str:
    return "absent" if kind is None else f"{kind.dtype.name} {kind.shape.as_list()}"
