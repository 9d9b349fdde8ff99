"""Permutation importance of the columns of lists."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tfrank_sel.estimator.lists import Lists, Matrices

REPEATS = 5


class Column(NamedTuple):
    """A column of a table.

    Args:
        numbers: Indices of its numbers.
        texts: Indices of its texts. A column that is not used has neither.
    """

    numbers: Sequence[int]
    texts: Sequence[int]


def drops(
    score: Callable[[Lists], float],
    lists: Lists,
    columns: Sequence[Column],
    seed: int,
) -> np.ndarray:
    """Returns the mean drop of a score when each column is shuffled within each list.

    Args:
        score: Returns the score of lists.
        lists: The lists.
        columns: The columns, each of which is shuffled as a whole.
        seed: Seed of the shuffles, which are the same for all columns.

    Reference:
        Permutation importance: [Breiman, Random Forests, 2001](
        https://doi.org/10.1023/A:1010933404324).
    """
    random, whole = np.random.default_rng(seed), score(lists)
    of_list = np.repeat(np.arange(len(lists.sizes)), lists.sizes)
    orders = [np.lexsort((random.random(len(of_list)), of_list)) for _ in range(REPEATS)]

    def drop(column: Column) -> float:
        return float(np.mean([whole - score(_shuffled(lists, column, x)) for x in orders]))

    return np.array([drop(column) if any(column) else 0.0 for column in columns])


def _shuffled(lists: Lists, column: Column, order: np.ndarray) -> Lists:
    numbers, texts = lists.matrices
    numbers = _in_order(numbers, column.numbers, order)
    texts = None if texts is None else _in_order(texts, column.texts, order)
    return dataclasses.replace(lists, matrices=Matrices(numbers, texts))


def _in_order(values: np.ndarray, columns: Sequence[int], order: np.ndarray) -> np.ndarray:
    if not columns:
        return values
    values = values.copy()
    values[:, columns] = values[:, columns][order]
    return values
