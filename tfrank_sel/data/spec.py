"""Specifications of stored lists: packed features under one name, or named features."""

import collections
import dataclasses
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tfrank_sel import lazy
from tfrank_sel.arguments import Checked
from tfrank_sel.errors import received, refusal
from tfrank_sel.features import REFUSE, Vector
from tfrank_sel.serialization import Configurable, register

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = lazy.Module("tensorflow")

_NO_IDENTIFIER = re.compile(rb"[^A-Za-z0-9_]|^[0-9_]|U(?=_[0-9A-F]{2})")
_ESCAPED_OR_CAPITAL = re.compile(r"U_[0-9A-F]{2}|[A-Z]")
# Functions of TensorFlow have no arguments of these names, and the mask is a separate input.
_RESERVED = (*keyword.kwlist, "self", "mask")


@register
@dataclasses.dataclass(frozen=True)
class FeatureSpec(Configurable):
    """The contract between stored examples, model and served signatures.

    An example is one list: a query and its items. In an `ExampleListWithContext` the context holds
    `query_id` (bytes), and each item holds `features` (`num_features` floats in one packed list),
    `label` (one float; absent in serving) and `doc_id` (bytes; optional). In the packed layout of
    training records, one `tf.train.Example` holds all of these, and the texts and weights of items
    if there are any: see `tfrank_sel.data.packed`.

    Args:
        num_features: Number of floats of an item.
        features: Name of an item's packed features.
        label: Name of an item's relevance label.
        doc_id: Name of an item's identifier.
        query_id: Name of the query's identifier, in the context.
        num_texts: Number of texts of an item, in addition to the floats.
        texts: Name of an item's texts.
        weight: Name of an item's weight; None if items have none.

    Raises:
        ValueError: If there is no float and no text, a number is negative, or two names are equal.
    """

    num_features: int
    features: str = "features"
    label: str = "relevance"
    doc_id: str = "doc_id"
    query_id: str = "query_id"
    num_texts: int = 0
    texts: str = "texts"
    weight: str | None = None

    def __post_init__(self) -> None:
        if self.num_texts < 0:
            raise refusal("`num_texts` must not be negative", self.num_texts)
        if self.num_features < (0 if self.num_texts else 1):
            expected = "`num_features` must be positive, or 0 together with texts"
            raise refusal(expected, self.num_features)
        names = (self.features, self.label, self.doc_id, self.query_id, self.texts, self.weight)
        if len(set(names)) < len(names):
            raise refusal("The names of a `FeatureSpec` must differ", names)

    @property
    def types(self) -> dict[str, Vector]:
        """The features of the schema that this is a short form of: one vector, as in LETOR files.

        Example:
            >>> list(FeatureSpec(num_features=136).types)
            ['features']
        """
        return {self.features: Vector(size=self.num_features, missing=REFUSE, within_list=True)}

    def check(
        self,
        features: Any,
        labels: npt.ArrayLike | None = None,
        doc_ids: npt.ArrayLike | None = None,
        texts: Any = None,
        weights: Any = None,
    ) -> np.ndarray:
        """Returns the features of a list as float32, after checking the sizes of its parts.

        Args:
            features: Features of the items, of shape `[list_size, num_features]`.
            labels: Relevance labels, of length `list_size`, or None.
            doc_ids: Identifiers of the items, `list_size` of them, or None.
            texts: Texts of the items, `[list_size, num_texts]`; None if `num_texts` is 0.
            weights: Weight of each item, `[list_size]`, if `weight` is set; None for 1.

        Raises:
            ValueError: If a part does not have its size above, weights have no name, or a feature
                is beyond float32.

        Example:
            >>> FeatureSpec(num_features=2).check([[1, 2]], labels=[1.0, 0.0])
            Traceback (most recent call last):
            ValueError: `labels` must have length 1. Received: 2
        """
        features = narrow(self.features, features)
        if features.ndim != 2 or features.shape[1] != self.num_features:
            shape = f"[list_size, {self.num_features}]"
            raise refusal(f"`features` must have shape {shape}", features.shape)
        size = len(features)
        for name, values in (("labels", labels), ("doc_ids", doc_ids)):
            if values is not None and (received_shape := np.shape(values)) != (size,):
                got = received_shape[0] if len(received_shape) == 1 else f"shape {received_shape}"
                raise refusal(f"`{name}` must have length {size}", got)
        of_texts = (size, self.num_texts)
        if (self.num_texts or texts is not None) and np.shape(texts) != of_texts:
            raise refusal(f"`texts` must have shape {of_texts}", np.shape(texts))
        if weights is not None and (self.weight is None or np.shape(weights) != (size,)):
            expected = f"`weights` must have shape {(size,)}, and `spec` a name for them"
            raise refusal(expected, np.shape(weights), self)
        return features

    def list_features(self) -> "ListFeatures":
        """Returns the parts as named features, as in an `ExampleListWithContext`.

        Example:
            >>> list(FeatureSpec(num_features=2).list_features().items)
            ['features', 'relevance', 'doc_id']
        """
        text = tf.io.FixedLenFeature([], tf.string, "")
        items = {
            self.features: tf.io.FixedLenFeature([self.num_features], tf.float32),
            self.label: tf.io.FixedLenFeature([], tf.float32, float("nan")),
            self.doc_id: text,
        }
        if self.num_texts:
            items[self.texts] = tf.io.FixedLenFeature([self.num_texts], tf.string)
        padding = {}
        if self.weight is not None:
            items[self.weight] = tf.io.FixedLenFeature([], tf.float32, 1.0)
            padding[self.weight] = 0.0
        return ListFeatures(items, {self.query_id: text}, padding, label=self.label)


def narrow(name: str, values: Any) -> np.ndarray:
    """Returns numbers as little-endian float32, where no finite one becomes infinite.

    Args:
        name: Name of the numbers, for errors.
        values: The numbers.

    Raises:
        ValueError: If a number is beyond float32.

    Example:
        >>> narrow("price", [1e300])
        Traceback (most recent call last):
        ValueError: 'price' must be within float32. Received: 1e+300
    """
    with np.errstate(over="ignore"):
        array = np.asarray(values, "<f4")
    if array is not values and (is_infinite := np.isinf(array)).any():
        infinite = np.asarray(values, np.float64)[is_infinite]
        if np.isfinite(infinite).any():
            raise refusal(f"{name!r} must be within float32", infinite[np.isfinite(infinite)][0])
    return array


@dataclasses.dataclass(frozen=True)
class ListFeatures(Checked):
    """The features of a list by name: those of the query, and those of the items.

    Args:
        items: Features of an item: `tf.io.FixedLenFeature`, `VarLenFeature` or `RaggedFeature` by
            name. An item must have each `FixedLenFeature` that has no default.
        context: Features of the query, in the same form.
        padding: Padding value, by the name of a `FixedLenFeature` of an item, in its shape or a
            scalar. By default it is the default of the feature, if any, else 0 or the empty string.
        mask: Name under which the mask is returned.
        size: Name under which the number of items is returned.
        label: Name of an item's relevance label, one of the `FixedLenFeature` of an item. Required
            for training batches.

    Raises:
        ValueError: If `items` is empty, if two names are equal, or if `padding` or `label` names
            another feature.
        TypeError: If a feature is not one of these three kinds.

    Example:
        >>> label = tf.io.FixedLenFeature([], tf.float32)  # each item has one; NaN at padding
        >>> features = ListFeatures({"relevance": label}, padding={"relevance": float("nan")})
        >>> float(features.padding_value("relevance"))
        nan
    """

    items: Mapping[str, Any]
    context: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    padding: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mask: str = "mask"
    size: str = "size"
    label: str | None = None

    def __post_init__(self) -> None:
        if not self.items:
            raise refusal("`items` must name at least one feature", "none")
        names = [*self.items, *self.context, self.mask, self.size]
        if len(set(names)) < len(names):
            raise refusal("The names of `ListFeatures` must differ", names)
        kinds = (tf.io.FixedLenFeature, tf.io.VarLenFeature, tf.io.RaggedFeature)
        for name, feature in [*self.items.items(), *self.context.items()]:
            if not isinstance(feature, kinds):
                expected = "a tf.io.FixedLenFeature, VarLenFeature or RaggedFeature"
                raise TypeError(received(f"{name!r} must be {expected}", repr(feature)))
        fixed = [n for n, f in self.items.items() if isinstance(f, tf.io.FixedLenFeature)]
        for name in self.padding:
            if name not in fixed:
                raise refusal(f"`padding` must name some of {fixed}", repr(name))
        if self.label is not None and self.label not in fixed:
            raise refusal(f"`label` must be one of {fixed}", repr(self.label))

    def padding_value(self, name: str) -> "tf.Tensor":
        """Returns the padding value of a `FixedLenFeature` of an item."""
        feature = self.items[name]
        value = self.padding.get(name, feature.default_value)
        if value is None:
            return tf.zeros([], feature.dtype)
        value = tf.convert_to_tensor(value, feature.dtype)
        return value if value.shape.rank == 0 else tf.reshape(value, feature.shape)


def input_name(name: str) -> str:
    """Returns the name of a feature as an input of a signature, which is an identifier.

    All other bytes become `U_` and two digits, so that `of_input_name` can restore the name.

    Args:
        name: Any name.

    Example:
        >>> input_name("price"), input_name("unit price")
        ('price', 'unitU_20price')
    """

    def escape(match: re.Match[bytes]) -> bytes:
        return b"U_%02X" % match[0][0]

    identifier = _NO_IDENTIFIER.sub(escape, name.encode()).decode()
    if identifier in _RESERVED:
        return f"U_{ord(name[0]):02X}{identifier[1:]}"
    return identifier


def input_names(names: Iterable[str]) -> dict[str, str]:
    """Returns the `input_name` of each feature of a signature.

    A signature does not distinguish upper case: capitals are escaped in names that differ by case
    only, also from `mask`.

    Example:
        >>> input_names(["ctr", "CTR", "Price"])
        {'ctr': 'ctr', 'CTR': 'U_43U_54U_52', 'Price': 'Price'}
    """
    inputs = {name: input_name(name) for name in names}
    counts = collections.Counter(x.lower() for x in (*inputs.values(), "mask"))
    for name, x in inputs.items():
        if counts[x.lower()] > 1:
            inputs[name] = _ESCAPED_OR_CAPITAL.sub(_escaped_capital, x)
    return inputs


def _escaped_capital(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else f"U_{ord(match[0]):02X}"


def of_input_name(name: str) -> str:
    """Returns the name of a feature from the name of its input.

    Args:
        name: Result of `input_name`.

    Example:
        >>> of_input_name(input_name("Höhe (cm)"))
        'Höhe (cm)'
    """
    octets = re.sub(rb"U_([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), name.encode())
    return octets.decode("utf-8", "replace")
