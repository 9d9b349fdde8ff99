"""Losses in the form of PyTorch; those of its own tests are skipped where it is not installed."""

import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, losses, metrics, objectives
from tfrank_sel.objectives import criteria
from tfrank_sel.objectives.criteria import evaluated

pytestmark = pytest.mark.usefixtures("eagerly")

SIZES = np.array([3, 6, 1, 0, 4])
IS_ITEM = np.arange(SIZES.max()) < SIZES[:, np.newaxis]
LOSSES = [
    losses.SoftmaxLoss(dtype="float64"),
    losses.PairwiseLogisticLoss(dtype="float64", reduction="sum"),
    losses.SmoothTopKLoss(2, dtype="float64"),
    losses.MatchingLoss(links.Exp(), dtype="float64"),
]
by_name = pytest.mark.parametrize("loss", LOSSES, ids=lambda x: type(x).__name__)


def padded(items: np.ndarray, padding: float) -> np.ndarray:
    found = np.full(IS_ITEM.shape, padding)
    found[IS_ITEM] = items
    return found


def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and weights of items, and weights of lists."""
    random = np.random.default_rng(0)
    count = int(SIZES.sum())
    labels = random.choice([0.0, 0.5, 1.0, 2.25], count)
    weights = random.uniform(0.5, 2.0, count)
    return random.normal(size=count), labels, weights, random.uniform(0.5, 2.0, len(SIZES))


@pytest.mark.sample(3)
@by_name
@pytest.mark.parametrize(
    "weighted", ["nothing", "items", pytest.param("lists", marks=pytest.mark.compiled)]
)
def test_lists_one_after_the_other_equal_padded_ones(
    loss: losses.ListwiseLoss, weighted: str
) -> None:
    scores, labels, of_items, of_lists = sample()
    flat, dense = {
        "nothing": (None, None),
        "items": (of_items, padded(of_items, 7.0)),
        "lists": (of_lists[:, np.newaxis], of_lists),
    }[weighted]
    given = [padded(scores, 99.0), padded(labels, np.nan)]
    x = tf.constant(given[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = loss(given[1], x, dense)
    gradient = tape.gradient(expected, x)

    found = [
        evaluated(loss, True, *map(tf.constant, given), dense, None, None),
        evaluated(
            loss, True, x, tf.constant(padded(labels, 1.0)), dense, tf.constant(IS_ITEM), None
        ),
    ]
    for value, slope in found:
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(slope, gradient, atol=1e-12)
    rows = None if flat is None else tf.constant(flat)
    arguments = [tf.constant(scores), tf.constant(labels), rows, None, tf.constant(SIZES)]
    value, slope = evaluated(loss, True, *arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(slope, gradient.numpy()[IS_ITEM], atol=1e-12)
    assert evaluated(loss, False, *arguments)[1] is None


@by_name
def test_the_gradient_equals_differences(loss: losses.ListwiseLoss) -> None:
    torch = pytest.importorskip("torch")
    scores, labels, of_items, _ = sample()
    criterion = objectives.torch(loss)
    x = torch.tensor(scores, requires_grad=True)

    def flat(x: Any) -> Any:
        return criterion(x, torch.tensor(labels), of_items, group=SIZES)

    assert torch.autograd.gradcheck(flat, x, atol=1e-7, rtol=1e-5)
    dense = torch.tensor(padded(scores, 99.0), requires_grad=True)
    weights = torch.tensor(padded(of_items, 0.0))
    mask = torch.tensor(IS_ITEM)
    value = criterion(dense, torch.tensor(padded(labels, 0.0)), weights, mask=mask)
    (3.0 * value).backward()
    flat(x).backward()
    np.testing.assert_allclose(dense.grad[mask], 3.0 * x.grad, atol=1e-12)
    assert not dense.grad[~mask].any()


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_value_has_the_dtype_of_the_scores(name: str) -> None:
    torch = pytest.importorskip("torch")
    criterion = objectives.torch(losses.SoftmaxLoss())
    dtype = getattr(torch, name)
    scores = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.0, 1.0]], dtype=dtype, requires_grad=True)
    index = torch.tensor([0, 2])
    value = criterion(scores, index)
    value.backward()
    expected = torch.nn.functional.cross_entropy(scores.detach().double(), index)
    assert value.dtype == scores.grad.dtype == dtype
    np.testing.assert_allclose(value.item(), expected.item(), rtol=1e-3)
    with torch.no_grad():
        assert not criterion(scores, index).requires_grad


def test_a_network_learns() -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    features = random.normal(size=(64, 8, 4)).astype(np.float32)
    labels = np.maximum(np.round(features[..., 0] + features[..., 1]), 0.0)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    criterion = objectives.torch(losses.LambdaLoss())
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(30):
        optimizer.zero_grad()
        criterion(model(torch.tensor(features))[..., 0], torch.tensor(labels)).backward()
        optimizer.step()
    scores = model(torch.tensor(features))[..., 0].detach().numpy()
    assert float(metrics.NDCG(5)(labels, scores)) > 0.95


def test_a_loss_without_a_scalar_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a reduction to a scalar"):
        objectives.torch(losses.SoftmaxLoss(reduction=None))
    with pytest.raises(TypeError, match=r"must be a `losses\.ListwiseLoss`"):
        objectives.torch("softmax")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mask": np.ones(14, bool)}, "for padded lists, and `group` for others"),
        ({"group": SIZES[:-1]}, r"must add up.*Received: sum\(group\)=10, len\(scores\)=14"),
        ({"weights": np.ones(3)}, r"Received: len\(weights\)=3, for 14 items in 5 lists"),
    ],
)
def test_lists_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    torch = pytest.importorskip("torch")
    scores, labels, *_ = sample()
    criterion = objectives.torch(losses.SoftmaxLoss())
    with pytest.raises(ValueError, match=message):
        criterion(torch.tensor(scores), labels, **{"group": SIZES} | wrong)


def test_a_negative_label_is_data_or_refused() -> None:
    torch = pytest.importorskip("torch")
    scores, labels = torch.tensor([[1.0, 2.0, 0.5]]), np.array([[1.0, -1.0, 0.0]])
    expected = losses.MeanSquaredLoss()(labels, scores)
    assert float(objectives.torch(losses.MeanSquaredLoss())(scores, labels)) == float(expected)
    criterion, mask = objectives.torch(losses.SoftmaxLoss()), labels >= 0.0
    with pytest.raises(ValueError, match=r"of at least 0\. Received: labels from -1 to 1"):
        criterion(scores, labels)
    assert float(criterion(scores, labels, mask=mask)) > 0.0


def test_an_absent_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    criteria._node.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"tfrank_sel\[torch\]"):
        objectives.torch(losses.SoftmaxLoss())
