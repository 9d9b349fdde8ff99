"""What earlier versions kept on disk is read as it was, and a run of theirs goes on."""

import pathlib
import tarfile

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.frozen.make import HOLDERS, PAIRS, ROOT, scores
from tfrank_sel.clicks.propensities import Propensities
from tfrank_sel.data.cache import Cache
from tfrank_sel.models.als import RGFactorizer
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.run.steps import STEPS

ARCHIVES = sorted(pathlib.Path(__file__).parent.glob("frozen/*.tar.xz"))


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def frozen(request, tmp_path_factory) -> pathlib.Path:
    """A folder of an earlier version."""
    folder = tmp_path_factory.mktemp("frozen")
    with tarfile.open(request.param) as file:
        file.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if path.name in HOLDERS:
            path.write_text(path.read_text().replace(ROOT, str(folder)))
    return folder


def test_there_is_one_of_each_round():
    assert len(ARCHIVES) >= 2
    assert sum(path.stat().st_size for path in ARCHIVES) < 1_000_000


def test_values_are_as_they_were(frozen):
    values = np.load(frozen / "values.npz")
    model = RGFactorizer.load(frozen / "factorizer")
    products = model.user_factors_ @ model.item_factors_.T
    np.testing.assert_array_equal(products, values["products"])
    propensities = Propensities.load(frozen / "propensities")
    np.testing.assert_array_equal(propensities.values, values["propensities"])
    assert [*Cache.load(frozen / "cache").sizes] == [3, 3]
    np.testing.assert_allclose(
        scores(frozen / "run" / "export" / "saved_model"), values["scores"], rtol=1e-6
    )
    model.partial_fit(PAIRS)


def test_a_run_is_up_to_date_in_all_steps(frozen):
    output = frozen / "run"
    planned = CliRunner().invoke(app, ["run", "--output", str(output), "--dry-run"])
    assert planned.output.count("keep ") == len(STEPS), planned.output
    changed = ["--set", "blessing.margin=0.5"]
    planned = CliRunner().invoke(app, ["run", "--output", str(output), "--dry-run", *changed])
    assert planned.output.count("keep ") == len(STEPS) - 1, planned.output
