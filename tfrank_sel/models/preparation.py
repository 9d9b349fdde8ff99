"""Preparation layer: the transformation of features that does not depend on weights."""

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import compilation, keras_versions
from tfrank_sel.canonical_text import SPELLINGS, canonical
from tfrank_sel.errors import refusal
from tfrank_sel.features import (
    Category,
    Feature,
    FeatureTypes,
    Hash,
    Vector,
    check,
    of_config,
)
from tfrank_sel.keras_versions import LayerOptions
from tfrank_sel.models.summary import (
    Moments,
    by_feature,
    column_names,
    columns,
    compress,
    decode_texts,
    distinguishable,
    joined_columns,
    vocabulary,
)
from tfrank_sel.ops import layout
from tfrank_sel.serialization import Configurable, register


class Texts(tf.Module):
    """Conversion of texts to one-hot numbers and to integers: see `Preparation`.

    Args:
        features: Type of each feature, by name.
        vocabularies: The values of each `Category` and `Set`.

    Raises:
        ValueError: If a vocabulary is missing or empty, or has an empty value or one with a line
            break.
    """

    def __init__(self, features: FeatureTypes, vocabularies: Mapping[str, Sequence[str]]) -> None:
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
        words = {}
        for name, kind in self._types.items():
            if kind.encoding == encoding:
                hashed = kind.out_of_vocabulary if isinstance(kind, Category) else kind.buckets
                others = [f"hash {place} of {hashed}" for place in range(hashed)]
                values = [f"value {value}" for value in vocabularies.get(name, ())]
                words[name] = ["missing", *others, *values]
        return words

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
            integers = self._ids(name, part)
            if kind.encoding == "embedding":
                ids.append(tf.cast(integers, tf.float32))
            else:
                # 0 is a missing value, which is also one-hot, except among other values of a set
                each = tf.one_hot(integers, self._sizes[name])
                each = tf.reduce_max(each, axis=-2)
                is_none = tf.reduce_all(integers == 0, axis=-1, keepdims=True)
                first = tf.cast(is_none, tf.float32)
                hot.append(tf.concat([first, each[..., 1:]], axis=-1))
        return tf.concat([*hot, *ids], axis=-1)

    def _ids(self, name: str, texts: tf.Tensor) -> tf.Tensor:
        kind = self._types[name]
        if isinstance(kind, Category):
            others = kind.out_of_vocabulary
            index = self._tables[name].lookup(texts)
            in_vocabulary = index + 1 + others
            unknown = 1 + tf.strings.to_hash_bucket_fast(texts, others)
            integers = tf.where(index < 0, unknown, in_vocabulary)
        else:
            integers = 1 + tf.strings.to_hash_bucket_fast(texts, kind.buckets)
        return tf.where(texts == "", tf.zeros_like(integers), integers)

    def _table(self, name: str, values: Sequence[str]) -> tf.lookup.StaticHashTable:
        if not values or any(not value or "\n" in value or "\r" in value for value in values):
            expected = (
                f"the vocabulary of {name!r} must be non-empty, without empty values or line breaks"
            )
            raise refusal(expected, list(values)[:10])
        # a table reads a file, so that an export contains it as an asset
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.txt"
        # texts are looked up as they are spelled; an earlier vocabulary may have several spellings
        lines = {canonical(value): place for place, value in reversed([*enumerate(values)])}
        spellings = enumerate(map(canonical, values))
        keys = [x if lines[x] == place else f"\uffff{place}" for place, x in spellings]
        path.write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")
        whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        source = tf.lookup.TextFileInitializer(str(path), tf.string, whole, tf.int64, number)
        return tf.lookup.StaticHashTable(source, default_value=-1)


FARTHEST = 4.0
ROUNDING = 1e-5  # of the largest value of a list: a smaller deviation of its values is no spread
# longest lists for which items are counted one by one, in a loop that XLA compiles best
COUNTED, COUNTED_BY_XLA = 128, 1024


@register
class WithinList(Configurable, keras.layers.Layer):
    """Appends to each feature its value relative to the other items of its list.

    For each feature `x` of a list of `n` items:

    ```
    z_i = (x_i - mean(x)) / deviation(x), clipped to [-4, 4]
    r_i = (#{j: x_j < x_i} - #{j: x_j > x_i}) / (n - 1)
    ```

    so that the largest value of a list has `r` = 1 and the smallest -1. Both are 0 if all items are
    equal. A relevant item is often one that is better than the rest of its list; a scorer of single
    items cannot detect this. Time grows with `n log n`, and memory with `n`.

    Args:
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Inputs: features of shape `[batch_size, list_size, num_features]`, and a mask
    `[batch_size, list_size]`, True for an item; padding is ignored.

    Outputs: `[batch_size, list_size, 3 * num_features]`, float32: `x`, `z` and `r`; 0 at padding.

    Example:
        >>> features = tf.constant([[[1.0], [3.0], [0.0]]])
        >>> mask = tf.constant([[True, True, False]])
        >>> WithinList()(features, mask).numpy().tolist()
        [[[1.0, -1.0, -1.0], [3.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]
    """

    def __init__(self, name: str = "within_list", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(name=name, autocast=False, **kwargs)

    def call(self, features: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the features and their values relative to the list."""
        is_item = mask[..., tf.newaxis]
        size = tf.reduce_sum(tf.cast(is_item, tf.float32), axis=1, keepdims=True)
        x = tf.where(is_item, tf.cast(features, tf.float32), 0.0)
        ranks = _ranks_in_graph(x, is_item, size)
        z = tf.cast(standardise(x, is_item), tf.float32)
        return tf.concat([x, tf.clip_by_value(z, -FARTHEST, FARTHEST), ranks], axis=-1)

    def compute_output_shape(
        self, features_shape: Any, mask_shape: Any = None
    ) -> tuple[int | None, ...]:
        """Returns the shape of the output: three times the features."""
        return (*features_shape[:-1], 3 * features_shape[-1])


def standardise(x: tf.Tensor, is_item: tf.Tensor) -> tf.Tensor:
    """Returns `(x - mean) / deviation` over the items of each list, axis 1, in float64.

    It is 0 at padding, and for all items of a list whose values differ by no more than rounding:
    scores of equal items do so in the last bits.
    """
    # a sum in float32 depends on the amount of padding, a sum in float64 does not
    exact = tf.where(is_item, tf.cast(x, tf.float64), tf.zeros([], tf.float64))
    size = tf.reduce_sum(tf.cast(is_item, tf.float64), axis=1, keepdims=True)
    gaps = tf.where(is_item, exact - _mean(exact, size), tf.zeros_like(exact))
    variance = _mean(gaps**2, size)
    is_spread = variance > (ROUNDING * tf.reduce_max(tf.abs(exact), axis=1, keepdims=True)) ** 2
    # the root has no gradient at 0
    deviation = tf.sqrt(tf.where(is_spread, variance, tf.ones_like(variance)))
    return tf.where(is_spread, gaps / deviation, tf.zeros_like(gaps))


def _mean(values: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.reduce_sum(values, axis=1, keepdims=True), size)


def _centred_ranks(x: tf.Tensor, is_item: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """The number of items below less the number above, as a share of the other items."""
    # padding sorts above every item, so that it can be subtracted again
    x = tf.stop_gradient(tf.where(is_item, x, x.dtype.max))
    count = tf.shape(x)[1]
    longest = COUNTED_BY_XLA if keras_versions.is_compiled_by_xla() else COUNTED
    total = tf.cond(
        count <= longest, lambda: _rank_by_count(x, count), lambda: _rank_by_sort(x, count)
    )
    total += tf.cast(count, x.dtype) - size
    return tf.where(is_item, tf.math.divide_no_nan(total, size - 1.0), 0.0)


# one by one, the operations of the loop below would take most of the time of an eager call
_ranks_in_graph = compilation.in_graph("centred ranks", _centred_ranks)


def _rank_by_count(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The number of items below less the number above, counted item by item."""
    if layout.is_wide() and keras_versions.is_compiled_by_xla():
        # XLA compares and sums in one kernel, and holds no array of pairs
        return tf.reduce_sum(tf.sign(x[:, :, tf.newaxis] - x[:, tf.newaxis]), axis=2)

    def add(j: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return j + 1, total + tf.sign(x - x[:, j, tf.newaxis])

    return tf.while_loop(lambda j, total: j < count, add, (0, tf.zeros_like(x)))[1]


def _rank_by_sort(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The same numbers by sorting, from the first and last place of each group of equal values."""
    rows = tf.transpose(x, [0, 2, 1])
    order = tf.argsort(rows, axis=-1)
    ordered = tf.gather(rows, order, batch_dims=2)
    begins = tf.concat(
        [tf.ones_like(ordered[..., :1], tf.bool), ordered[..., 1:] > ordered[..., :-1]], axis=-1
    )
    rank = tf.broadcast_to(tf.range(count), tf.shape(order))
    group = tf.cumsum(tf.cast(tf.reshape(begins, [-1]), tf.int32)) - 1
    first, last = (
        tf.gather(segment(tf.reshape(rank, [-1]), group, tf.size(group)), group)
        for segment in (tf.math.unsorted_segment_min, tf.math.unsorted_segment_max)
    )
    row = tf.range(tf.size(group)) // tf.maximum(count, 1) * count
    origin = row + tf.reshape(order, [-1])
    total = tf.scatter_nd(origin[:, tf.newaxis], first + last + 1 - count, [tf.size(group)])
    return tf.transpose(tf.cast(tf.reshape(total, tf.shape(rows)), x.dtype), [0, 2, 1])


@register
class Preparation(Configurable, keras.layers.Layer):
    """Transforms the features of items into the inputs of a network, without weights.

    A number `x` becomes

    ```
    u = (sign(x) * log(1 + abs(x)) - mean) / sqrt(variance)
    ```

    (0 if it is missing or the variance is 0). The following columns are appended, in this order:
    with `within_list`, `WithinList` of `u` for the features whose type requests it; for each
    feature with missing values in training, an indicator (1 if missing, else 0); one-hot text
    features; and the integers of features with an embedding, as numbers: see `embeddings`.

    It has no weights, so you can run it once before training and cache the results. The result for
    a list does not depend on padding or on the other lists of the batch, to the last bit.

    Args:
        mean: Mean of each number after compression, one for each of the `columns` of all features;
            see `moments`.
        variance: Variance of each number after compression.
        within_list: Whether to append the values of items relative to their list.
        features: Type of each feature by name, of `tfrank_sel.features`, or its `config()`. None if
            all are numbers that are never missing.
        vocabularies: The values of each `Category` and `Set`, by name, most frequent first. An
            export writes them to files in `assets`.
        missing: Names of the features with missing values in training.
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Attributes:
        embeddings: For each feature with an embedding: its number of columns among the last
            numbers, the number of integers, and the size of the embedding, for `Perceptron`.

    Inputs: numbers of shape `[batch_size, list_size, num_features]`; or a dict of these, under any
    name, `mask` `[batch_size, list_size]`, True for an item, and, if there are text features,
    `texts` `[batch_size, list_size, num_texts]`.

    Outputs: prepared features `[batch_size, list_size, width]`, float32, where `width` is
    `num_features`, or three times that with `within_list`, if there are no types; or a dict of
    `features` and `mask`.

    Raises:
        ValueError: If `mean` and `variance` do not have a value for each number, a variance is
            negative, or a vocabulary is missing or empty.

    Example:
        >>> preparation = Preparation([0.0], [1.0], within_list=True)
        >>> tuple(preparation(tf.zeros([3, 5, 1])).shape)
        (3, 5, 3)
    """

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        within_list: bool = False,
        features: Mapping[str, Any] | None = None,
        vocabularies: Mapping[str, Sequence[str]] | None = None,
        missing: Sequence[str] = (),
        name: str = "preparation",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        if len(mean) != len(variance) or min(variance, default=0.0) < 0.0:
            raise refusal(
                "`mean` and `variance` must have one value per feature, and variances must not be "
                "negative",
                f"mean={mean}, variance={variance}",
            )
        self.mean = [float(value) for value in mean]
        self.variance = [float(value) for value in variance]
        self.within_list = within_list
        self.vocabularies = vocabularies and {name: [*x] for name, x in vocabularies.items()}
        self.missing = list(missing)
        self._types = _types(features, len(self.mean))
        self.features = features and {name: kind.config() for name, kind in self._types.items()}
        columns = column_names(self._types)
        if len(columns) != len(self.mean):
            raise refusal(
                f"`mean` must have a value for each of {columns}", f"{len(self.mean)} values"
            )
        self._standing = np.flatnonzero(
            [getattr(f, "within_list", False) for n, f in self._types.items() for _ in f.columns(n)]
        )
        firsts = [columns.index(self._types[name].columns(name)[0]) for name in self.missing]
        self._indicated = np.array(firsts, int)
        self._places = WithinList() if within_list and len(self._standing) else None
        self._texts = Texts(self._types, self.vocabularies or {})

    @classmethod
    def of(
        cls,
        batches: Iterable[tuple[Any, ...]],
        features: FeatureTypes | None = None,
        within_list: bool = True,
    ) -> Self:
        """Returns a preparation with the moments and vocabularies of a dataset.

        Args:
            batches: Batches of inputs of this layer, with their mask, such as those of
                `tfrank_sel.data.frames.dataset`; further elements are ignored. They are held in
                memory.
            features: Type of each feature.
            within_list: Whether to append the values of items relative to their list.

        Raises:
            ValueError: If there is no item, a number is infinite, or a vocabulary is empty.

        Example:
            >>> from tfrank_sel.models import moments
            >>> inputs = {"features": tf.constant([[[0.0], [3.0]]]), "mask": tf.ones([1, 2], bool)}
            >>> Preparation.of([(inputs, None)]).mean == moments([[0.0], [3.0]])[0]
            True
        """
        parts = [
            [x.numpy()[inputs["mask"].numpy()] for x in (_features(inputs), inputs.get("texts", ()))
             if len(x)]
            for inputs, *_ in batches
        ]  # fmt: skip
        rows, *others = (np.concatenate(x) for x in zip(*parts, strict=True))
        types = _types(features, rows.shape[1])
        values = joined_columns(types, rows)
        if not len(rows) or np.isinf(values).any():
            received = f"{len(rows)} items, {int(np.isinf(values).sum())} infinite numbers"
            raise refusal("`batches` must have at least one item and finite numbers", received)
        moments = Moments.of(compress(values))
        vocabularies = {}
        for texts in others:
            for name, counts in by_feature(decode_texts(texts), types).items():
                if isinstance(kind := types[name], Category):
                    vocabularies[name] = vocabulary(counts, kind)
        lacking = set(np.array(column_names(types))[np.isnan(values).any(axis=0)])
        return cls(
            moments.mean.tolist(),
            distinguishable(moments.mean, moments.variance()).tolist(),
            within_list,
            features,
            vocabularies or None,
            [name for name, feature in types.items() if lacking & {*feature.columns(name)}],
        )

    @property
    def embeddings(self) -> list[list[int]]:
        """The numbers, integers and size of each embedding: see `Perceptron`."""
        return self._texts.embeddings

    @property
    def looked_up(self) -> dict[str, list[str]]:
        """The meaning of each integer of each of the `embeddings`, by feature name."""
        return self._texts.meanings("embedding", self.vocabularies or {})

    @property
    def names(self) -> list[str]:
        """A name for each prepared feature except the integers of the `embeddings`."""
        numbers = column_names(self._types)
        kinds = ("standing", "rank") if self._places is not None else ()
        relative = [f"{kind} of {numbers[i]}" for kind in kinds for i in self._standing]
        indicators = [f"missing {name}" for name in self.missing]
        one_hot = self._texts.meanings("one_hot", self.vocabularies or {})
        hot = [f"{name} is {meaning}" for name, meanings in one_hot.items() for meaning in meanings]
        return [*(f"number {name}" for name in numbers), *relative, *indicators, *hot]

    @property
    def num_features(self) -> int:
        """Number of raw numbers of an item."""
        return sum(len(feature.numbers(name)) for name, feature in self._types.items())

    @property
    def width(self) -> int:
        """Number of prepared features."""
        standing = 2 * len(self._standing) if self._places is not None else 0
        return len(self.mean) + standing + len(self.missing) + self._texts.width

    def build(self, input_shape: Any) -> None:
        """Checks the number of features."""
        shape = features_shape(input_shape)
        if shape[-1] != self.num_features:
            raise refusal(
                f"Features must have shape [batch_size, list_size, {self.num_features}]",
                tuple(shape),
            )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Returns the prepared features, in a dict with their mask if the inputs are a dict."""
        numbers, mask = features_and_mask(inputs)
        # a float32 logarithm depends on the position in the tensor, a float64 logarithm hardly does
        x = tf.concat(columns(self._types, tf.cast(numbers, tf.float64), tf), axis=-1)
        is_missing = tf.math.is_nan(x)
        x = tf.sign(x) * tf.math.log1p(tf.abs(x)) - tf.constant(self.mean, tf.float64)
        deviation = np.sqrt(np.asarray(self.variance))
        values = tf.cast(tf.math.divide_no_nan(x, deviation), tf.float32)
        values = tf.where(is_missing, tf.zeros_like(values), values)
        parts = [self._with_standing(values, mask)]
        if len(self._indicated):
            indicated = tf.gather(is_missing, self._indicated, axis=-1) & mask[..., tf.newaxis]
            parts.append(tf.cast(indicated, tf.float32))
        if self._texts.width:
            parts.append(self._texts(inputs["texts"]))
        prepared = tf.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
        return {"features": prepared, "mask": mask} if isinstance(inputs, Mapping) else prepared

    def _with_standing(self, values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        if self._places is None:
            return values
        count = len(self._standing)
        if count == len(self.mean):
            return self._places(values, mask)
        among = self._places(tf.gather(values, self._standing, axis=-1), mask)
        values = tf.where(mask[..., tf.newaxis], values, 0.0)
        return tf.concat([values, among[..., count:]], axis=-1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the prepared features, in a dict if the inputs are a dict."""
        shape = (*features_shape(input_shape)[:-1], self.width)
        if isinstance(input_shape, Mapping):
            return {"features": shape, "mask": input_shape["mask"]}
        return shape


def _types(features: Mapping[str, Any] | None, count: int) -> dict[str, Feature]:
    if features is None:
        return {"features": Vector(size=count, within_list=True)}
    types = {
        name: kind if isinstance(kind, Feature) else of_config(kind)
        for name, kind in features.items()
    }
    check(types)
    return types


def features_and_mask(inputs: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns features and mask from the inputs of a list scorer."""
    if isinstance(inputs, Mapping):
        return _features(inputs), tf.cast(inputs["mask"], tf.bool)
    if isinstance(inputs, tf.RaggedTensor):
        raise ValueError(
            "Features must be dense: pad them and give a mask, {'features': x.to_tensor(), 'mask': "
            f"tf.sequence_mask(x.row_lengths())}}. Received a ragged tensor: {inputs.shape}"
        )
    return inputs, tf.ones(tf.shape(inputs)[:2], tf.bool)


def inputs_of(model: Any, inputs: Any) -> Any:
    """Returns what a model takes of the inputs of a list scorer: the features if it has no mask."""
    return inputs if getattr(model, "takes_mask", False) else features_and_mask(inputs)[0]


def features_shape(input_shape: Any) -> Any:
    """Returns the shape of the features, given the shapes of the inputs."""
    return _features(input_shape) if isinstance(input_shape, Mapping) else input_shape


def _features(inputs: Mapping[str, Any]) -> Any:
    names = [name for name in inputs if name not in ("mask", "texts")]
    if len(names) != 1 or "mask" not in inputs:
        raise refusal(
            "Inputs must be the features, or a dict of the features, `mask` and, if there are "
            "any, `texts`",
            sorted(inputs),
        )
    return inputs[names[0]]


class ScoresItems:
    """Mixin of the models that give a score to each item, from its features."""

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores: the shape of the features without the last axis."""
        return tuple(features_shape(input_shape)[:-1])
