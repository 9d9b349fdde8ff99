"""The examples run, from a folder of their own."""

import pathlib
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest

from tfrank_sel import models
from tfrank_sel.pipelines.configuration import Configuration

EXAMPLES = sorted((pathlib.Path(__file__).parent.parent / "examples").glob("*.py"))
WEEK = """\
day 1: status 0
day 2: status 0
day 3: status 3
    gates.zero: train: price: expected values other than 0, as in the reference. Received: 0
day 4: status 0
day 5: status 3
    not blessed: NDCG@10 0.
day 6: status 0
day 7: status 0
served: versions 1, 2, 3, 4, 5
"""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"`{example.name}`" in (example.parent / "README.md").read_text()
    if example.stem == "search":
        ranked = [line.split()[1] for line in done.stdout.splitlines()[-3:]]
        assert ranked == ["cheap", "middle", "dear"], done.stdout
    if example.stem == "recommend":
        found = re.findall(r"^(.+): Recall@20 (.+),", done.stdout, re.MULTILINE)
        recall = {name: float(value) for name, value in found}
        assert min(recall["ALS"], recall["two towers"]) > 1.5 * recall["popularity"]
    if example.stem == "preferences":
        shares = re.findall(r": (.+)% in the right order$", done.stdout, re.MULTILINE)
        assert len(shares) == 5
        assert min(map(float, shares)) > 70.0  # 50 before
    if example.stem == "sequence":
        found = re.findall(r"^(.+): NDCG@10 (.+),", done.stdout, re.MULTILINE)
        ndcg = {name: float(value) for name, value in found}
        others = [ndcg[name] for name in ("last item", "popularity", "ALS")]
        assert ndcg["transformer"] > 1.5 * max(others)
        history, answer = (x.split(": ")[1].split(", ") for x in done.stdout.splitlines()[-2:])
        assert len(answer) == 3
        assert not {*history} & {*answer}
    if example.stem == "week":
        told = iter(done.stdout.splitlines())
        for line in WEEK.splitlines():
            assert any(x.startswith(line) for x in told), f"{line} in {done.stdout}"


def test_the_definition_of_a_run_says_what_a_run_takes() -> None:
    path = EXAMPLES[0].parent.parent / "pipelines" / "run.py"
    defined = runpy.run_path(str(path), run_name="definition")
    configuration = Configuration.model_validate(defined["CONFIGURATION"])
    preparation = models.Preparation([0.0, 0.0], [1.0, 1.0], within_list=True)
    model = defined["model"](preparation, configuration.settings)
    assert configuration.blessing.metric == "NDCG@10"
    assert model({"features": np.ones([1, 3, 2]), "mask": np.ones([1, 3], bool)}).shape == (1, 3)
