"""The folder that `tfrank-sel-serving deployment` writes: models, image and Compose."""

import pathlib
import re
import shutil

import pytest
from typer.testing import CliRunner

from tests.serving.deployments import deploy, entrypoint, read, run, tool
from tfrank_sel.export.releases import Releases
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.deployment import folder, model_config
from tfrank_sel.serving.deployment.check import check

ROOT = pathlib.Path(__file__).parents[2]


def test_the_folder_would_serve(deployment):
    done = CliRunner().invoke(app, ["check", str(deployment), f"--root={deployment}"])

    assert (done.exit_code, "no faults" in done.stdout) == (0, True)


def test_the_folder_holds_every_version_and_serves_the_latest_as_stable(deployment, half):
    [model] = model_config.read(deployment / "models.config")
    copied = deployment / "models" / "ranker"

    assert sorted(child.name for child in copied.iterdir()) == ["1", "2"]
    assert (model.policy.versions, model.labels) == ((2,), {"stable": 2})
    graph = "1/saved_model.pb"
    assert (copied / graph).read_bytes() == (half / graph).read_bytes()


@pytest.fixture(scope="module")
def published(half, tmp_path_factory):
    """A folder of models that servers poll."""
    root = tmp_path_factory.mktemp("published")
    Releases(str(root), "ranker").publish(half / "1")
    return root


def test_servers_poll_what_is_published_unless_the_image_holds_it(published, tmp_path):
    written = tmp_path / "written"
    done = deploy(written, published / "ranker")

    assert done.exit_code == 0, done.stderr
    assert {x.name for x in written.iterdir()} & {"models", "models.config"} == set()
    assert f"--model_config_file={published}/models.config" in entrypoint(written)
    mounts = {"name": "models", "mountPath": str(published), "readOnly": True}
    assert read(written, "compose.yaml")["services"]["server"]["volumes"] == [
        f"{published}:{published}:ro"
    ]
    claims = {"claimName": "ranker-models", "readOnly": True}
    pod = read(written, "kubernetes/deployment.yaml")["spec"]["template"]["spec"]
    for spec in (pod, read(written, "kserve/inference_service.yaml")["spec"]["predictor"]):
        assert mounts in spec["containers"][0]["volumeMounts"]
        assert {"name": "models", "persistentVolumeClaim": claims} in spec["volumes"]
    assert run(tool("hadolint"), written / "Dockerfile") == (0, "")


def test_a_folder_that_is_not_published_cannot_be_polled(published, half, tmp_path):
    told = deploy(tmp_path / "x", half, "half").stderr
    assert "publish a version, or copy the models into the image" in told
    assert (
        "must name the model another"
        in deploy(tmp_path / "x", published / "ranker", "another").stderr
    )
    (tmp_path / "a b").mkdir()
    Releases(str(tmp_path / "a b"), "ranker").publish(half / "1")
    assert "must be a plain path" in deploy(tmp_path / "x", tmp_path / "a b" / "ranker").stderr


def test_a_deployment_of_a_store_reads_it_and_mounts_nothing(tmp_path):
    folder.render(tmp_path, "ranker", base="gs://models/ranker")

    server = read(tmp_path, "compose.yaml")["services"]["server"]
    assert ("volumes" in server, set(server["networks"])) == (False, {"internal", "edge"})
    assert "--model_config_file=gs://models/models.config" in entrypoint(tmp_path)
    [ways] = read(tmp_path, "kubernetes/network_policy.yaml")["spec"]["egress"]
    assert {port["port"] for port in ways["ports"]} == {53, 80, 443}


def test_no_placeholder_is_left(deployment):
    texts = [p for p in deployment.rglob("*") if p.is_file() and "models" not in p.parts[:-1]]

    assert texts
    assert [path for path in texts if "@@" in path.read_text()] == []


def test_a_folder_is_never_overwritten(deployment, half):
    before = {path: path.stat().st_mtime_ns for path in deployment.rglob("*")}

    done = deploy(deployment, half)

    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "`output` must not exist" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in deployment.rglob("*")} == before


@pytest.mark.parametrize("name", ["Ranker", "a/b", "", "1st", "a-", "no", "a" * 49])
def test_a_name_that_kubernetes_would_not_take_is_refused(tmp_path, half, name):
    done = deploy(tmp_path / "x", half, name)

    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert f"Received: {name!r}" in done.stderr


def test_a_base_without_a_version_is_refused(tmp_path):
    (tmp_path / "base").mkdir()

    assert "must hold a version" in deploy(tmp_path / "x", tmp_path / "base").stderr
    assert "No such file" in deploy(tmp_path / "x", tmp_path / "away").stderr
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_a_version_that_would_not_serve_is_refused_and_leaves_nothing(tmp_path, half):
    shutil.copytree(half / "1", tmp_path / "base" / "1")
    (tmp_path / "base" / "1" / "saved_model.pb").write_bytes(b"no graph")

    done = deploy(tmp_path / "x", tmp_path / "base", "ranker", "--copy-models")

    assert done.exit_code == 2
    assert "models/ranker/1: must be a SavedModel" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_the_canary_of_the_operations_guide_would_serve(deployment, tmp_path):
    guide = (ROOT / "docs" / "operate.md").read_text()
    [block] = re.findall(r"```\n(model_version_policy.*?)```", guide, re.S)
    block = block.replace("3", "1").replace("4", "2")
    config = (deployment / "models.config").read_text()
    wanted = re.sub(r"model_version_policy.*?value: 2 }", block, config, flags=re.S)
    (tmp_path / "models.config").write_text(wanted)

    [model] = model_config.read(tmp_path / "models.config")
    assert (model.policy.versions, model.labels) == ((1, 2), {"stable": 1, "canary": 2})
    assert list(check(tmp_path, root=deployment)) == []


def test_hadolint_finds_nothing_in_the_dockerfile(deployment):
    assert run(tool("hadolint"), deployment / "Dockerfile") == (0, "")


def test_the_files_that_the_flags_name_are_in_the_image(deployment):
    dockerfile = (deployment / "Dockerfile").read_text()
    copied = re.search(r"^COPY (.*) /config/$", dockerfile, re.M).group(1)
    named = [f for flag in entrypoint(deployment) for f in re.findall(r"=/config/(.*)", flag)]

    assert set(named) <= set(copied.split())
    assert all((deployment / name).is_file() for name in copied.split())


def test_the_compose_file_keeps_the_schema(deployment):
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]

    code, said = run(*command, deployment / "compose.yaml")

    assert code == 0, said


def test_what_compose_mounts_is_in_the_folder_but_for_the_secrets(deployment):
    services = read(deployment, "compose.yaml")["services"].values()
    mounts = [mount for service in services for mount in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]

    assert len(files) == 5
    assert all((deployment / file).is_file() for file in files)


@pytest.mark.parametrize(("name", "wanted"), [("ranker", 0), ("away", 1)])
def test_the_health_check_of_compose_follows_the_state_of_the_model(
    deployment, deployed, name, wanted
):
    server = read(deployment, "compose.yaml")["services"]["server"]
    _, *shell, script = server["healthcheck"]["test"]
    script = script.replace("127.0.0.1/8501", deployed.replace(":", "/")).replace("$$", "$")

    assert run(*shell, script.replace("/ranker/", f"/{name}/"))[0] == wanted


def test_the_deployment_in_the_repository_is_what_is_written(tmp_path):
    folder.render(tmp_path, "ranker")  # `make serving` writes it

    written, kept = (
        {path.relative_to(top): path.read_text() for path in top.rglob("*") if path.is_file()}
        for top in (tmp_path, ROOT / "serving")
    )
    assert kept == written
