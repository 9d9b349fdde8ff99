"""Export of a model of sequences, from a history of ids to the best items to follow."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrank_sel.export import saved_model
from tfrank_sel.locks import created
from tfrank_sel.models.sequences import SequenceEncoder
from tfrank_sel.refusals import refusal


def next_items(
    encoder: SequenceEncoder,
    item_ids: Sequence[str],
    path: str | os.PathLike[str],
    *,
    k: int = 10,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes a SavedModel that answers a history with the items that are most likely to come next.

    Its signature `serving_default` takes `history`, strings `[batch_size, length]`: ids of items in
    order of time, padded with `""`. Ids that are unknown are left out. It returns `items`, strings
    `[batch_size, k]`, and `scores`, float32, as `SequenceEncoder.best`; `""` if no item is left.
    `assets.extra/manifest.json` is as in `export`.

    Args:
        encoder: The model.
        item_ids: Ids of its items, texts, in order of their numbers, as `data.Sequences.item_ids`.
        path: Folder to write; it must not exist.
        k: Number of items to return; positive.
        metadata: Additional JSON-ready content of the manifest, such as metrics.

    Raises:
        FileExistsError: If `path` exists, or another process is exporting to it.
        ValueError: If `k` is not positive, or `item_ids` are not one different text for each item.

    Example:
        >>> from tfrank_sel.models import SequenceEncoder
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     next_items(SequenceEncoder(3, 4), ["7", "007", "x"], f"{folder}/model", k=1)
        ...     served = tf.saved_model.load(f"{folder}/model").signatures["serving_default"]
        ...     served(tf.constant([["x", "007"]]))["items"].numpy().tolist()
        [[b'7']]
    """
    texts = [str(x) for x in item_ids]
    different = len({*texts} - {""})
    if not different == len(texts) == encoder.num_items:
        raise refusal(
            f"`item_ids` must be {encoder.num_items} different texts that are not empty",
            f"{len(texts)}, of which {different} are different and not empty",
        )
    root, names = tf.Module(), tf.constant(["", *texts])
    numbers = tf.range(1, len(texts) + 1)
    initializer = tf.lookup.KeyValueTensorInitializer(names[1:], numbers)
    root.table = table = tf.lookup.StaticHashTable(initializer, 0)

    def serve(history: tf.Tensor) -> dict[str, tf.Tensor]:
        best, scores = encoder.best(table.lookup(history), k)
        return {"items": tf.gather(names, best), "scores": scores}

    taken = [tf.TensorSpec([None, None], tf.string, name="history")]
    served = tf.function(serve, taken, autograph=False).get_concrete_function()
    root.captured = served.variables
    with created(Path(path)) as written:
        tf.saved_model.save(root, str(written), signatures={"serving_default": served})
        saved_model.check_servable(written)
        features = {"history": {"dtype": "string", "shape": [None]}}
        saved_model.write_manifest(written, features, metadata or {})
        saved_model.write_batching(written)
