"""Replays trec_eval and its kin: each measure of each query, from TREC files and dense lists."""

import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.golden import vectors
from tests.golden.vectors import Case
from tfrank_sel import metrics, trec
from tfrank_sel.data.trec import read_qrels, read_run
from tfrank_sel.ops import ranking

Array = NDArray[np.float64]
Values = dict[str, dict[str, float]]

VECTORS = vectors.contents("trec_metrics.json", pathlib.Path(__file__).parent)
CASES = {case["id"]: case for case in VECTORS["cases"]}
COUNTS = ("num_ret", "num_rel", "num_rel_ret", "set_recall")  # of the data, not of a ranking
CUTOFFS = (1, 3, 5, 10)

every_case = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case["id"])


def with_dots(names: list[str]) -> list[str]:
    """What trec_eval prints as `P_5` is asked for as `P.5`."""
    return [".".join(n.rsplit("_", 1)) if n[-1].isdigit() else n for n in names]


@functools.cache
def from_dictionaries(column: str, level: float) -> Values:
    """The measures of a column of all queries at once, by measure and query."""
    names = {name for c in CASES.values() for name in c["expected"][column]} - set(COUNTS)
    qrels, run = ({q: c[key] for q, c in CASES.items()} for key in ("qrels", "run"))
    return trec.evaluate(qrels, run, trec.measures(with_dots(sorted(names)), level))


def dense(
    labels_of: Callable[[Case], list[float]], scores_of: Callable[[Case], list[float]]
) -> Any:
    """All queries as dense lists, padded with NaN."""
    rows = [[labels_of(c), scores_of(c)] for c in CASES.values()]
    width = max(len(labels) for labels, _ in rows)
    return [
        np.array(
            [
                np.pad(np.array(row[i], float), (0, width - len(row[i])), constant_values=math.nan)
                for row in rows
            ]
        )
        for i in (0, 1)
    ]


def documents(case: Case) -> list[str]:
    return sorted({*case["qrels"], *case["run"]})


def by_identifier() -> Any:
    """The judged and the retrieved documents, with -inf for those not retrieved."""
    return dense(
        lambda c: [max(c["qrels"].get(d, 0.0), 0.0) for d in documents(c)],
        lambda c: [c["run"].get(d, -math.inf) for d in documents(c)],
    )


def evaluate(formulas: list[Any], labels: Array, scores: Array) -> Values:
    found = metrics.Evaluator(formulas)(labels, scores)
    return {n: dict(zip(CASES, x.values.numpy().tolist(), strict=True)) for n, x in found.items()}


@functools.cache
def of_preset() -> Values:
    return evaluate(metrics.trec_eval(CUTOFFS), *by_identifier())


@functools.cache
def of_gdeval() -> Values:
    """Gains are exponential and scores doubles: near ties are none."""
    kept = {"ties": metrics.ties.REVERSED, "dtype": "float64"}
    ndcgs = [metrics.NDCG(k, name=f"nDCG(dcg='exp-log2')@{k}", **kept) for k in (5, 10)]
    errs = [metrics.ERR(k, name=f"ERR@{k}", **kept) for k in (5, 10)]
    return evaluate([*ndcgs, *errs], *by_identifier())


@functools.cache
def of_exponential_gains() -> Values:
    ndcg = functools.partial(metrics.NDCG, ties=metrics.ties.REVERSED)
    cut = [ndcg(k, name=f"ndcg_cut_{k}") for k in CUTOFFS]
    return evaluate([ndcg(name="ndcg"), *cut], *by_identifier())


@functools.cache
def of_scikit_learn() -> Values:
    """It knows the retrieved documents only, and averages over ties."""
    averaged = {"ties": metrics.ties.Averaged(), "dtype": "float64"}
    linear = {"gain": ranking.linear_gain, **averaged}
    formulas = [
        metrics.NDCG(name="ndcg_linear", **linear),
        metrics.NDCG(5, name="ndcg_linear@5", **linear),
        metrics.NDCG(name="ndcg_exp", **averaged),
        metrics.DCG(name="dcg_linear", **linear),
        metrics.DCG(name="dcg_exp", **averaged),
    ]
    lists = dense(lambda c: c["dense"]["y_true_unjudged_as_0"], lambda c: c["dense"]["y_pred"])
    return evaluate(formulas, *lists)


def assert_equal(values: Values, query: str, expected: dict[str, float], atol: float) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(values[name][query], value, rtol=0, atol=atol, err_msg=name)


@every_case
@pytest.mark.parametrize(("column", "level"), [("trec_eval", 1.0), ("trec_eval_level2", 2.0)])
def test_measures_equal_trec_eval(case: Case, column: str, level: float) -> None:
    expected = {k: v for k, v in case["expected"][column].items() if k not in COUNTS}
    assert_equal(from_dictionaries(column, level), case["id"], expected, atol=1e-9)


@every_case
def test_the_preset_equals_trec_eval_on_dense_lists(case: Case) -> None:
    expected = {k: v for k, v in case["expected"]["trec_eval"].items() if k not in COUNTS}
    if not case["qrels"].keys() >= case["run"].keys() or min(case["qrels"].values()) < 0:
        expected.pop("bpref")  # takes documents without judgement as padding
    assert_equal(of_preset(), case["id"], expected, atol=1e-6)


@every_case
def test_exponential_gains_equal_those_of_trec_eval(case: Case) -> None:
    assert_equal(
        of_exponential_gains(), case["id"], case["expected"]["trec_eval_exp_gain"], atol=1e-6
    )


@pytest.mark.compiled
@every_case
def test_err_equals_gdeval(case: Case) -> None:
    assert_equal(of_gdeval(), case["id"], case["expected"]["gdeval"], atol=6e-6)  # five decimals


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if "sklearn" in c["expected"]], ids=lambda case: case["id"]
)
def test_averages_over_ties_equal_scikit_learn(case: Case) -> None:
    theirs = case["expected"]["sklearn"]
    expected = {k: v for k, v in theirs.items() if k != "ndcg_linear_ignore_ties"}
    assert_equal(of_scikit_learn(), case["id"], expected, atol=1e-9)


def files(queries: list[str], case: Case, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the judgements and the run of an aggregate as TREC files."""
    qrels = {q: CASES[q]["qrels"] for q in queries} | (case["extra_qrels"] or {})
    run = {q: CASES[q]["run"] for q in queries} | (case["extra_run"] or {})
    lines = [f"{q} 0 {d} {y}\n" for q, judged in qrels.items() for d, y in judged.items()]
    (folder / "qrels").write_text("".join(lines))
    lines = [f"{q}\tQ0\t{d}\t1\t{s!r}\ttag\n" for q, x in run.items() for d, s in x.items()]
    (folder / "run").write_text("".join(lines))
    return [folder / "qrels", folder / "run"]


@pytest.mark.parametrize("case", VECTORS["aggregates"], ids=lambda case: case["id"])
@pytest.mark.parametrize("complete", [False, True])
def test_means_over_queries_equal_those_of_trec_eval(
    case: Case, complete: bool, tmp_path: pathlib.Path
) -> None:
    queries = [q for q in case["query_ids"] if q in CASES]
    qrels, run = files(queries, case, tmp_path)
    names = list(case["pytrec_eval_mean"])
    values = trec.evaluate(
        read_qrels(qrels), read_run(run), trec.measures(with_dots(names)), complete
    )
    missing = len(case["extra_qrels"] or {}) if complete else 0
    for name in names:
        assert len(values[name]) == len(queries) + missing
        each = [CASES[q]["expected"]["trec_eval"][name] for q in queries] + [0.0] * missing
        expected = np.mean(each)
        if queries == case["query_ids"] and not complete:
            expected = case["pytrec_eval_mean"][name]
        if queries == case["query_ids"] and complete:
            theirs = {"map": "AP", "P_5": "P@5", "recip_rank": "RR", "ndcg": "nDCG"}
            expected = case["ir_measures_aggregate"][theirs.get(name, "nDCG@10")]
        np.testing.assert_allclose(np.mean(list(values[name].values())), expected, rtol=1e-9)


@pytest.mark.parametrize("case", VECTORS["diversity"], ids=lambda case: case["id"])
def test_diversity_equals_ndeval(case: Case) -> None:
    labels, scores, alpha = np.array([case["y_true"]], float), [case["y_pred"]], case["alpha"]
    subtopics = max(int(np.sum(np.any(labels > 0, axis=1))), 1)
    discounts = {"alpha-DCG": ranking.log2_discount, "ERR-IA": lambda r: 1.0 / r}
    makes = {
        "P-IA": metrics.PrecisionIA,
        "strec": metrics.SubtopicRecall,
        "alpha-nDCG": functools.partial(metrics.AlphaNDCG, alpha=alpha),
        **{
            n: functools.partial(metrics.AlphaDCG, alpha=alpha, discount=d)
            for n, d in discounts.items()
        },
    }
    for name, expected in case["expected_ndeval"].items():
        family, k = name.split("@")
        found = float(makes[family](int(k))(labels, scores))
        if family in discounts:  # over what documents could gain that all cover every subtopic
            ranks = np.arange(1.0, int(k) + 1.0)
            most = (1 - alpha) ** (ranks - 1) * discounts[family](ranks)
            found /= subtopics * float(np.sum(most))
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)


@functools.cache
def of_ms_marco() -> Values:
    """It keeps doubles, and ties in ascending order."""
    return evaluate([metrics.MRR(10, name="RR@10", dtype="float64")], *by_identifier())


@functools.cache
def of_ranx() -> Values:
    """Recorded for queries without ties only."""
    wide: dict[str, Any] = {"dtype": "float64"}
    linear = {"gain": ranking.linear_gain, **wide}
    formulas = [
        metrics.NDCG(name="ndcg", **linear),
        metrics.NDCG(5, name="ndcg@5", **linear),
        metrics.NDCG(name="ndcg_burges", **wide),
        metrics.NDCG(5, name="ndcg_burges@5", **wide),
        metrics.DCG(5, name="dcg@5", **linear),
        metrics.DCG(5, name="dcg_burges@5", **wide),
        metrics.MAP(name="map", **wide),
        metrics.MRR(name="mrr", **wide),
        metrics.Precision(5, name="precision@5", **wide),
        metrics.Recall(5, name="recall@5", **wide),
        metrics.Hits(5, name="hit_rate@5", **wide),
        metrics.RPrecision("r-precision", **wide),
    ]
    return evaluate(formulas, *by_identifier())


@pytest.mark.compiled
@every_case
def test_reciprocal_ranks_equal_those_of_ms_marco(case: Case) -> None:
    assert_equal(of_ms_marco(), case["id"], case["expected"]["msmarco"], atol=1e-9)


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if "ranx" in c["expected"]], ids=lambda case: case["id"]
)
def test_measures_equal_those_of_ranx(case: Case) -> None:
    theirs = case["expected"]["ranx"]
    expected = {k: v for k, v in theirs.items() if k != "hits@5"}  # a count of documents
    assert_equal(of_ranx(), case["id"], expected, atol=1e-6)
    found = 5 * of_ranx()["precision@5"][case["id"]]
    np.testing.assert_allclose(found, theirs["hits@5"], atol=1e-6)
