"""`tfrank-sel-engine export` of runs that no trees of an engine can stand for."""

import pytest

from tests.search_engines.test_commands import refused, told
from tfrank_sel import roads


@pytest.mark.skipif(not roads.exists("onnx"), reason="without ONNX")
def test_vespa_gets_the_ranker_itself(finished, tmp_path):
    output, _ = finished
    told("export", output, "--engine", "vespa", "--output", tmp_path / "r.onnx")
    assert (tmp_path / "r.onnx").read_bytes() == (output / "export" / "model.onnx").read_bytes()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("{run}", "its features must be numbers. Received: features, a vector"),
        ("{run}/export", "config.toml"),
    ],
)
def test_what_no_engine_computes_is_refused_in_one_line(finished, tmp_path, run, message):
    given = ["export", run.format(run=finished[0]), "--engine", "opensearch"]
    assert message in refused(*given, "--output", tmp_path / "r.json")
    assert not [*tmp_path.iterdir()]
