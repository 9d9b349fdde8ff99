"""Preparation layer: the transformation of features that does not depend on weights."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.features import DAY, MEAN, Category, Feature, Timestamp, Vector, check, of_config
from tfrank_sel.models.summary import (
    Moments,
    by_feature,
    compressed,
    decoded,
    told_apart,
    vocabulary,
)
from tfrank_sel.models.texts import Texts
from tfrank_sel.models.within_list import WithinList
from tfrank_sel.serialization import Configurable, register


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
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        if len(mean) != len(variance) or min(variance, default=0.0) < 0.0:
            raise ValueError(
                "`mean` and `variance` must have one value per feature, and variances must not "
                "be negative. "
                f"Received: mean={mean}, variance={variance}"
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
            raise ValueError(
                f"`mean` must have a value for each of {columns}. Received: {len(self.mean)} values"
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
        features: Mapping[str, Feature] | None = None,
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
        values = columns(types, tf.constant(rows, tf.float64)).numpy()
        if not len(rows) or np.isinf(values).any():
            received = f"{len(rows)} items, {int(np.isinf(values).sum())} infinite numbers"
            raise ValueError(
                f"`batches` must have at least one item and finite numbers. Received: {received}"
            )
        found = Moments.of(compressed(values))
        vocabularies = {}
        for texts in others:
            for name, counts in by_feature(decoded(texts), types).items():
                if isinstance(kind := types[name], Category):
                    vocabularies[name] = vocabulary(counts, kind)
        lacking = set(np.array(column_names(types))[np.isnan(values).any(axis=0)])
        return cls(
            found.mean.tolist(),
            told_apart(found.mean, found.variance()).tolist(),
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
        hot = [f"{name} is {meaning}" for name, found in one_hot.items() for meaning in found]
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
            raise ValueError(
                f"Features must have shape [batch_size, list_size, {self.num_features}]. "
                f"Received: {tuple(shape)}"
            )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Returns the prepared features, in a dict with their mask if the inputs are a dict."""
        numbers, mask = features_and_mask(inputs)
        # a float32 logarithm depends on the position in the tensor, a float64 logarithm hardly does
        x = columns(self._types, tf.cast(numbers, tf.float64))
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


def column_names(features: Mapping[str, Feature]) -> list[str]:
    """Returns a name for each of `columns`."""
    return [x for name, feature in features.items() for x in feature.columns(name)]


def columns(features: Mapping[str, Feature], numbers: tf.Tensor) -> tf.Tensor:
    """Returns the columns to standardise from the numbers of items.

    A missing number becomes the constant of its type. A timestamp becomes its age in days, or the
    sines and cosines of its time of day and day of the week.

    Args:
        features: Type of each feature.
        numbers: Raw numbers, float64 `[..., num_features]`, NaN if missing.

    Returns:
        The columns, in the order of `column_names`; NaN if missing.
    """
    widths = [len(feature.numbers(name)) for name, feature in features.items()]
    found = dict(zip(features, tf.split(numbers, widths, axis=-1), strict=True))
    parts = []
    for name, feature in features.items():
        x = found[name]
        if isinstance(feature, Timestamp):
            if feature.since is not None:
                gap = found[feature.since] - x
                parts.append(gap[..., :1] + gap[..., 1:] / DAY)
            if feature.parts:
                day, second = x[..., :1], x[..., 1:]
                # 1970-01-01 was a Thursday, and a week begins on Monday
                of_week = (tf.math.floormod(day + 3.0, 7.0) + second / DAY) / 7.0
                for turn in (second / DAY, of_week):
                    parts += [tf.sin(2.0 * np.pi * turn), tf.cos(2.0 * np.pi * turn)]
        elif not isinstance(getattr(feature, "missing", MEAN), str):
            constant = tf.constant(feature.missing, x.dtype)  # type: ignore[attr-defined]
            parts.append(tf.where(tf.math.is_nan(x), constant, x))
        else:
            parts.append(x)
    return tf.concat(parts or [numbers], axis=-1)


def _types(features: Mapping[str, Any] | None, count: int) -> dict[str, Feature]:
    if features is None:
        return {"features": Vector(size=count, within_list=True)}
    types = {
        name: found if isinstance(found, Feature) else of_config(found)
        for name, found in features.items()
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
        raise ValueError(
            "Inputs must be the features, or a dict of the features, `mask` and, if there are any, "
            f"`texts`. Received: {sorted(inputs)}"
        )
    return inputs[names[0]]
