import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.data import sets
from tests.references import metrics as references
from tfrank_sel import data, metrics
from tfrank_sel.data.formats import Columns
from tfrank_sel.metrics import significance
from tfrank_sel.pipelines.analysis.gates import Anomaly
from tfrank_sel.pipelines.evaluation import blessing, evaluation
from tfrank_sel.pipelines.evaluation.blessing import Rules
from tfrank_sel.pipelines.evaluation.evaluation import PER_SESSION, Evaluation, MetricComparison
from tfrank_sel.pipelines.evaluation.slices import FREQUENCIES, OVERALL, Slicing, band
from tfrank_sel.pipelines.ingestion import ingest
from tfrank_sel.pipelines.ingestion.inputs import expand
from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists
from tfrank_sel.pipelines.runners import beams


def column(inputs, index):
    """Scores an item by one of its features."""
    return inputs["features"][..., index]


label, noise = (functools.partial(column, index=index) for index in (0, 2))


@pytest.fixture(scope="module")
def lists():
    """Their first feature is the label, the second the opposite, and the third is noise."""
    random = np.random.default_rng(0)
    found = []
    for query in range(60):
        size = 4 if query % 3 else 12
        labels = random.integers(0, 3, size).astype(np.float32)
        features = np.stack([labels, -labels, random.random(size)], axis=1).astype(np.float32)
        ids = tuple(f"{i}" for i in range(size))
        found.append(data.ItemList(f"q{query}", labels, features, ids))
    return found


@pytest.fixture(scope="module")
def split(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("evaluation")
    from pyarrow import parquet

    parquet.write_table(sets.table(lists), folder / "lists.parquet")
    parquet.write_table(sets.table(lists[:5]), folder / "more.parquet")
    columns = Columns(context=("device", "age"))
    inputs = ingest.Inputs(expand([str(folder / "*.parquet")], "test"), columns, adjacent=True)
    layout = inputs.reader.infer([source.path for source in inputs.sources])
    shards = ingest.ingest(inputs, layout, folder).shards["test"]
    return StoredLists(shards, data.FeatureSpec(3), layout.context)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, split):
    return evaluation.evaluate(label, noise, split, str(tmp_path_factory.mktemp("scratch")), seed=1)


def expected(lists, index):
    """NDCG@10 of each list, scored by a feature."""
    ndcg = metrics.NDCG(10)
    return np.array(
        [
            float(ndcg.evaluate(one.labels[None], one.features[None, :, index])[0][0])
            for one in lists
        ]
    )


def test_a_comparison_equals_the_means_over_queries(evaluated, lists):
    compared = evaluated.overall["NDCG@10"]
    counted = [*lists, *lists[:5]]
    assert compared.queries == len(counted)
    np.testing.assert_allclose(compared.ours, expected(counted, 0).mean(), rtol=1e-5)
    np.testing.assert_allclose(compared.baseline, expected(counted, 2).mean(), rtol=1e-5)
    assert compared.low < compared.ours - compared.baseline < compared.high
    assert evaluated.chance["NDCG@10"].ours == compared.ours
    assert abs(evaluated.chance["NDCG@10"].baseline - compared.baseline) < 0.1
    assert {x.baseline for x in evaluated.ideal.values()} == {1.0}  # each list has a label above 0
    assert evaluated.ideal["NDCG@10"].ours == compared.ours


@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_curves_equal_the_metrics_of_each_query(split, lists, tmp_path, gain):
    found = evaluation.evaluate(label, noise, split, str(tmp_path), seed=1, gain=gain)
    of_label = {"exponential": references.exponential, "linear": float}[gain]
    assert list(found.curves["ours"].first(12).cutoffs) == [1, 2, 3, 5, 7, 10]
    for name, index in {"ours": 0, "baseline": 2}.items():
        values = [
            [
                references.ndcg(one.labels, scores, np.ones_like(scores), k, of_label)
                for k in evaluation.CUTOFFS
            ]
            for one in [*lists, *lists[:5]]
            for scores in [one.features[:, index]]
        ]
        curve = found.curves[name]
        np.testing.assert_allclose(curve.mean, np.mean(values, axis=0), rtol=1e-5)
        assert np.all(np.array(curve.low) <= curve.mean)
        assert np.all(curve.mean <= np.array(curve.high))
    again = Evaluation.of(json.loads(json.dumps(found.figures())))
    assert again.figures() == json.loads(json.dumps(found.figures()))


@pytest.mark.long
def test_beam_finds_the_same(split, evaluated, tmp_path):
    pipeline = beams.pipeline(beams.pipeline_options())
    found = evaluation.evaluate(label, noise, split, str(tmp_path), seed=1, pipeline=pipeline)
    assert found.slices.keys() == evaluated.slices.keys()
    for name, compared in evaluated.slices.items():
        for metric, one in compared.items():
            other = found.slices[name][metric]
            np.testing.assert_allclose(
                dataclasses.astuple(other), dataclasses.astuple(one), rtol=1e-6, atol=1e-9
            )
    np.testing.assert_allclose(found.curves["ours"].low, evaluated.curves["ours"].low, rtol=1e-6)
    assert (list(tmp_path.iterdir()), found.against) == ([], evaluated.against)


def test_without_a_baseline_a_random_order_takes_its_place(split, evaluated, tmp_path):
    found = evaluation.evaluate(noise, None, split, str(tmp_path), seed=1)
    assert (found.against, evaluated.against) == ("random order", "baseline")
    assert found.overall == found.chance
    assert found.slices.keys() == evaluated.slices.keys()
    np.testing.assert_allclose(found.overall["MRR"].baseline, evaluated.chance["MRR"].baseline)
    assert list(tmp_path.iterdir()) == []
    reasons = blessing.bless(found, Rules(min_value=2.0, min_slice_queries=1)).checks
    assert any(x.told.startswith("NDCG@10 of device desk 0.") for x in reasons)


def test_a_split_without_a_list_is_refused(tmp_path):
    tf.io.TFRecordWriter(str(tmp_path / "none.tfrecord")).close()
    empty = StoredLists([str(tmp_path / "none.tfrecord")], data.FeatureSpec(3))
    with pytest.raises(ValueError, match=r"expected a list in .*none\.tfrecord\. Received: none"):
        evaluation.evaluate(noise, None, empty, str(tmp_path), seed=1)


def test_slices_are_by_size_frequency_and_context(evaluated, lists):
    assert next(iter(evaluated.slices)) == OVERALL
    queries = {name: found["MRR"].queries for name, found in evaluated.slices.items()}
    assert queries.pop(OVERALL) == 65
    sizes = {"list_size 1-10": 43, "list_size 11-50": 22}
    occurring = {"query_frequency 1": 55, "query_frequency 2-10": 10}
    devices = {"device desk": 33, "device phone": 32}
    expected_slices = {**sizes, **occurring, **devices}
    assert expected_slices.items() <= queries.items()
    ages = {name: count for name, count in queries.items() if name.startswith("age")}
    assert len(ages) == 4
    assert sum(ages.values()) == 65
    assert max(ages.values()) < 26  # quarters, to an eighth of the edges
    assert set(queries) == {*expected_slices, *ages}


def test_a_slice_is_compared_on_its_queries_alone(evaluated, lists):
    of_slice = [one for one in [*lists, *lists[:5]] if len(one.labels) > 10]
    compared = evaluated.slices["list_size 11-50"]["NDCG@10"]
    np.testing.assert_allclose(compared.baseline, expected(of_slice, 2).mean(), rtol=1e-5)


def test_the_bootstrap_is_seeded_and_covers_the_mean():
    differences = np.random.default_rng(0).normal(0.1, 1.0, [400, 1])
    keys = np.arange(400, dtype=np.uint64)
    intervals = [significance.resample(keys, differences, seed=i).interval() for i in (1, 1, 2)]
    low, high = intervals[0]
    assert intervals[0] == intervals[1] != intervals[2]
    assert low < differences.mean() < high
    # The interval of a mean of independent values: plus and minus 1.96 standard errors.
    np.testing.assert_allclose(high - low, 2 * 1.96 * differences.std() / 20.0, rtol=0.1)


def test_the_bootstrap_does_not_depend_on_order_or_bundles():
    random = np.random.default_rng(0)
    keys = random.integers(2**63, size=300, dtype=np.uint64)
    values = random.normal(size=(300, 2))
    whole = significance.resample(keys, values, seed=3, resamples=200)
    order = random.permutation(300)
    first, *parts = (
        significance.resample(keys[rows], values[rows], seed=3, resamples=200)
        for rows in np.array_split(order, 7)
    )
    merged = sum(parts, first)
    rows = np.sort(order[:250])
    [some] = significance.resampled_parts(
        keys, {"some": (rows, values[rows])}, seed=3, resamples=200
    ).values()
    own = significance.resample(keys[rows], values[rows], seed=3, resamples=200)
    np.testing.assert_allclose(some.weighted, own.weighted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(merged.weighted[:200], whole.weighted, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(merged.weights[:200], whole.weights)
    assert merged.queries == 300


def test_the_weights_of_the_bootstrap_are_poisson():
    keys = np.arange(2000, dtype=np.uint64)
    weights = significance.poisson_weights(keys, 0, 100)
    np.testing.assert_allclose(weights.mean(), 1.0, atol=0.01)
    np.testing.assert_allclose(weights.var(), 1.0, atol=0.02)
    np.testing.assert_allclose((weights == 0).mean(), np.exp(-1), atol=0.005)
    across = np.corrcoef(weights[:, :20].T)[np.triu_indices(20, 1)]
    assert np.abs(across).max() < 0.12  # 5 standard errors


def test_rare_values_share_a_slice():
    slicing = Slicing({7: 4}, {"age": [1.0, 2.0]}, {"device": ["a"]})
    known = {"age": 1.5, "device": b"b"}
    assert slicing.names(7, 11, known) == [
        "all",
        "list_size 11-50",
        "query_frequency 2-10",
        "age above 1 up to 2",
        "device (other)",
    ]
    assert slicing.names(8, 11, {"age": 3.0, "device": b"a"})[2:] == [
        "query_frequency 1",
        "age above 2",
        "device a",
    ]
    assert slicing.names(8, 11, {"age": np.nan, "device": b"a"})[3] == "age (missing)"
    assert [band(count, FREQUENCIES) for count in (1, 2, 1000)] == ["1", "2-10", "101+"]


CART = Anomaly("cart[1]", "leak", "less", "1.000 on 35% of the pairs", 99)


def judged(rules=None, chance=(0.1, 0.3), slices=None, ours=0.5, high=0.1, clicks=0.1, leaks=()):
    """The blessing of a model that is as good as the baseline, but for what is changed."""
    overall = {"NDCG@10": MetricComparison(0.5, ours, -0.1, high, queries=50)}
    by_chance = {"NDCG@10": MetricComparison(0.3, ours, *chance, queries=50)}
    by_clicks = {PER_SESSION: MetricComparison(2.0, 1.8, -0.3, clicks, queries=50)}
    evaluated = Evaluation({OVERALL: overall, **(slices or {})}, by_chance, clicks=by_clicks)
    found = blessing.bless(evaluated, rules or Rules(), leaks=leaks)
    written = json.loads(json.dumps(found.figures()))
    assert written["blessed"] == found.blessed
    assert written["reasons"] == found.reasons
    return found


def bad_slice(queries):
    return {"device phone": {"NDCG@10": MetricComparison(0.9, 0.5, -0.5, -0.3, queries)}}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"high": -0.03},
            "NDCG@10 0.500, baseline 0.500: significant loss (-0.100 to -0.030, allowed -0.02)",
        ),
        (
            {"leaks": [CART]},
            "cart[1] orders the labels: 1.000 on 35% of the pairs; "
            "leave it out if it follows from the label, or name it in blessing.allow_leaks",
        ),
        (
            {"clicks": -0.1},
            "clicks per session 1.800, logged order 2.000: significant loss (-0.300 to -0.100)",
        ),
        ({"chance": (-0.3, -0.1)}, "random order 0.300: significant loss (-0.300 to -0.100)"),
        ({"rules": Rules(min_queries=51)}, "50 queries, at least 51 required"),
        ({"rules": Rules(min_value=0.6)}, "NDCG@10 0.500, at least 0.6 required"),
        ({"slices": bad_slice(30)}, "NDCG@10 of device phone 0.500, baseline 0.900: significant"),
    ],
    ids=["baseline", "leak", "clicks", "chance", "queries", "value", "slice"],
)
def test_a_model_that_breaks_a_rule_is_not_blessed_and_told_why(changed, reason):
    found = judged(**changed)
    assert not found.blessed
    [received] = found.reasons
    assert reason in received


def test_a_model_at_each_bound_is_blessed_and_one_beyond_the_time_is_not():
    assert judged(Rules(min_queries=50, min_value=0.5)).blessed
    assert judged(high=-Rules().margin).blessed
    assert judged(Rules(allow_leaks=["cart"]), leaks=[CART]).blessed
    assert judged(Rules(clicks_margin=0.1), clicks=-0.1).blessed
    equal = {"NDCG@10": MetricComparison(0.5, 0.5, -0.1, 0.1, queries=50)}
    evaluated = Evaluation({OVERALL: equal}, chance=equal)
    took = functools.partial(blessing.bless, evaluated, Rules(max_milliseconds=2.0))
    assert [took(milliseconds=x).blessed for x in (1.9, 2.0, 2.1)] == [True, True, False]


def test_what_may_be_chance_holds_no_model_back():
    assert judged().blessed
    assert judged(ours=0.45, high=-0.01).blessed
    assert judged(slices=bad_slice(29)).blessed
    with pytest.raises(ValueError, match="'NDCG@1', 'NDCG@5', 'NDCG@10' or 'MRR'"):
        Rules(metric="loss")
