"""A real API server takes the Kubernetes and KServe files of a deployment, and admits the pods."""

import json

import pytest
import yaml

from tests.kubernetes import cluster
from tests.kubernetes.cluster import RefusedError
from tfrank_sel.serving.deployment import folder

POD = {"automountServiceAccountToken", "containers", "securityContext", "volumes"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with cluster.running(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(
    scope="module",
    params=[{"version": 1}, {}, {"base": "gs://models/ranker"}],
    ids=["image", "disk", "store"],
)
def deployment(request, tmp_path_factory):
    written = tmp_path_factory.mktemp("deployment")
    folder.render(written, "ranker", **request.param)
    return written


def sent(server, *files):
    """What is applied, as kubectl reads it."""
    said = server.ask("create", "--dry-run=client", "--validate=false", "-o=yaml", *files)
    return list(yaml.safe_load_all(said))


def kept(asked, found):
    """Whether all that was asked for is in what is found."""
    if isinstance(asked, dict):
        return all(key in found and kept(asked[key], found[key]) for key in asked)
    if isinstance(asked, list):
        return len(asked) == len(found) and all(map(kept, asked, found))
    return asked == found


@pytest.mark.parametrize(
    ("given", "number"), [("--kustomize=.", 13), ("--filename=kserve/inference_service.yaml", 1)]
)
def test_the_files_are_applied_without_a_warning_and_read_back(server, deployment, given, number):
    option, _, path = given.partition("=")
    files = f"{option}={deployment / path}"

    said = server.ask("apply", "--dry-run=server", "--validate=strict", files)
    assert "warning" not in said.lower(), said
    server.ask("apply", "--validate=strict", files)

    applied = sent(server, files)
    assert len(applied) == number
    for asked in applied:
        kind, name = asked["kind"], asked["metadata"]["name"]
        found = json.loads(server.ask("get", kind, name, "-o=json"))
        assert kept(asked, found), (asked, found)


def pods(deployment):
    """The pods that controllers would make of the files."""
    for path in ("kubernetes/deployment.yaml", "gateway/deployment.yaml"):
        template = yaml.safe_load((deployment / path).read_text())["spec"]["template"]
        yield template["spec"]
    service = yaml.safe_load((deployment / "kserve/inference_service.yaml").read_text())
    predictor = service["spec"]["predictor"]
    yield {key: value for key, value in predictor.items() if key in POD}


def create(server, spec):
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "pod-"}, "spec": spec}
    return server.ask("create", "--validate=strict", "--filename=-", given=made)


def test_a_namespace_for_restricted_pods_admits_each_pod(server, deployment):
    said = [create(server, spec) for spec in pods(deployment)]

    assert all("created" in line and "Warning" not in line for line in said), said
    assert len(said) == 3


def test_a_pod_with_more_rights_is_not_admitted(server, deployment):
    spec = next(pods(deployment))
    del spec["containers"][0]["securityContext"]["capabilities"]

    with pytest.raises(RefusedError, match='violates PodSecurity "restricted'):
        create(server, spec)


@pytest.mark.parametrize(
    ("path", "right", "wrong", "message"),
    [
        ("deployment.yaml", "maxSurge: 1", "maxSurge: one", "maxSurge"),
        ("deployment.yaml", "periodSeconds", "periodSecond", "unknown field"),
        ("horizontal_pod_autoscaler.yaml", "minReplicas: 2", "minReplicas: 20", "maxReplicas"),
        ("service.yaml", "port: 8501", "port: 85010", "must be between 1 and 65535"),
        ("service_monitor.yaml", "endpoints:", "endpoint:", "unknown field"),
        ("prometheus_rule.yaml", "for: 15m", "for: 15 minutes", "in body should match"),
    ],
)
def test_a_broken_file_is_refused(server, deployment, tmp_path, path, right, wrong, message):
    text = (deployment / "kubernetes" / path).read_text()
    assert right in text
    (tmp_path / path).write_text(text.replace(right, wrong))

    with pytest.raises(RefusedError, match=message):
        server.ask("apply", "--dry-run=server", "--validate=strict", f"-f={tmp_path / path}")
