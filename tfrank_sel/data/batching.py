"""Dense batches of a few static shapes, from shards of lists or lists in memory."""

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tfrank_sel.arguments import StrPath
from tfrank_sel.data import packed, stores
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.spec import FeatureSpec, ListFeatures
from tfrank_sel.errors import received, refusal
from tfrank_sel.numerics import entry_point

Files = Sequence[StrPath]
Parse = Callable[..., dict[str, Any]]
# Maps labels `[batch_size, longer]`, NaN at padding, and a number of items to the positions of
# the items to keep, `[batch_size, number of items]`.
Truncation = Callable[[tf.Tensor, int], tf.Tensor]
# Number of files that are read at once.
_FILES = 8
_RUN = 16  # lists of a file that come together
PADDING = {"features": 0.0, "texts": "", "mask": False, "labels": float("nan"), "weights": 0.0}


def batches(
    files: Files,
    spec: FeatureSpec | ListFeatures,
    *,
    batch_size: int,
    bucket_edges: Sequence[int] | int = 4,
    parse: Parse = packed.parse,
    inputs: Sequence[str] | None = None,
    truncation: Truncation | None = None,
    shuffle_items: bool = False,
    shuffle_buffer: int = 0,
    seed: int | None = None,
    repeat: bool = False,
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Reads TFRecords of lists as batches for `fit`.

    Each batch has lists of similar length: a list of `n` items goes to the first bucket whose edge
    is at least `n`, and is padded to that edge. So there is one shape per bucket, and at most one
    more for the last batch of each bucket, which is smaller unless `repeat`. All work is done by
    native operations, and parsing by batch.

    You can save and restore an iterator with `tf.train.Checkpoint(iterator=iterator)`: it continues
    with the same next batches, even if shuffled. The lists in its buffers are saved, too.

    Args:
        files: TFRecord files; compressed by gzip if their names end in `.gz`, all or none. Files of
            an object store, given by URL, are fetched to `stores.cache()` ahead of their use.
        spec: Features of a list.
        batch_size: Number of lists in a batch.
        bucket_edges: Increasing list sizes to pad to; or the maximum number of sizes, which are
            then found by reading the files once. See also `bucket_edges` of this module.
        parse: Parser of stored lists: `packed.parse` or `elwc.parse` of `tfrank_sel.data` for a
            `FeatureSpec`, a function of `tfrank_sel.data.parsing` for `ListFeatures`.
        inputs: Names of the model inputs, which are passed as a dict: any outputs of `parse`. By
            default, the model gets the feature tensor of a `FeatureSpec`, or all features except
            the label of `ListFeatures`.
        truncation: Truncation of lists longer than the last edge: a function that takes the labels
            `[batch_size, longer]` (NaN at padding) and the last edge, and returns the positions of
            the items to keep, `[batch_size, last edge]`. `head` keeps the first items, `top` those
            with the highest labels; `head` with `shuffle_items` makes a random choice. By default
            such a list is an error.
        shuffle_items: Whether to shuffle the items of each list before truncation, differently in
            each pass.
        shuffle_buffer: Number of lists in the shuffle buffer, with another order in each pass; 0
            keeps the order of the files. With a buffer, the order of the files also changes in each
            pass, and 8 files are interleaved, 16 lists of each in turn. So the lists of one file,
            such as those of a day, are spread beyond the buffer.
        seed: Seed of the shuffling.
        repeat: Whether to repeat the files forever. A batch may then contain the last lists of one
            pass and the first of the next, and no batch is smaller.
        shard: `(index, count)`, for workers that train together: each list is in exactly one of the
            datasets with `index` from 0 to `count - 1`. A dataset has whole files if there are at
            least `count` files, else every `count`-th list.

    Returns:
        A dataset of `(inputs, labels)`. The features of a `FeatureSpec` are float32 `[batch_size,
        list_size, num_features]`, 0 at padding, and the labels float32 `[batch_size, list_size]`,
        NaN at padding; `list_size` is an edge. If a `FeatureSpec` has a weight, the dataset has
        `(inputs, labels, weights)`, with weights of the shape of the labels, 0 at padding.

    Raises:
        TypeError: If `files` is one path.
        ValueError: If there is no file, only some are compressed, `batch_size` is not positive,
            `bucket_edges` is not positive and increasing, `shard` is invalid, `spec` has no label
            or lacks a name in `inputs`, or items of sparse features would have to be selected.
        tf.errors.InvalidArgumentError: If a list is longer than the last edge, and there is no
            `truncation`.

    Example:
        >>> import tempfile
        >>> from tfrank_sel.data import FeatureSpec, packed
        >>> spec = FeatureSpec(num_features=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with tf.io.TFRecordWriter(f"{folder}/lists") as file:
        ...         for size in (2, 5, 3):
        ...             file.write(packed.serialize(np.ones([size, 1]), spec))
        ...     dataset = batches([f"{folder}/lists"], spec, batch_size=2, bucket_edges=[3, 5])
        ...     sorted(features.shape.as_list() for features, labels in dataset)
        [[1, 5, 1], [2, 3, 1]]
    """
    count = None
    if isinstance(bucket_edges, int):
        sizes = _sizes(files, spec, parse)
        bucket_edges = _edges({n: x for n, x in sizes.items() if n}, bucket_edges, batch_size)
        if not repeat and shard == (0, 1):
            count = num_batches(sizes, batch_size=batch_size, bucket_edges=bucket_edges)
    check(batch_size, bucket_edges)
    assembler = Assembler(spec, parse, tuple(bucket_edges), inputs, truncation, shuffle_items)
    dataset = _records(files, shard, shuffles=shuffle_buffer > 0, seed=seed)
    if shuffle_buffer:
        dataset = dataset.shuffle(shuffle_buffer, seed=seed, reshuffle_each_iteration=True)
    if repeat:
        dataset = dataset.repeat()
    if len(bucket_edges) == 1:
        dataset = dataset.batch(batch_size).map(assembler.add_sizes, tf.data.AUTOTUNE)
    else:
        # Buckets are found per batch: `key_func` runs once per list, so it must be trivial.
        dataset = dataset.batch(16).map(assembler.add_sizes, tf.data.AUTOTUNE).unbatch()
        dataset = dataset.group_by_window(
            key_func=lambda serialized, size, bucket: bucket,
            reduce_func=lambda bucket, window: window.batch(batch_size),
            window_size=batch_size,
        )
    if shuffle_items:
        # One number per batch, for the order of its items.
        seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
        dataset = tf.data.Dataset.zip((dataset, seeds)).map(lambda lists, x: (*lists, x))
    dataset = dataset.map(assembler.dense, tf.data.AUTOTUNE)
    if count is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(tf.data.AUTOTUNE)


def list_sizes(
    files: Files, spec: FeatureSpec | ListFeatures, *, parse: Parse = packed.parse
) -> collections.Counter[int]:
    """Counts the lists of each size, without empty lists.

    Args:
        files: As in `batches`.
        spec: As in `batches`.
        parse: As in `batches`.

    Raises:
        ValueError: If there is no file, or only some are compressed.
    """
    sizes = _sizes(files, spec, parse)
    del sizes[0]
    return sizes


def bucket_edges(
    list_sizes: Mapping[int, int], max_buckets: int = 4, *, min_lists: int = 1
) -> tuple[int, ...]:
    """Returns the bucket edges with the least padding.

    They minimise the total of `edge - size` over all lists, among edges that are the sizes of
    lists (at most 256 of them, evenly spaced by rank), and the last is the longest size.

    Args:
        list_sizes: Number of lists of each size.
        max_buckets: Maximum number of buckets. Each takes one more compilation by XLA.
        min_lists: Minimum number of lists in a bucket, unless there are fewer in total. Use the
            batch size, so that a bucket does not need several passes to fill a batch.

    Returns:
        At most `max_buckets` sizes, increasing.

    Raises:
        ValueError: If there is no list, or a size or `max_buckets` is not positive.

    Example:
        >>> bucket_edges({5: 10, 6: 10, 100: 3}, max_buckets=2)
        (6, 100)
    """
    if not list_sizes or min(list_sizes) < 1 or max_buckets < 1:
        expected = (
            "`list_sizes` must not be empty, and its sizes and `max_buckets` must be positive"
        )
        raise refusal(expected, dict(list_sizes), max_buckets=max_buckets)
    sizes = np.array(sorted(list_sizes))
    if sizes.size > 256:
        sizes = sizes[np.linspace(0, sizes.size - 1, 256).round().astype(int)]
    upto = np.zeros(sizes.size + 1)  # upto[j]: number of lists of the first j candidates
    for size, count in list_sizes.items():
        upto[np.searchsorted(sizes, size) + 1] += count
    edges, j = [], sizes.size
    for cut in _cuts(sizes, np.cumsum(upto), max_buckets, min_lists):
        if j > 0:
            edges.append(int(sizes[j - 1]))
            j = int(cut[j - 1])
    return tuple(reversed(edges))


def num_batches(
    list_sizes: Mapping[int, int], *, batch_size: int, bucket_edges: Sequence[int]
) -> int:
    """Returns the number of batches of `batches` in one pass.

    Args:
        list_sizes: Number of lists of each size.
        batch_size: As in `batches`.
        bucket_edges: As in `batches`.

    Example:
        >>> num_batches({5: 10, 6: 10, 100: 3}, batch_size=8, bucket_edges=[6, 100])
        4
    """
    buckets = np.searchsorted(bucket_edges, list(list_sizes)).clip(max=len(bucket_edges) - 1)
    lists = np.bincount(buckets, weights=list(list_sizes.values()))
    return int(np.ceil(lists / batch_size).sum())


def _cuts(
    sizes: np.ndarray, upto: np.ndarray, max_buckets: int, min_lists: int
) -> list[np.ndarray]:
    """The start of the last bucket, if candidates 0 to j get `max_buckets`, ..., 2, 1 buckets."""
    within = upto[None, 1:] - upto[:, None]  # within[i, j]: lists above candidate i, up to j
    shape = within.shape
    allowed = (within >= min(min_lists, upto[-1])) & ~np.tri(shape[0], shape[1], -1, dtype=bool)
    # slots of the first j candidates, with one more bucket per iteration
    cost = np.where(upto > 0, np.inf, 0.0)
    cuts = []
    for _ in range(max_buckets):
        slots = np.where(allowed, cost[:, None] + within * sizes, np.inf)
        cuts.append(slots.argmin(axis=0))
        cost = np.minimum(cost, np.concatenate([[0.0], slots.min(axis=0)]))
    return cuts[::-1]


def _records(
    files: Files, shard: tuple[int, int], *, shuffles: bool = False, seed: int | None = None
) -> tf.data.Dataset:
    if isinstance(files, (str, bytes, os.PathLike)):
        raise TypeError(received("`files` must be a sequence of files", repr(files)))
    names, (index, count) = [os.fspath(file) for file in files], shard
    if not names:
        raise refusal("`files` must name at least one file", "none")
    if not 0 <= index < count:
        raise refusal("`shard` must be an index below a count", shard)
    compressed = [name for name in names if name.endswith(".gz")]
    if compressed and len(compressed) < len(names):
        expected = "`files` must all be compressed (`.gz`), or none"
        raise refusal(expected, f"{len(compressed)} of {len(names)} compressed")
    compression = "GZIP" if compressed else None
    if len(names) >= count:
        names, index, count = names[index::count], 0, 1
    # If a worker takes every n-th list of each file, another worker begins the next file.
    first = [(index + number) % count for number in range(len(names))]
    order = tf.data.Dataset.from_tensor_slices((names, np.array(first, np.int64)))
    if shuffles := shuffles and len(names) > 1:
        order = order.shuffle(len(names), seed=seed, reshuffle_each_iteration=True)
    if any(map(stores.is_remote, names)):
        order = order.map(_fetch, _FILES, deterministic=True).prefetch(_FILES)
    if shuffles:
        # Lists are divided within a file, so that workers need not agree on the order of the files.
        dataset = order.interleave(
            lambda name, first: tf.data.TFRecordDataset(name, compression).shard(count, first),
            cycle_length=_FILES,
            block_length=_RUN,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
    else:
        dataset = tf.data.TFRecordDataset(order.map(lambda name, first: name), compression)
        dataset = dataset.shard(count, index)
    if shard[1] > 1:  # `tf.distribute` would divide the lists of this worker once more
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options)
    return dataset


@entry_point
def _fetch(name: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    def near(url: bytes) -> str:
        return stores.near(url.decode())

    # Stateless, so that an iterator can be saved.
    path = tf.numpy_function(near, [name], tf.string, stateful=False)
    return tf.ensure_shape(path, []), first


def _sizes(
    files: Files, spec: FeatureSpec | ListFeatures, parse: Parse
) -> collections.Counter[int]:
    assembler = Assembler(spec, parse)
    counts: collections.Counter[int] = collections.Counter()
    for sizes in _records(files, (0, 1)).batch(64).map(assembler.sizes, tf.data.AUTOTUNE):
        counts.update(sizes.numpy().tolist())
    return counts


def _edges(sizes: Mapping[int, int], max_buckets: int, min_lists: int) -> tuple[int, ...]:
    # for functions with an argument `bucket_edges`, which hides this one
    return bucket_edges(sizes, max_buckets, min_lists=min_lists)


def check(batch_size: int, edges: Sequence[int]) -> None:
    """Raises a `ValueError` if a size or an edge is not positive, or the edges do not increase."""
    if batch_size < 1:
        raise refusal("`batch_size` must be positive", batch_size)
    if not edges or edges[0] < 1 or any(a >= b for a, b in itertools.pairwise(edges)):
        raise refusal("`bucket_edges` must be positive and increasing", edges)


@dataclasses.dataclass(frozen=True)
class Assembler:
    """Converts batches of serialized lists to the inputs and labels of a model.

    Args:
        spec: As in `tfrank_sel.data.batches`, as all others.
        parse: Parser of stored lists.
        edges: List sizes to pad to; empty, to find only sizes.
        inputs: Names of the model inputs.
        truncation: Truncation of lists longer than the last edge.
        shuffle_items: Whether to shuffle the items of each list.

    Raises:
        ValueError: If `parse` cannot read `spec`, or items of sparse features would be selected.
    """

    spec: FeatureSpec | ListFeatures
    parse: Parse
    edges: tuple[int, ...] = ()
    inputs: Sequence[str] | None = None
    truncation: Truncation | None = None
    shuffle_items: bool = False

    def __post_init__(self) -> None:
        if self.parse is packed.parse and not isinstance(self.spec, FeatureSpec):
            expected = "`parse` must be of `tfrank_sel.data.parsing` to read `ListFeatures`"
            raise refusal(expected, "packed.parse")
        kinds = self._named.items.items()
        sparse = [name for name, kind in kinds if isinstance(kind, tf.io.VarLenFeature)]
        if sparse and self._chooses:
            expected = "Items can be selected from a `tf.io.RaggedFeature`, but not from a"
            raise refusal(f"{expected} `VarLenFeature`", sparse)

    @entry_point
    def sizes(self, serialized: tf.Tensor) -> tf.Tensor:
        """Returns the number of items of each list."""
        if self.parse is packed.parse:
            spec = cast(FeatureSpec, self.spec)  # the only kind that this parser reads
            return tf.cast(packed.list_sizes(serialized, spec), tf.int64)
        # Only the part of the parser that the mask needs is run.
        return tf.math.count_nonzero(self.parse(serialized, self.spec)[self._named.mask], axis=1)

    @entry_point
    def add_sizes(self, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the unchanged serialized lists, their sizes, and the indices of their edges."""
        sizes = self.sizes(serialized)
        places = tf.searchsorted(tf.constant(self.edges, tf.int64), sizes, out_type=tf.int64)
        return serialized, sizes, tf.minimum(places, len(self.edges) - 1)

    @entry_point
    def dense(
        self,
        serialized: tf.Tensor,
        sizes: tf.Tensor,
        places: tf.Tensor,
        seed: tf.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Returns inputs and labels, and weights if there are any, from a result of `add_sizes`."""
        longest = tf.reduce_max(sizes)
        if self.truncation is None:
            _refuse_longer(longest, self.edges[-1])
        edge = tf.gather(tf.constant(self.edges), tf.reduce_max(places))
        width = tf.maximum(edge, tf.cast(longest, tf.int32)) if self._chooses else edge
        parsed = self.parse(serialized, self.spec, list_size=width)
        weight = getattr(self.spec, "weight", None)  # of a `FeatureSpec`
        mask, label = parsed[self._named.mask], self._label
        labels = tf.reshape(tf.cast(parsed[label], tf.float32), tf.shape(mask))
        parsed[label] = tf.where(mask, labels, float("nan"))
        if self._chooses:
            parsed |= self._choose_items(parsed, seed)
        weights = () if weight is None else (parsed[weight],)
        return self._select_inputs(parsed), parsed[label], *weights

    @functools.cached_property
    def _named(self) -> ListFeatures:
        return self.spec.list_features() if isinstance(self.spec, FeatureSpec) else self.spec

    @property
    def _label(self) -> str:
        if self.spec.label is None:
            raise refusal("`spec` must have a label", self.spec)
        return self.spec.label

    @property
    def _chooses(self) -> bool:
        """Whether items may be selected other than the first ones in their order."""
        return self.shuffle_items or self.truncation not in (None, head)

    def _choose_items(self, parsed: dict[str, Any], seed: tf.Tensor | None) -> dict[str, Any]:
        """The features of the kept items, in their new order."""
        named = self._named
        items = {name: parsed[name] for name in (*named.items, named.mask)}
        mask = items[named.mask]
        if seed is not None:
            items = _gather_items(items, shuffle_positions(mask, tf.stack([seed, 0])))
        if self.truncation is None:
            return items
        truncation, label = self.truncation, self._label
        return tf.cond(
            tf.shape(mask)[1] > self.edges[-1],
            lambda: _gather_items(items, truncation(items[label], self.edges[-1])),
            lambda: items,
        )

    def _select_inputs(self, parsed: dict[str, Any]) -> Any:
        if self.inputs is None:
            if isinstance(self.spec, FeatureSpec):
                return parsed[self.spec.features]
            return {name: value for name, value in parsed.items() if name != self.spec.label}
        if unknown := [name for name in self.inputs if name not in parsed]:
            raise refusal(f"`inputs` must be of {list(parsed)}", unknown)
        return {name: parsed[name] for name in self.inputs}


def _refuse_longer(longest: tf.Tensor, edge: int) -> None:
    message = f"a list must have at most {edge} items (the last bucket edge), or set `truncation`"
    tf.debugging.Assert(longest <= edge, [message, "Received:", longest])


def _gather_items(items: dict[str, Any], positions: tf.Tensor) -> dict[str, Any]:
    return {name: tf.gather(values, positions, batch_dims=1) for name, values in items.items()}


def head(labels: tf.Tensor, list_size: int) -> tf.Tensor:
    """Truncation that keeps the first `list_size` items, in the order of the file.

    Example:
        >>> head(tf.constant([[0.0, 2.0, 1.0]]), 2).numpy().tolist()
        [[0, 1]]
    """
    positions = tf.range(list_size)
    return tf.broadcast_to(positions, [tf.shape(labels)[0], list_size])


def top(labels: tf.Tensor, list_size: int) -> tf.Tensor:
    """Truncation that keeps the `list_size` items with the highest labels, in file order.

    Among equal labels, the first items are kept.

    Example:
        >>> top(tf.constant([[0.0, 1.0, 0.0, 2.0, float("nan")]]), 3).numpy().tolist()
        [[0, 1, 3]]
    """
    lowest_at_padding = tf.where(tf.math.is_nan(labels), -float("inf"), labels)
    best = tf.argsort(lowest_at_padding, axis=1, direction="DESCENDING", stable=True)
    return tf.sort(best[:, :list_size], axis=1)


def shuffle_positions(mask: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns the positions of the items of each list in random order, followed by padding.

    Args:
        mask: True for an item, `[batch_size, list_size]`.
        seed: Two integers.
    """
    # keys are below 1, so that padding comes last
    keys = tf.random.stateless_uniform(tf.shape(mask), seed)
    return tf.argsort(tf.where(mask, keys, 1.0), axis=1)


def in_memory(
    lists: Lists,
    *,
    batch_size: int,
    bucket_edges: Sequence[int] | int = 4,
    shuffle: bool = True,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Pads lists to batches of a few static shapes, as in `tfrank_sel.data.frames.dataset`.

    Args:
        lists: The lists, at least one.
        batch_size: Number of lists in a batch.
        bucket_edges: As in `tfrank_sel.data.batches`.
        shuffle: Whether to shuffle the lists.
        seed: Seed of the shuffling.
    """
    sizes = lists.sizes.tolist()
    counted = collections.Counter(sizes)
    if isinstance(bucket_edges, int):
        bucket_edges = _edges(counted, bucket_edges, batch_size)
    check(batch_size, bucket_edges)
    if max(sizes) > bucket_edges[-1]:
        expected = f"`bucket_edges` must reach the longest list, {max(sizes)}"
        raise refusal(expected, bucket_edges)
    parts = {
        "features": lists.features,
        "mask": np.ones(sum(sizes), bool),
        "labels": lists.labels,
    }
    if lists.texts is not None and lists.texts.shape[1]:
        parts["texts"] = lists.texts
    if lists.weights is not None:
        parts["weights"] = lists.weights
    ragged = {
        name: tf.RaggedTensor.from_row_lengths(values, sizes) for name, values in parts.items()
    }
    # The `map` turns ragged slices into plain tensors.
    dataset = tf.data.Dataset.from_tensor_slices(ragged).map(dict)
    if shuffle:
        dataset = dataset.shuffle(len(lists), seed=seed, reshuffle_each_iteration=True)
    dataset = dataset.bucket_by_sequence_length(
        lambda element: tf.shape(element["labels"])[0],
        # A boundary is the least size beyond a bucket, which is padded to the boundary less 1.
        bucket_boundaries=[edge + 1 for edge in bucket_edges],
        bucket_batch_sizes=[batch_size] * (len(bucket_edges) + 1),
        padded_shapes={name: [None, *values.shape[1:]] for name, values in parts.items()},
        padding_values={name: tf.constant(PADDING[name]) for name in parts},
        pad_to_bucket_boundary=True,
    )
    count = num_batches(counted, batch_size=batch_size, bucket_edges=bucket_edges)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.map(_split_targets).prefetch(tf.data.AUTOTUNE)


@entry_point
def _split_targets(element: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor] | tf.Tensor, ...]:
    others = [element.pop(name) for name in ("labels", "weights") if name in element]
    return element, *others


def split_segments(segments: Any, *tensors: Any) -> list[tf.RaggedTensor]:
    """Splits rows that contain several lists into one list per segment.

    Every loss and metric takes the result, so that one row of a batch can contain the items of
    several queries. It is differentiable, and runs in eager mode and in graphs. XLA cannot compile
    it, because the number of lists is not static.

    Args:
        segments: The segment of each item, integers `[batch_size, row_size]`: items of one row and
            one segment make a list, in any positions of the row. Below 0 is padding.
        *tensors: Tensors to split, such as labels, scores and weights of items: each
            `[batch_size, row_size]` or `[batch_size, row_size, ...]`.

    Returns:
        The tensors, `[num_lists, (list_size)]` or `[num_lists, (list_size), ...]`; lists are
        ordered by row and segment, and their items as in the row.

    Example:
        >>> from tfrank_sel import data
        >>> segments = tf.constant([[0, 0, 1, 1, 1, -1]])  # the last item is padding
        >>> y_true = tf.constant([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]])
        >>> y_pred = tf.constant([[0.5, 0.1, 0.3, 0.2, 0.9, 0.0]])
        >>> y_true, y_pred = data.split_segments(segments, y_true, y_pred)
        >>> y_pred.to_list()[0]
        [0.5, 0.10000000149011612]
        >>> round(float(metrics.MRR()(y_true, y_pred)), 4)  # 1 and 1/3
        0.6667
    """
    segments = tf.convert_to_tensor(segments)
    order = tf.argsort(segments, axis=-1, stable=True)
    ids = tf.gather(segments, order, batch_dims=1)
    starts = tf.pad(ids[:, 1:] != ids[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    valid = ids >= 0
    lists = tf.cumsum(tf.cast(tf.boolean_mask(starts, valid), tf.int64)) - 1
    return [
        tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(tf.gather(x, order, batch_dims=1), valid), lists
        )
        for x in tensors
    ]
