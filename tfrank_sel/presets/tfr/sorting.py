"""Sorting of items by their scores, as `tfr.utils.sort_by_scores` does it."""

from collections.abc import Sequence

import tensorflow as tf

from tfrank_sel.ops import ranking


def sort_by_scores(
    scores: tf.Tensor,
    features_list: Sequence[tf.Tensor],
    topn: int | None = None,
    mask: tf.Tensor | None = None,
) -> list[tf.Tensor]:
    """Sorts features by the scores of their items; ties keep their order.

    Args:
        scores: Scores of the items, `[batch_size, list_size]`.
        features_list: Features of the items, `[batch_size, list_size, ...]` each.
        topn: Number of items to keep; all of them if `None`.
        mask: Which items are valid, `[batch_size, list_size]`; the others come last. All are valid
            if `None`.

    Returns:
        The features in the order of descending scores, `[batch_size, topn, ...]` each.

    Example:
        >>> titles = tf.constant([["a", "b", "c"]])
        >>> [found] = presets.tfr.sort_by_scores(tf.constant([[1.0, 3.0, 2.0]]), [titles], topn=2)
        >>> found.numpy().tolist()
        [[b'b', b'c']]
    """
    scores = tf.convert_to_tensor(scores)
    mask = tf.ones_like(scores, tf.bool) if mask is None else mask
    return ranking.sort_by(scores, *features_list, mask=mask, k=topn)
