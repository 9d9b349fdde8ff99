"""The choice of a loss by what a model can tell of the items."""

from typing import Any

import numpy as np
import pytest

from tests.losses.test_choice import fitted
from tfrank_sel import links, losses
from tfrank_sel.losses.choice import Wanted

pytestmark = pytest.mark.usefixtures("eagerly")

Known = tuple[np.ndarray, np.ndarray]


def lists(seed: int, change: float) -> Known:
    """Features and scores; above 1, scores follow another feature, the more `change` there is."""
    random = np.random.default_rng(seed)
    x = random.normal(size=[150, 20, 3])
    above = np.maximum(x[..., 0] - 1.0, 0.0)
    scores = x[..., 0] + change * above * (2.0 + 2.0 * x[..., 1])
    return x, scores + 0.3 * random.normal(size=scores.shape)


def rows(x: np.ndarray) -> np.ndarray:
    """Features of all items, after a constant."""
    return np.insert(x.reshape(-1, x.shape[-1]), 0, 1.0, axis=1)


def predict(loss: Any, train: Known, x: np.ndarray) -> np.ndarray:
    """The scores that a linear model gives, after training by a general minimiser."""
    y = train[1].ravel()
    *weights, mean = fitted(loss, rows(train[0]), y, y)
    return (mean + rows(x) @ np.array(weights)).reshape(x.shape[:-1])


def excess(predicted: np.ndarray, scores: np.ndarray, start: float) -> float:
    gaps = np.maximum(predicted, start) - np.maximum(scores, start)
    return float(np.sqrt(np.mean(np.square(gaps))))


def test_where_the_relation_changes_a_matching_loss_of_features_has_a_smaller_error() -> None:
    train, test = lists(0, 1.0), lists(1, 1.0)
    start = float(np.quantile(train[1], 0.9))
    choice = losses.design(scores=train[1], predictions=train[0], dtype="float64")
    assert isinstance(choice.loss, losses.MatchingLoss)
    ours, squares, clipped = (
        excess(predict(loss, train, test[0]), test[1], start)
        for loss in (
            choice.loss,
            losses.MeanSquaredLoss(dtype="float64"),
            losses.MeanSquaredLoss(lower=start, dtype="float64"),
        )
    )
    assert ours < 0.9 * min(squares, clipped)


def test_a_model_that_can_tell_all_scores_takes_squares() -> None:
    x, scores = lists(0, 0.0)
    choice = losses.design(scores=scores, predictions=x)
    assert str(choice.loss) == str(losses.MeanSquaredLoss())
    assert "it takes squares, the simplest" in choice.reason
    assert str(losses.design(scores=scores, predictions=x[..., 0]).loss) == str(choice.loss)


def test_features_and_a_function_that_fits_by_each_loss_lead_to_the_same_loss() -> None:
    x, scores = lists(0, 1.0)
    asked = []

    def cross_fit(loss: Any) -> np.ndarray:
        asked.append(loss)
        predicted = np.empty_like(scores)
        for one in (0, 1):
            train = x[one::2], scores[one::2]
            predicted[1 - one :: 2] = predict(loss, train, x[1 - one :: 2])
        return predicted

    choice = losses.design(scores=scores, predictions=cross_fit, dtype="float64")
    by_features = losses.design(scores=scores, predictions=x, dtype="float64")
    assert str(choice.loss) == str(by_features.loss)
    assert len(asked) <= 7
    assert {str(choice.loss), str(losses.MeanSquaredLoss(dtype="float64"))} < {*map(str, asked)}


@pytest.mark.parametrize(("a", "b"), [(60.0, 7.0), (1e-3, -2.0)])
@pytest.mark.parametrize("wanted", ["high_score", "low_score"])
def test_a_choice_moves_with_the_scores_and_their_sign(wanted: Wanted, a: float, b: float) -> None:
    x, scores = lists(0, 1.0)
    side = 1.0 if wanted == "high_score" else -1.0
    both: dict[str, Any] = {"dtype": "float64", "reduction": "none"}
    first = losses.design(scores=scores, predictions=x, **both).loss
    known = 5.0 * x - 1.0
    moved = losses.design(wanted, scores=side * a * scores + b, predictions=known, **both).loss
    s = np.linspace(scores.min(), scores.max(), 60).reshape(6, 10)
    values, others = (f(y, y[::-1]).numpy() for f, y in ((first, s), (moved, side * a * s + b)))
    np.testing.assert_allclose(others / others.max(), values / values.max(), atol=1e-6)


def test_padding_and_one_list_are_no_matter() -> None:
    x, scores = lists(0, 1.0)
    padded = [
        np.pad(y, [(0, 0), (0, 4), *[(0, 0)] * (y.ndim - 2)], constant_values=np.nan)
        for y in (x, scores)
    ]
    expected = losses.design(scores=scores, predictions=x)
    assert losses.design(scores=padded[1], predictions=padded[0]).reason == expected.reason
    flat = losses.design(scores=scores.ravel(), predictions=x.reshape(-1, 3))
    assert type(flat.loss) is type(expected.loss)
    alone = [
        np.pad(
            y.reshape(1, -1, *y.shape[2:]),
            [(0, 2), *[(0, 0)] * (y.ndim - 1)],
            constant_values=np.nan,
        )
        for y in (x, scores)
    ]
    assert losses.design(scores=alone[1], predictions=alone[0]).reason == flat.reason


def test_grades_with_a_map_to_scores_take_no_squares() -> None:
    x, scores = lists(0, 0.0)
    identity = links.labels.affine(1.0, 0.0)
    choice = losses.design(scores=scores, predictions=x, label_map=identity)
    assert isinstance(choice.loss, losses.MatchingLoss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"predictions": np.zeros([2, 9])}, "axes of `scores`.*more for features.*2, 9"),
        ({"predictions": np.zeros([9, 2, 3])}, "axes of `scores`"),
        ({"predictions": np.zeros([2, 9, 1, 3, 2])}, "axes of `scores`"),
        ({"predictions": lambda loss: np.zeros([2, 10, 3])}, "must have the axes of `scores`. Re"),
        ({"predictions": np.full([2, 10], np.nan)}, "`predictions` must be finite"),
        ({"predictions": "model"}, "`predictions` must be an array of numbers"),
        ({"predictions": None, "scores": None, "cap": 1.0}, "`cap` requires"),
        ({"predictions": np.zeros([2, 10]), "scores": None}, "`predictions` requires"),
        ({"predictions": np.zeros([2, 10]), "ranking": True}, "`predictions` requires"),
        ({"predictions": np.zeros([2, 10]), "sensitivity": "low_norm"}, "`predictions` requires"),
    ],
)
def test_predictions_without_use_are_refused(arguments: dict[str, Any], message: str) -> None:
    scores = {"scores": np.arange(20.0).reshape(2, 10)}
    with pytest.raises(ValueError, match=message):
        losses.design(**scores | arguments)
