"""Weights of fused runs, fitted on judged queries."""

import pathlib
from typing import Any

import numpy as np
import pytest
import typer.testing

from tfrank_sel import metrics
from tfrank_sel.metrics import trec
from tfrank_sel.metrics.__main__ import app

QUERIES, DOCUMENTS = 60, 12
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.choice([0, 0, 0, 1, 2], [QUERIES, DOCUMENTS])
Run = dict[str, dict[str, float]]


def nested(values: np.ndarray, share: float = 1.0) -> Any:
    """Values by query and document, of a share of the documents."""
    kept = RANDOM.random(values.shape) < share
    return {
        f"q{q:02}": {f"d{d:02}": row[d].item() for d in np.flatnonzero(keep)}
        for q, (row, keep) in enumerate(zip(values, kept, strict=True))
        if keep.any()
    }


def run(noise: float) -> Run:
    return nested(LABELS + RANDOM.normal(0.0, noise, LABELS.shape), 0.8)


QRELS = nested(LABELS)
GOOD, FAIR, JUNK = run(1.0), run(1.5), run(100.0)


def ndcg(fused: Run, qrels: Any = QRELS) -> float:
    [values] = trec.evaluate(qrels, fused, trec.measures(["ndcg_cut.5"]), complete=True).values()
    return float(np.mean(list(values.values())))


def fitted(runs: list[Run], **options: Any) -> metrics.FusionFit:
    return metrics.fit_fusion(runs, QRELS, trec.measures(["ndcg_cut.5"])[0], **options)


@pytest.mark.parametrize(
    "runs", [[GOOD, FAIR], [FAIR, JUNK], [GOOD, GOOD]], ids=["near", "far", "same"]
)
def test_two_weights_are_those_of_an_exhaustive_search(runs: list[Run]) -> None:
    fit = fitted(runs)
    grid = [ndcg(metrics.comb_sum(runs, [i / 20, 1 - i / 20])) for i in range(21)]
    np.testing.assert_allclose(fit.value, max(grid), rtol=1e-6)
    np.testing.assert_allclose(ndcg(metrics.comb_sum(runs, fit.weights)), fit.value, rtol=1e-6)
    np.testing.assert_allclose(ndcg(metrics.comb_sum(runs)), fit.equal, rtol=1e-6)
    assert fit.equal <= fit.value


def test_a_run_of_noise_gets_the_least_weight() -> None:
    fit = fitted([GOOD, FAIR, JUNK])
    assert fit.weights[0] > fit.weights[1] > fit.weights[2]
    np.testing.assert_allclose(sum(fit.weights), 1.0)
    assert fit.equal < fit.held_out <= fit.value
    assert fitted([GOOD, FAIR, JUNK]) == fit
    turned = fitted([JUNK, FAIR, GOOD])
    np.testing.assert_allclose(turned.value, fit.value, atol=0.005)


def test_equal_runs_keep_equal_weights() -> None:
    assert fitted([FAIR, FAIR]).weights == [0.5, 0.5]


def test_a_held_out_value_has_no_part_in_its_weights() -> None:
    """Without signal, the fitted value exceeds that of equal weights, and the held-out one not."""
    noise = [run(1e3) for _ in range(3)]
    fit = fitted(noise, folds=10)
    assert fit.value > fit.equal + 0.01
    assert fit.held_out < fit.value - 0.01


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"two runs and two folds. Received: 1 runs, folds=5"):
        fitted([GOOD])
    with pytest.raises(ValueError, match=r"each of 61 folds. Received: 60"):
        fitted([GOOD, FAIR], folds=61)
    with pytest.raises(ValueError, match=r"Received: 0"):
        fitted([{"other": {"a": 1.0}}] * 2)
    with pytest.raises(ValueError, match=r"one finite number.*weights=\[1.0\], for 2 runs"):
        metrics.comb_sum([GOOD, FAIR], [1.0])


def test_the_command_fits_weights(tmp_path: pathlib.Path) -> None:
    paths = []
    for name, found in (("good.run", GOOD), ("fair.run", FAIR)):
        lines = [f"{q} Q0 {d} 1 {x} t\n" for q, row in found.items() for d, x in row.items()]
        (tmp_path / name).write_text("".join(lines))
        paths.append(str(tmp_path / name))
    lines = [f"{q} 0 {d} {y}\n" for q, row in QRELS.items() for d, y in row.items()]
    (tmp_path / "qrels").write_text("".join(lines))
    options = ["--method", "combsum", "--qrels", str(tmp_path / "qrels"), "-m", "ndcg_cut.5"]
    done = typer.testing.CliRunner().invoke(app, ["fuse", *paths, *options])
    fit = fitted([GOOD, FAIR])
    first, second = fit.weights
    assert done.stderr.startswith(f"-w {first:g} -w {second:g}: ndcg_cut_5 {fit.value:.4f}, held")
    (tmp_path / "fused").write_text(done.stdout)
    np.testing.assert_allclose(ndcg(trec.read_run(tmp_path / "fused")), fit.value, rtol=1e-6)

    again = ["--method", "combsum", "-w", f"{first:g}", "-w", f"{second:g}"]
    assert typer.testing.CliRunner().invoke(app, ["fuse", *paths, *again]).stdout == done.stdout
    for wrong in (["--qrels", str(tmp_path / "qrels")], [*options, "-m", "P"]):
        assert typer.testing.CliRunner().invoke(app, ["fuse", *paths, *wrong]).exit_code == 2
