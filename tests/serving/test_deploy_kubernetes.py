"""What runs a deployment on Kubernetes and KServe."""

import re

import pytest
import yaml

from tests.serving.deployments import (
    container,
    entrypoint,
    kubernetes,
    manifests,
    read,
    run,
    status,
    tool,
)

# resources of the Prometheus operator
OPERATOR = {"service_monitor.yaml", "prometheus_rule.yaml"}


def test_kubernetes_takes_the_manifests(deployment):
    known = [path for path in kubernetes(deployment) if path.split("/")[1] not in OPERATOR]
    command = [tool("kubernetes-validate"), "--strict", *(deployment / path for path in known)]

    code, said = run(*command)

    assert (code, len(known)) == (0, 5), said


def test_kustomize_names_every_manifest_and_every_configuration(deployment):
    found = read(deployment, "kustomization.yaml")
    configs, gateway = found["configMapGenerator"]

    ours = [path for path in found["resources"] if path.startswith("kubernetes/")]
    assert sorted(ours) == sorted(kubernetes(deployment))
    assert gateway == {"name": "ranker-gateway", "files": ["envoy.yaml", "bounds.lua"]}
    mounted = read(deployment, "gateway/deployment.yaml")["spec"]["template"]["spec"]["volumes"]
    assert mounted[0]["configMap"]["name"] == gateway["name"]
    assert set(configs["files"]) == {path.name for path in deployment.glob("*.config")}
    volumes = manifests(deployment)["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["configMap"]["name"] == configs["name"]
    assert container(deployment)["image"].split(":")[0] == found["images"][0]["name"]


def test_kubectl_builds_what_the_kustomization_says(deployment):
    code, said = run(tool("kubectl"), "kustomize", deployment)
    assert code == 0, said
    built = {
        manifest["kind"]: manifest
        for manifest in yaml.safe_load_all(said)
        if manifest["metadata"]["name"] == "ranker"
    }

    assert built.keys() == {*manifests(deployment), "ConfigMap"}
    assert built["ConfigMap"]["metadata"]["name"] == "ranker"
    configs = {path.name: path.read_text() for path in deployment.glob("*.config")}
    assert built["ConfigMap"]["data"] == configs
    [server] = built["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert server["image"] == "registry.example/ranker:2"


def test_selectors_find_the_pods_and_the_service(deployment):
    found = manifests(deployment)
    pods = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    spec = {kind: manifest["spec"] for kind, manifest in found.items()}

    assert spec["Deployment"]["selector"]["matchLabels"] == pods
    assert spec["Service"]["selector"] == pods
    assert spec["PodDisruptionBudget"]["selector"]["matchLabels"] == pods
    assert spec["NetworkPolicy"]["podSelector"]["matchLabels"] == pods
    labels = found["Service"]["metadata"]["labels"]
    assert spec["ServiceMonitor"]["selector"]["matchLabels"] == labels
    ports = {port["name"]: port["port"] for port in spec["Service"]["ports"]}
    assert ports == {p["name"]: p["containerPort"] for p in container(deployment)["ports"]}
    assert {f"--port={ports['grpc']}", f"--rest_api_port={ports['rest']}"} <= set(
        entrypoint(deployment)
    )
    assert spec["ServiceMonitor"]["endpoints"][0]["port"] in ports


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe"])
def test_a_probe_succeeds_once_a_version_is_available(deployment, deployed, probe):
    path = container(deployment)[probe]["httpGet"]["path"]

    assert status(deployed, path) == 200
    assert status(deployed, path.replace("ranker", "away")) == 404
    assert status(deployed, path.replace("/metadata", "/labels/stable/metadata")) == 200


def test_a_pod_ends_after_its_connections_and_the_requests_that_it_took(deployment):
    spec = manifests(deployment)["Deployment"]["spec"]["template"]["spec"]
    command, seconds = container(deployment)["lifecycle"]["preStop"]["exec"]["command"]
    flags = " ".join(entrypoint(deployment))
    age, grace, timeout = (
        int(re.search(rf"{name}=(\d+)", flags).group(1)) / 1000
        for name in ("max_connection_age_ms", "max_connection_age_grace_ms", "timeout_in_ms")
    )

    assert (command, timeout) == ("sleep", grace)
    assert age < int(seconds)
    assert int(seconds) + timeout < spec["terminationGracePeriodSeconds"]


def test_kserve_runs_the_same_image_with_the_same_probe(deployment):
    [served] = read(deployment, "kserve/inference_service.yaml")["spec"]["predictor"]["containers"]
    image = read(deployment, "kustomization.yaml")["images"][0]

    assert served["image"] == f"{image['newName']}:{image['newTag']}"
    probe = container(deployment)["readinessProbe"]["httpGet"]
    assert served["readinessProbe"]["httpGet"]["path"] == probe["path"]
