"""The metrics by region, beyond the contracts."""

import functools
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, metrics
from tfrank_sel.ops import ranking

pytestmark = pytest.mark.usefixtures("eagerly")

S = np.array([[-2.0, 0.0, 1.0, np.nan], [3.0, 5.0, np.nan, np.nan]])
Z = np.array([[-1.0, 0.5, 1.0, 9.0], [5.0, 5.0, 9.0, 9.0]])


def test_a_list_without_an_item_in_the_region_is_not_counted() -> None:
    values = [float(metric(S, Z)) for metric in metrics.by_region([0.0, 2.0])]
    assert values == [1.0, 0.25, 1.0]


def test_an_edge_belongs_to_the_region_above() -> None:
    assert float(metrics.RegionAbsoluteError(lower=0.0, upper=1.0)(S, Z)) == 0.5
    assert float(metrics.RegionAbsoluteError(lower=5.0)(S, Z)) == 0.0


def test_labels_are_made_scores_by_the_map() -> None:
    grades, z = [[4.0, 0.0, -1.0]], [[2.0, -3.0, 9.0]]
    affine = links.labels.affine(1.5, -3.0)
    metric = metrics.RegionDivergence(links.Identity(), lower=0.0, label_map=affine)
    assert float(metric(grades, z)) == 0.5


def test_a_bounded_link_sees_no_padding() -> None:
    metric = metrics.RegionDivergence(links.Logit(), lower=0.5)
    assert float(metric([[0.75, 0.25, 5.0]], [[0.75, 7.0, 0.5]])) != 0.0
    metric = metrics.RegionDivergence(links.Logit(), lower=0.5, upper=1.0)
    assert float(metric([[0.75, 0.25, 5.0]], [[0.75, 7.0, 0.5]])) == 0.0


def test_a_model_reports_each_region() -> None:
    edges = metrics.quantile_edges(S, 2)
    model = keras.Sequential([keras.layers.Identity()])
    model.compile("sgd", "mse", metrics=metrics.by_region(edges, links.Sinh()))
    assert edges == [1.0]
    found = model.evaluate(Z[:1], S[:1], verbose=0, return_dict=True)
    assert found.keys() - {"loss"} == {
        "divergence_below_1",
        "absolute_error_below_1",
        "divergence_from_1",
        "absolute_error_from_1",
    }
    assert found["absolute_error_below_1"] == pytest.approx(0.75)


def test_quantiles_share_out_the_scores() -> None:
    ragged = tf.ragged.constant([[0.0, 1.0, 2.0], [3.0], [4.0, np.nan]])
    assert metrics.quantile_edges(ragged, 4) == [1.0, 2.0, 3.0]
    assert metrics.quantile_edges([1.0, 1.0, 1.0, 2.0], 4) == [1.0, 1.25]


def test_what_is_no_region_is_named() -> None:
    with pytest.raises(ValueError, match=r"`lower` must be below.*lower=1.0, upper=0.0"):
        metrics.RegionAbsoluteError(lower=1.0, upper=0.0)
    for edges in ([], [1.0, 1.0]):
        with pytest.raises(ValueError, match="`edges` must be non-empty and strictly increasing"):
            metrics.by_region(edges)
    with pytest.raises(ValueError, match="regions=1, 2 scores"):
        metrics.quantile_edges([0.0, 1.0], 1)
    with pytest.raises(ValueError, match="regions=2, 0 scores"):
        metrics.quantile_edges([np.nan], 2)


def test_the_excess_error_is_that_of_both_no_less_than_the_threshold() -> None:
    random = np.random.default_rng(0)
    y, z = random.normal(size=(2, 5, 7))
    y[1, 3:] = np.nan
    weights = random.uniform(0.5, 2.0, size=y.shape)
    for above in (-np.inf, 0.3, 9.0):
        metric = metrics.ExcessError(above, dtype="float64")
        error = np.maximum(z, above) - np.maximum(y, above)
        expected = np.sqrt(
            np.nansum(weights * error**2, axis=1) / np.sum(np.where(np.isnan(y), 0.0, weights), 1)
        )
        np.testing.assert_allclose(metric.evaluate(y, z, weights).values, expected, rtol=1e-12)


def test_a_ranked_metric_reads_scores_above_a_threshold() -> None:
    random = np.random.default_rng(1)
    y, z = random.normal(size=(2, 6, 9))
    y[0, 5:] = np.nan
    gains = np.where(np.isnan(y), np.nan, np.maximum(y - 0.4, 0.0))
    linear = ranking.linear_gain
    for make in (metrics.NDCG, metrics.DCG):
        found = make(5, linear, above=0.4).evaluate(y, z).values
        np.testing.assert_allclose(found, make(5, linear).evaluate(gains, z).values, rtol=1e-6)
    for make in (metrics.MRR, metrics.MAP, metrics.Precision, metrics.Recall):
        found = make(above=0.4).evaluate(y, z).values
        np.testing.assert_allclose(found, make().evaluate(gains, z).values, rtol=1e-6)
    # without it, labels below 0 are padding
    assert float(metrics.NDCG(2, linear)([[-1.0, 1.0]], [[1.0, 0.0]])) == 1.0
    assert float(metrics.NDCG(2, linear, above=0.0)([[-1.0, 1.0]], [[1.0, 0.0]])) < 0.7
    both = metrics.Evaluator([metrics.MRR(name="a"), metrics.MRR(above=0.4, name="b")])(y, z)
    assert (both["a"].values != both["b"].values).numpy().any()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *((functools.partial(metrics.by_region, x), "edges") for x in (3.0, None, "12", [np.nan])),
        *(
            (functools.partial(metrics.quantile_edges, x, 2), "scores")
            for x in (None, "a", [["a"]])
        ),
        *((functools.partial(metrics.quantile_edges, [1.0], x), "regions") for x in (None, 2.5, 1)),
        *((functools.partial(metrics.trec_eval, x), "cutoffs") for x in (5, None, "5", [0])),
        *((functools.partial(metrics.tfr, x), "cutoffs") for x in (5, None, [2.5])),
    ],
)
def test_a_wrong_argument_of_a_function_is_refused_by_name(
    call: Callable[[], object], name: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"`{name}`.* Received"):
        call()
