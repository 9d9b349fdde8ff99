"""The second run of a log of clicks, which continues the first one."""

import json
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from tests.pipelines import second_run
from tests.pipelines.second_run import configured
from tests.pipelines.test_second_run import BESIDE, SHARES, is_of, read_by
from tfrank_sel.pipelines.ingestion.ingest_counts import hash_of, split_of
from tfrank_sel.pipelines.run.steps import STEPS

CLICKS = {"clicks.position": "position", "clicks.session": "session", "clicks.method": "pbm"}


def clicked(folder: Path, seed: int = 0) -> str:
    """A log of clicks on few queries, which recur."""
    random = np.random.default_rng(seed)
    lines = ["session,query_id,doc_id,position,relevance,x,y"]
    for session in range(600):
        query = int(random.integers(40))
        x = np.random.default_rng(query).normal(size=8)
        order = np.argsort(random.normal(size=8) - x)[:6]
        for position, item in enumerate(order, 1):
            click = int(random.random() < 1 / position / (1 + np.exp(-2 * x[item])))
            where = f"{seed}_{session},q{query},d{query}_{item},{position}"
            lines.append(f"{where},{click},{x[item]:.5f},{position % 2}")
    path = folder / f"clicks{seed}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.long
def test_a_continued_log_has_the_value_of_its_own_sessions(tmp_path):
    files = [clicked(tmp_path, seed) for seed in (1, 2)]
    keys = {**CLICKS, "blessing.clicks_margin": 9.0}
    second_run.run(configured(**keys, **{"data.data": files[:1]}), tmp_path / "1")
    sets = {"data.data": files[1:], "data.continue_from": str(tmp_path / "1")}
    with second_run.recorded() as reads:
        second_run.run(configured(**keys, **sets), tmp_path / "2")
    for name, found in reads.items():
        assert not [x for x in found if not is_of(x, read_by(STEPS[name]) | BESIDE)], name
    evaluated = json.loads((tmp_path / "2" / "evaluate" / "metrics.json").read_text())["clicks"]
    shown = parquet.read_table(tmp_path / "2" / "ingest" / "clicks" / "shown.parquet")
    split = [split_of(hash_of(x), SHARES) == "test" for x in shown["query"].to_pylist()]
    logged = np.array(shown["click"])[split].sum() / len({*np.array(shown["session"])[split]})
    assert evaluated["clicks per session"]["baseline"] == pytest.approx(logged)
    checks = json.loads((tmp_path / "2" / "push" / "blessing.json").read_text())["checks"]
    assert any(x["told"].startswith("clicks per session") for x in checks)
