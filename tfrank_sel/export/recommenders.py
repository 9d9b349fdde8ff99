"""Export of recommenders, from the id of a user, or those of a history, to the best items."""

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import refusal
from tfrank_sel.export import saved_model
from tfrank_sel.locks import atomic_path
from tfrank_sel.models.sequences import SequenceEncoder
from tfrank_sel.ops import catalogue

if TYPE_CHECKING:
    # This import loads Numba, so it waits for its use.
    from tfrank_sel.models.als import RGFactorizer


def next_items(
    encoder: SequenceEncoder,
    item_ids: Sequence[str],
    path: StrPath,
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
        ValueError: If `k` is not positive, or `item_ids` are not one different text, or integer,
            for each item.

    Example:
        >>> from tfrank_sel.models import SequenceEncoder
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     next_items(SequenceEncoder(3, 4), ["7", "007", "x"], f"{folder}/model", k=1)
        ...     served = tf.saved_model.load(f"{folder}/model").signatures["serving_default"]
        ...     served(tf.constant([["x", "007"]]))["items"].numpy().tolist()
        [[b'7']]
    """
    texts = _different("item_ids", item_ids, encoder.num_items)
    root = tf.Module()
    number, named = _table(root, "items", texts), _names(texts)

    def serve(history: Tensor) -> dict[str, Tensor]:
        best, scores = encoder.best(number(history), k)
        return {"items": named(best), "scores": scores}

    _write(root, serve, "history", [None, None], path, metadata or {})


def factorization(
    model: "RGFactorizer",
    path: StrPath,
    *,
    k: int = 10,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes a SavedModel that answers a user with the best items that the user did not take.

    Its signature `serving_default` takes `user`, strings `[batch_size]`: the ids of the fit, or the
    indices, as text. It returns `items`, strings `[batch_size, k]`, and `scores`, float32, as
    `RGFactorizer.recommend`; `""`, with the lowest finite float32, for a user that has no vector
    and where no item is left. `assets.extra/manifest.json` is as in `export`.

    Args:
        model: The fitted factorisation.
        path: Folder to write; it must not exist.
        k: Number of items to return; positive.
        metadata: Additional JSON-ready content of the manifest, such as metrics.

    Raises:
        FileExistsError: If `path` exists, or another process is exporting to it.
        ValueError: If `k` is not positive, or two ids have the same text.

    Example:
        >>> from tfrank_sel.models.als import RGFactorizer
        >>> import pyarrow, tempfile
        >>> taken = pyarrow.table({"user": ["ann", "ann", "bob"], "item": ["x", "y", "y"]})
        >>> model = RGFactorizer(num_factors=2, regularization=0.1).fit(taken)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     factorization(model, f"{folder}/model", k=1)
        ...     served = tf.saved_model.load(f"{folder}/model").signatures["serving_default"]
        ...     served(tf.constant(["bob"]))["items"].numpy().tolist()
        [[b'x']]
    """
    if k < 1:
        raise refusal("`k` must be positive", k=k)
    users, items = model.user_factors_, model.item_factors_
    user_texts, item_texts = (
        _different(name, range(len(factors)) if ids is None else ids, len(factors))
        for name, ids, factors in (
            ("the ids of users", model.user_ids_, users),
            ("the ids of items", model.item_ids_, items),
        )
    )
    root = tf.Module()
    number, named = _table(root, "users", user_texts), _names(item_texts)
    padding = np.zeros([1, items.shape[1]], np.float32)
    vectors = [tf.Variable(np.concatenate([padding, x], dtype=np.float32)) for x in (users, items)]
    # the first row is that of a user that is unknown
    ends = tf.Variable(np.append(0, model.seen_.indptr), dtype=tf.int64)
    taken = tf.Variable(model.seen_.indices + 1, dtype=tf.int32)
    root.kept = [*vectors, ends, taken]

    def serve(user: Tensor) -> dict[str, Tensor]:
        rows = number(user)
        states = tf.gather(vectors[0], rows)
        of_user = tf.RaggedTensor.from_row_splits(taken, ends, validate=False)
        best, scores = catalogue.best_unseen(states, vectors[1], tf.gather(of_user, rows), k)
        has_vector = tf.reduce_any(states != 0.0, axis=1, keepdims=True)
        scores = tf.where(has_vector, scores, tf.float32.min)
        return {"items": named(tf.where(has_vector, best, 0)), "scores": scores}

    _write(root, serve, "user", [None], path, metadata or {})


def _different(name: str, ids: Iterable[Any], count: int) -> list[str]:
    values = list(ids)
    if others := [x for x in values if not isinstance(x, str | numbers.Integral)]:
        raise refusal(f"`{name}` must be texts, or integers", f"such as {others[0]!r}")
    texts = [str(x) for x in values]
    different = len({*texts} - {""})
    if not different == len(texts) == count:
        raise refusal(
            f"`{name}` must be {count} different texts that are not empty",
            f"{len(texts)}, of which {different} are different and not empty",
        )
    return texts


def _table(root: tf.Module, name: str, texts: Sequence[str]) -> Callable[[Tensor], Tensor]:
    """The number of a text, from 1 on; 0 for others."""
    numbers = tf.range(1, len(texts) + 1)
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(texts), numbers)
    table = tf.lookup.StaticHashTable(initializer, 0)
    setattr(root, name, table)
    return table.lookup


def _names(texts: Sequence[str]) -> Callable[[Tensor], Tensor]:
    """The text of a number; the empty one of 0."""
    names = tf.constant(["", *texts])
    return lambda numbers: tf.gather(names, numbers)


def _write(
    root: tf.Module,
    serve: Callable[[Tensor], dict[str, Tensor]],
    name: str,
    shape: list[None],
    path: StrPath,
    metadata: Mapping[str, Any],
) -> None:
    taken = [tf.TensorSpec(shape, tf.string, name=name)]
    checked = saved_model.check_shapes(serve, taken)
    served = tf.function(checked, taken, autograph=False).get_concrete_function()
    root.captured = served.variables
    with atomic_path(Path(path)) as written:
        tf.saved_model.save(root, str(written), signatures={"serving_default": served})
        saved_model.check_servable(written)
        features = {name: {"dtype": "string", "shape": shape[1:]}}
        saved_model.write_manifest(written, features, metadata)
        saved_model.write_batching(written)
