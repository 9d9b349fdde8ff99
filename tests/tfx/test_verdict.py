import numpy as np
import pytest

from tfrank_sel.pipelines.tfx.evaluation import verdict

RULES = {"least_ndcg": 0.5, "tolerance": 0.01, "seed": 0}


def queries(*values):
    return {"NDCG@10": np.array(values)}


def test_without_a_baseline_only_the_least_value_counts():
    assert verdict(queries(0.4, 0.6), None, **RULES)["objections"] == []
    [objection] = verdict(queries(0.4, 0.5), None, **RULES)["objections"]
    assert objection == "NDCG@10 must be at least 0.5, is 0.4500"


@pytest.mark.parametrize(("loss", "objections"), [(-0.1, 0), (0.0, 0), (0.009, 0), (0.011, 1)])
def test_a_model_may_be_worse_by_the_tolerance(loss, objections):
    baseline = np.linspace(0.6, 0.8, 20)
    found = verdict(queries(*(baseline - loss)), {"NDCG@10": baseline}, **RULES)
    assert len(found["objections"]) == objections
    ruled = found["metrics"]["NDCG@10"]
    np.testing.assert_allclose([ruled["low"], ruled["high"]], -loss, atol=1e-12)


def test_what_may_be_chance_must_not_reach_too_far_down():
    random = np.random.default_rng(0)
    baseline = random.uniform(0.5, 1.0, 10)
    ours = np.clip(baseline + random.normal(0.0, 0.2, 10), 0.0, 1.0)
    [objection] = verdict(queries(*ours), {"NDCG@10": baseline}, **RULES)["objections"]
    assert "must not be more than 0.01 below the baseline's" in objection


def test_all_that_is_wrong_is_told():
    found = verdict(queries(0.1, 0.2), queries(0.9, 0.9), **RULES)
    assert len(found["objections"]) == 2
