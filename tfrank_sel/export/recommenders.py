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
    number, named = lookup(root, "items", texts), names(texts)

    def serve(history: Tensor) -> dict[str, Tensor]:
        best, scores = encoder.best(number(history), k)
        return {"items": named(best), "scores": scores}

    history = tf.TensorSpec([None, None], tf.string, name="history")
    write(root, {"serving_default": (serve, [history])}, path, metadata)


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
    number, named = lookup(root, "users", user_texts), names(item_texts)
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

    user = tf.TensorSpec([None], tf.string, name="user")
    write(root, {"serving_default": (serve, [user])}, path, metadata)


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


def lookup(root: tf.Module, name: str, texts: Sequence[str]) -> Callable[[Tensor], Tensor]:
    """Returns a function from texts to their numbers, from 1 on; 0 for others.

    Args:
        root: The module that holds the table.
        name: Name of the table in it.
        texts: Different texts.
    """
    numbers = tf.range(1, len(texts) + 1)
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(texts), numbers)
    table = tf.lookup.StaticHashTable(initializer, 0)
    setattr(root, name, table)
    return table.lookup


def names(texts: Sequence[str]) -> Callable[[Tensor], Tensor]:
    """Returns a function from numbers to their texts; the empty one of 0."""
    with_empty = tf.constant(["", *texts])
    return lambda numbers: tf.gather(with_empty, numbers)


def write(
    root: tf.Module,
    endpoints: Mapping[str, tuple[Callable[..., dict[str, Tensor]], Sequence[tf.TensorSpec]]],
    path: StrPath,
    metadata: Mapping[str, Any] | None,
) -> None:
    """Writes a SavedModel with its manifest.

    Args:
        root: The module that holds its tables.
        endpoints: Function of each signature, by name, and the tensors that it takes, of which the
            manifest describes all.
        path: Folder to write; it must not exist.
        metadata: Additional content of the manifest.

    Raises:
        FileExistsError: If `path` exists, or another process is exporting to it.
    """
    served, features = {}, {}
    for name, (serve, taken) in endpoints.items():
        checked = saved_model.check_shapes(serve, taken)
        served[name] = tf.function(checked, taken, autograph=False).get_concrete_function()
        for x in taken:
            features[x.name] = {"dtype": x.dtype.name, "shape": x.shape.as_list()[1:]}
    root.captured = [variable for x in served.values() for variable in x.variables]
    with atomic_path(Path(path)) as written:
        tf.saved_model.save(root, str(written), signatures=served)
        saved_model.check_servable(written)
        saved_model.write_manifest(written, features, metadata or {})
        saved_model.write_batching(written)
