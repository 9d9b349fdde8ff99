import numpy as np
import pytest
from typer.testing import CliRunner

from tests.serving.test_ranker import QUERY, base, model  # noqa: F401
from tfrank_sel.serving import load
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint


@pytest.fixture(scope="module")
def address(base):  # noqa: F811
    with Endpoint([ModelConfig("ranker", base)]) as endpoint:
        yield f"127.0.0.1:{endpoint.grpc_port}"


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "queries.txt"
    file.write_text(QUERY + QUERY.replace("qid:7", "qid:8"))
    return file


def test_rate_and_latencies_are_printed(address, file):
    options = ["--address", address, "--clients", "2", "--seconds", "0.5"]
    result = CliRunner().invoke(app, ["load-test", "--file", str(file), *options])

    assert result.exit_code == 0
    answers, latency, errors = result.stdout.splitlines()
    assert int(answers.split()[0]) > 2
    assert latency.startswith("latency 50 %: ")
    assert errors == "errors: none"


def test_a_load_of_nothing_is_refused():
    with pytest.raises(ValueError, match="Received: 0 lists, clients=1"):
        load.run("127.0.0.1:1", "ranker", [], clients=1, seconds=1.0)


def test_errors_are_counted_by_code(address):
    bad = load.ItemList("q", np.zeros([1]), np.zeros([1, 2]), ("d",))

    found = load.run(address, "ranker", [bad], clients=1, seconds=0.2)

    assert list(found.errors) == ["INVALID_ARGUMENT"]
    assert (found.latencies.size, found.rate) == (0, 0.0)
    assert np.isnan(found.percentile(50))


def test_a_missing_file_or_server_is_status_2(tmp_path, file):
    for arguments in (["--file", str(tmp_path)], ["--file", str(file), "--address", "127.0.0.1:1"]):
        result = CliRunner().invoke(app, ["load-test", *arguments])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
