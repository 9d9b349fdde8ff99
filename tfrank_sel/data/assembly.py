"""Assembly of training batches: the graph from serialized lists to model inputs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrank_sel.data import packed
from tfrank_sel.data.spec import FeatureSpec, ListFeatures
from tfrank_sel.data.truncation import Truncation, head, shuffled

Parse = Callable[..., dict[str, Any]]


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
        if isinstance(self.spec, FeatureSpec):
            return
        if self.parse is packed.parse:
            wanted = "`parse` must be of `tfrank_sel.data.parsing` to read `ListFeatures`"
            raise ValueError(f"{wanted}. Received: packed.parse")
        kinds = self.spec.items.items()
        sparse = [name for name, kind in kinds if isinstance(kind, tf.io.VarLenFeature)]
        if sparse and self._chooses:
            wanted = (
                "Items can be selected from a `tf.io.RaggedFeature`, but not from a `VarLenFeature`"
            )
            raise ValueError(f"{wanted}. Received: {sparse}")

    def sizes(self, serialized: tf.Tensor) -> tf.Tensor:
        """Returns the number of items of each list."""
        if isinstance(self.spec, FeatureSpec) and self.parse is packed.parse:
            return tf.cast(packed.list_sizes(serialized, self.spec), tf.int64)
        # Only the part of the parser that the mask needs is run.
        return tf.math.count_nonzero(self.parse(serialized, self.spec)[self._named.mask], axis=1)

    def sized(self, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the unchanged serialized lists, their sizes, and the indices of their edges."""
        sizes = self.sizes(serialized)
        places = tf.searchsorted(tf.constant(self.edges, tf.int64), sizes, out_type=tf.int64)
        return serialized, sizes, tf.minimum(places, len(self.edges) - 1)

    def dense(
        self,
        serialized: tf.Tensor,
        sizes: tf.Tensor,
        places: tf.Tensor,
        seed: tf.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Returns inputs and labels, and weights if there are any, from the result of `sized`."""
        longest = tf.reduce_max(sizes)
        if self.truncation is None:
            _refuse_longer(longest, self.edges[-1])
        edge = tf.gather(tf.constant(self.edges), tf.reduce_max(places))
        width = tf.maximum(edge, tf.cast(longest, tf.int32)) if self._chooses else edge
        parsed = self.parse(serialized, self.spec, list_size=width)
        mask, label = parsed[self._named.mask], self._label
        labels = tf.reshape(tf.cast(parsed[label], tf.float32), tf.shape(mask))
        parsed[label] = tf.where(mask, labels, float("nan"))
        if self._chooses:
            parsed |= self._chosen(parsed, seed)
        weight = self.spec.weight if isinstance(self.spec, FeatureSpec) else None
        weights = () if weight is None else (parsed[weight],)
        return self._selected(parsed), parsed[label], *weights

    @property
    def _named(self) -> ListFeatures:
        return self.spec.named() if isinstance(self.spec, FeatureSpec) else self.spec

    @property
    def _label(self) -> str:
        if self.spec.label is None:
            raise ValueError(f"`spec` must have a label. Received: {self.spec}")
        return self.spec.label

    @property
    def _chooses(self) -> bool:
        """Whether items may be selected other than the first ones in their order."""
        return self.shuffle_items or self.truncation not in (None, head)

    def _chosen(self, parsed: dict[str, Any], seed: tf.Tensor | None) -> dict[str, Any]:
        """The features of the kept items, in their new order."""
        items = {name: parsed[name] for name in (*self._named.items, self._named.mask)}
        mask = items[self._named.mask]
        if seed is not None:
            items = _gathered(items, shuffled(mask, tf.stack([seed, 0])))
        if self.truncation is None:
            return items
        truncation, label = self.truncation, self._label
        return tf.cond(
            tf.shape(mask)[1] > self.edges[-1],
            lambda: _gathered(items, truncation(items[label], self.edges[-1])),
            lambda: items,
        )

    def _selected(self, parsed: dict[str, Any]) -> Any:
        if self.inputs is None:
            if isinstance(self.spec, FeatureSpec):
                return parsed[self.spec.features]
            return {name: value for name, value in parsed.items() if name != self.spec.label}
        if unknown := [name for name in self.inputs if name not in parsed]:
            raise ValueError(f"`inputs` must be of {list(parsed)}. Received: {unknown}")
        return {name: parsed[name] for name in self.inputs}


def _refuse_longer(longest: tf.Tensor, edge: int) -> None:
    message = f"a list must have at most {edge} items (the last bucket edge), or set `truncation`"
    tf.debugging.Assert(longest <= edge, [message, "Received:", longest])


def _gathered(items: dict[str, Any], positions: tf.Tensor) -> dict[str, Any]:
    return {name: tf.gather(values, positions, batch_dims=1) for name, values in items.items()}
