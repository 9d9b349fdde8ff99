"""Warm start: weights of a trained model for a new one, which may take more features."""

from collections.abc import Sequence

import keras
import numpy as np

from tfrank_sel.errors import refusal
from tfrank_sel.models.preparation import Preparation
from tfrank_sel.models.scorers import Ensemble, Perceptron, Prepared


def warm_start(model: keras.Model, before: keras.Model) -> None:
    """Copies the weights of a trained model to a new one.

    The features may differ if both models are `Prepared`, with a `Preparation` and a `Perceptron`
    (such as `Scorer` and `ListScorer`), or an `Ensemble` of these. Weights are then matched by the
    name of a feature, of a value of a vocabulary or of an indicator of missing values:

    * New inputs have no effect at first: their rows of the first kernel are 0. A new value of a
      vocabulary keeps its initial embedding.
    * Removed inputs are dropped.

    So if you only add features and values, and `mean` and `variance` of the others stay the same,
    the scores of items without new values stay the same, too. Hashed values (of `out_of_vocabulary`
    or `Hash`) are matched only if the number of hash buckets is unchanged.

    For any other model, all weights are copied, and must have the same shapes.

    Args:
        model: The new model, built; an `Ensemble` must have as many members as `before`.
        before: The trained model.

    Raises:
        ValueError: If the shape of a weight, the number of weights or the number of members differs
            from `before`.

    Example:
        >>> from tfrank_sel import models
        >>> before = models.Scorer([0.0], [1.0], [8])
        >>> after = models.Scorer([0.0, 0.0], [1.0, 1.0], [8])
        >>> scores = before(tf.ones([1, 3, 1]))
        >>> after.build([None, None, 2])
        >>> models.warm_start(after, before)
        >>> np.allclose(after(tf.ones([1, 3, 2])), scores)
        True
    """
    new, old = members_of(model), members_of(before)
    if len(new) != len(old):
        raise refusal(
            "`model` and `before` must have the same number of members",
            f"{len(new)} and {len(old)} members",
        )
    pairs = [(_network(x), _values(x, y)) for x, y in zip(new, old, strict=True)]
    for network, values in pairs:  # none if a shape was wrong
        network.set_weights(values)


def members_of(model: keras.Model) -> list[keras.Model]:
    """Returns the members of an ensemble, each with its preparation, or the model alone."""
    if isinstance(model, Ensemble):
        return list(model.members)
    if isinstance(model, Prepared) and isinstance(model.network, Ensemble):
        return [Prepared(model.preparation, member) for member in model.network.members]
    return [model]


def _network(model: keras.Model) -> keras.Model:
    return model.network if isinstance(model, Prepared) else model


def _values(model: keras.Model, before: keras.Model) -> list[np.ndarray]:
    """The weights of a new model, from those of the trained one."""
    weights, values = _network(model).weights, _network(before).get_weights()
    if _has_names(model) and _has_names(before):
        values = _by_name(model, before)
    for weight, value in zip(weights, values, strict=False):
        if tuple(weight.shape) != value.shape:
            name = getattr(weight, "path", weight.name)
            raise refusal(
                f"`before` must have the weights of `model`. Weight {name!r} must have shape "
                f"{tuple(weight.shape)}",
                value.shape,
            )
    if len(weights) != len(values):
        raise refusal(f"`before` must have the weights of `model`, {len(weights)}", len(values))
    new, old = _network(model), _network(before)
    if isinstance(new, Perceptron) and isinstance(old, Perceptron):
        return _in_units(values, new, old)
    return values


def _in_units(values: list[np.ndarray], new: Perceptron, old: Perceptron) -> list[np.ndarray]:
    """Weights whose last layer gives the same scores by another scale and shift."""
    if (new.scale, new.shift) == (old.scale, old.shift):
        return values
    *others, kernel, bias = values
    score = old.scale * bias + old.shift
    return [*others, kernel * (old.scale / new.scale), (score - new.shift) / new.scale]


def _has_names(model: keras.Model) -> bool:
    """Whether the names of the inputs of the first weights are known."""
    return (
        isinstance(model, Prepared)
        and isinstance(model.preparation, Preparation)
        and isinstance(model.network, Perceptron)
        and model.network.embeddings == model.preparation.embeddings
    )


def _by_name(model: Prepared, before: Prepared) -> list[np.ndarray]:
    """Splits the weights: rows that have a name (embeddings, first kernel), and the rest."""
    meanings, meanings_before = (x.preparation.looked_up for x in (model, before))
    initial, trained = model.network.get_weights(), before.network.get_weights()
    tables = dict(zip(meanings_before, trained, strict=False))
    values = []
    for (name, rows), table in zip(meanings.items(), initial, strict=False):
        before_table = tables.get(name)
        if before_table is not None and before_table.shape[1] == table.shape[1]:
            table = _with_rows(table, rows, before_table, meanings_before[name])
        values.append(table)
    new_kernel, kernel = np.zeros_like(initial[len(values)]), trained[len(tables)]
    if new_kernel.shape[1] == kernel.shape[1]:
        kernel = _with_rows(new_kernel, _inputs(model), kernel, _inputs(before))
    return [*values, kernel, *trained[len(tables) + 1 :]]


def _inputs(model: Prepared) -> list[str]:
    """A name for each row of the first kernel."""
    embeddings = zip(model.preparation.looked_up, model.preparation.embeddings, strict=True)
    return model.preparation.names + [
        f"{place} of {size} of {name}" for name, (*_, size) in embeddings for place in range(size)
    ]


def _with_rows(
    rows: np.ndarray, names: Sequence[str], trained: np.ndarray, trained_names: Sequence[str]
) -> np.ndarray:
    """Rows, replaced if their name is known."""
    places = {name: place for place, name in enumerate(trained_names)}
    taken = {place: places[name] for place, name in enumerate(names) if name in places}
    merged = rows.copy()
    merged[list(taken)] = trained[list(taken.values())]
    return merged
