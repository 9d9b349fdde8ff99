"""Batches of lists in memory."""

import collections
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrank_sel.data import batching
from tfrank_sel.data.lists import ItemList

PADDING = {"features": 0.0, "texts": "", "mask": False, "labels": float("nan"), "weights": 0.0}


def batches(
    lists: Sequence[ItemList],
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
    sizes = [len(one.labels) for one in lists]
    counted = collections.Counter(sizes)
    if isinstance(bucket_edges, int):
        bucket_edges = batching.bucket_edges(counted, bucket_edges, min_lists=batch_size)
    batching.check(batch_size, bucket_edges)
    if max(sizes) > bucket_edges[-1]:
        wanted = f"`bucket_edges` must reach the longest list, {max(sizes)}"
        raise ValueError(f"{wanted}. Received: {bucket_edges}")
    first = lists[0]
    parts = {
        "features": np.concatenate([one.features for one in lists]),
        "mask": np.ones(sum(sizes), bool),
        "labels": np.concatenate([one.labels for one in lists]),
    }
    if first.texts is not None and first.texts.shape[1]:
        parts["texts"] = np.concatenate([one.texts for one in lists])
    if first.weights is not None:
        parts["weights"] = np.concatenate([one.weights for one in lists])
    ragged = {
        name: tf.RaggedTensor.from_row_lengths(tf.constant(values.tolist()), sizes)
        if values.dtype == object
        else tf.RaggedTensor.from_row_lengths(values, sizes)
        for name, values in parts.items()
    }
    dataset = tf.data.Dataset.from_tensor_slices(ragged).map(dict)  # to plain tensors
    if shuffle:
        dataset = dataset.shuffle(len(lists), seed=seed, reshuffle_each_iteration=True)
    dataset = dataset.bucket_by_sequence_length(
        lambda one: tf.shape(one["labels"])[0],
        bucket_boundaries=[edge + 1 for edge in bucket_edges],
        bucket_batch_sizes=[batch_size] * (len(bucket_edges) + 1),
        padded_shapes={name: [None, *values.shape[1:]] for name, values in parts.items()},
        padding_values={name: tf.constant(PADDING[name]) for name in parts},
        pad_to_bucket_boundary=True,
    )
    count = batching.num_batches(counted, batch_size=batch_size, bucket_edges=bucket_edges)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.map(_divided).prefetch(tf.data.AUTOTUNE)


def _divided(one: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor] | tf.Tensor, ...]:
    others = [one.pop(name) for name in ("labels", "weights") if name in one]
    return one, *others
