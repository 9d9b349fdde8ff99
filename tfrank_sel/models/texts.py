"""Text features as integers, by vocabularies and hashes."""

import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from tfrank_sel.features import Category, Feature, Hash
from tfrank_sel.spelling import SPELLINGS, spelled


class Texts(tf.Module):
    """Conversion of texts to one-hot numbers and to integers: see `Preparation`.

    Args:
        features: Type of each feature, by name.
        vocabularies: The values of each `Category` and `Set`.

    Raises:
        ValueError: If a vocabulary is missing or empty, or has an empty value or one with a line
            break.
    """

    def __init__(
        self, features: Mapping[str, Feature], vocabularies: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__()
        self._types = {
            name: kind for name, kind in features.items() if isinstance(kind, (Category, Hash))
        }
        self._tables = {
            name: self._table(name, vocabularies.get(name, ()))
            for name, kind in self._types.items()
            if isinstance(kind, Category)
        }
        self._sizes = {
            name: kind.ids(len(vocabularies.get(name, ()))) for name, kind in self._types.items()
        }

    @property
    def embeddings(self) -> list[list[int]]:
        """For each embedding: integers per item, number of integers, and size."""
        return [
            [len(kind.texts(name)), self._sizes[name], kind.dimension]
            for name, kind in self._types.items()
            if kind.encoding == "embedding"
        ]

    def meanings(
        self, encoding: str, vocabularies: Mapping[str, Sequence[str]]
    ) -> dict[str, list[str]]:
        """Returns the meaning of each integer, for each feature of an encoding."""
        found = {}
        for name, kind in self._types.items():
            if kind.encoding == encoding:
                hashed = kind.out_of_vocabulary if isinstance(kind, Category) else kind.buckets
                others = [f"hash {place} of {hashed}" for place in range(hashed)]
                values = [f"value {value}" for value in vocabularies.get(name, ())]
                found[name] = ["missing", *others, *values]
        return found

    @property
    def width(self) -> int:
        """Number of numbers made from the texts of an item."""
        hot = (self._sizes[n] for n, kind in self._types.items() if kind.encoding == "one_hot")
        return sum(hot) + sum(count for count, _, _ in self.embeddings)

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns one-hot features, and then integers, all float32."""
        for pattern, text in SPELLINGS:
            texts = tf.strings.regex_replace(texts, pattern, text)
        widths = [len(kind.texts(name)) for name, kind in self._types.items()]
        hot, ids = [], []
        parts = tf.split(texts, widths, axis=-1)
        for (name, kind), part in zip(self._types.items(), parts, strict=True):
            found = self._ids(name, part)
            if kind.encoding == "embedding":
                ids.append(tf.cast(found, tf.float32))
            else:
                # 0 is a missing value, which is also one-hot, except beside other values of a set
                each = tf.one_hot(found, self._sizes[name])
                each = tf.reduce_max(each, axis=-2)
                is_none = tf.reduce_all(found == 0, axis=-1, keepdims=True)
                first = tf.cast(is_none, tf.float32)
                hot.append(tf.concat([first, each[..., 1:]], axis=-1))
        return tf.concat([*hot, *ids], axis=-1)

    def _ids(self, name: str, texts: tf.Tensor) -> tf.Tensor:
        kind = self._types[name]
        if isinstance(kind, Category):
            others = kind.out_of_vocabulary
            place = self._tables[name].lookup(texts)
            known = place + 1 + others
            unknown = 1 + tf.strings.to_hash_bucket_fast(texts, others)
            found = tf.where(place < 0, unknown, known)
        else:
            found = 1 + tf.strings.to_hash_bucket_fast(texts, kind.buckets)
        return tf.where(texts == "", tf.zeros_like(found), found)

    def _table(self, name: str, values: Sequence[str]) -> tf.lookup.StaticHashTable:
        if not values or any(not value or "\n" in value or "\r" in value for value in values):
            wanted = (
                f"the vocabulary of {name!r} must be non-empty, without empty values or line breaks"
            )
            raise ValueError(f"{wanted}. Received: {list(values)[:10]}")
        # a table reads a file, so that an export contains it as an asset
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.txt"
        # texts are looked up as they are spelled; an earlier vocabulary may have several spellings
        lines = {spelled(value): place for place, value in reversed([*enumerate(values)])}
        found = enumerate(map(spelled, values))
        keys = [x if lines[x] == place else f"\uffff{place}" for place, x in found]
        path.write_text("".join(f"{key}\n" for key in keys))
        whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        source = tf.lookup.TextFileInitializer(str(path), tf.string, whole, tf.int64, number)
        return tf.lookup.StaticHashTable(source, default_value=-1)
