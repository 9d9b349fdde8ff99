import keras
import pytest

from tests.tfx.conftest import FEATURES
from tfrank_sel import export, models
from tfrank_sel.pipelines.tfx import infra_validation, sequences
from tfrank_sel.pipelines.tfx.infra_validation import RefusalError


@pytest.fixture(scope="module")
def layout(run):
    return run.layout()


@pytest.fixture(scope="module")
def asked(run, layout):
    return sequences.requests([run.split("test")], layout, 3)


@pytest.fixture(scope="module")
def server(run):
    [version] = (run.output / "serving" / "ranker").iterdir()
    with infra_validation.serve(str(version), 600.0) as server:
        yield server


def test_a_model_that_is_served_as_it_is_passes(server, asked, layout):
    assert 0.0 < infra_validation.check(server, asked, layout, 60_000.0) < 60_000.0


def test_late_answers_are_refused(server, asked, layout):
    with pytest.raises(RefusalError, match="answers must take at most 0 ms, took"):
        infra_validation.check(server, asked, layout, 0.0)


def test_other_scores_are_refused(server, asked, layout, tmp_path):
    keras.utils.set_random_seed(1)
    other = models.ListScorer([0.0] * FEATURES, [1.0] * FEATURES, [4])
    other.build((None, None, FEATURES))
    export.export(other, layout.spec, tmp_path / "other")
    wrong = infra_validation.Server(server.grpc, server.rest, str(tmp_path / "other"))
    with pytest.raises(RefusalError, match="gRPC must give the model's scores"):
        infra_validation.check(wrong, asked, layout, 60_000.0)


def test_no_answer_is_refused(server, asked, layout):
    silent = infra_validation.Server("127.0.0.1:1", server.rest, server.model)
    with pytest.raises(RefusalError, match=r"gRPC must answer\. Received: StatusCode\.UNAVAILABLE"):
        infra_validation.check(silent, asked, layout, 60_000.0)


def test_a_server_that_does_not_start_is_refused_with_what_it_said(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"no model")
    with (
        pytest.raises(RefusalError, match=r"must start within 600 s\. Output: .*does not load"),
        infra_validation.serve(str(tmp_path / "model"), 600.0),
    ):
        pass


def test_the_blessing_says_what_was_tried(run):
    folder = run.artefact("InfraValidator", "blessing")
    assert [path.name for path in folder.iterdir()] == ["INFRA_BLESSED"]
    assert "lists ranked, p99" in (folder / "INFRA_BLESSED").read_text()
