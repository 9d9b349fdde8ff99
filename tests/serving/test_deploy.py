"""What `tfrank-sel-serving deployment` writes, read by the tools that would read it."""

import dataclasses
import http.client
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml
from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2 as _buffer
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as _jwt
from envoy.extensions.filters.http.router.v3 import router_pb2 as _router
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2 as _tls
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as _options
from google.protobuf import json_format
from typer.testing import CliRunner

from serving import model_config, monitoring
from serving.__main__ import app
from serving.endpoint import Endpoint

# what the messages above are for: an `Any` is read once its message is known
READ_AS_ANY = (_buffer, _jwt, _router, _tls, _options)

# those that TensorFlow Serving exports, beside the series of its histograms
METRICS = {
    ":tensorflow:serving:request_count",
    ":tensorflow:serving:request_latency",
    ":tensorflow:serving:runtime_latency",
}


def tool(name):
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which(name, path=path)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def deploy(output, base, name="ranker"):
    options = {"output": output, "model-name": name, "saved-model-base": base}
    return CliRunner().invoke(
        app, ["deployment", *(f"--{key}={value}" for key, value in options.items())]
    )


@pytest.fixture(scope="module")
def folder(half, tmp_path_factory):
    output = tmp_path_factory.mktemp("deployments") / "ranker"
    done = deploy(output, half)
    assert done.exit_code == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def address(folder):
    """Of a server with the folder's models and the labels that its flags allow."""
    allow = "--allow_version_labels_for_unavailable_models=true" in entrypoint(folder)
    models = [
        dataclasses.replace(model, base_path=folder / model.base_path.relative_to("/"))
        for model in model_config.read(folder / "models.config")
    ]
    with Endpoint(models, allow_labels_for_unavailable=allow) as endpoint:
        yield f"127.0.0.1:{endpoint.rest_port}"


def entrypoint(folder):
    text = (folder / "Dockerfile").read_text().replace("\\\n", "")
    return json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M).group(1))


def read(folder, name):
    return yaml.safe_load((folder / name).read_text())


def manifests(folder):
    return {read(folder, path)["kind"]: read(folder, path) for path in kubernetes(folder)}


def kubernetes(folder):
    return [f"kubernetes/{path.name}" for path in (folder / "kubernetes").iterdir()]


def status(address, path):
    connection = http.client.HTTPConnection(address)
    connection.request("GET", path)
    return connection.getresponse().status


def container(folder):
    [found] = manifests(folder)["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found


# the folder


def test_the_folder_would_serve(folder):
    done = CliRunner().invoke(app, ["check", str(folder), f"--root={folder}"])

    assert (done.exit_code, "would serve" in done.stdout) == (0, True)


def test_the_folder_holds_every_version_and_serves_the_latest_as_stable(folder, half):
    [model] = model_config.read(folder / "models.config")
    copied = folder / "models" / "ranker"

    assert sorted(child.name for child in copied.iterdir()) == ["1", "2"]
    assert (model.policy.versions, model.labels) == ((2,), {"stable": 2})
    graph = "1/saved_model.pb"
    assert (copied / graph).read_bytes() == (half / graph).read_bytes()


def test_no_placeholder_is_left(folder):
    texts = [p for p in folder.rglob("*") if p.is_file() and "models" not in p.parts[:-1]]

    assert texts
    assert [path for path in texts if "@@" in path.read_text()] == []


def test_a_folder_is_never_overwritten(folder, half):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    done = deploy(folder, half)

    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "`output` must be new" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


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

    done = deploy(tmp_path / "x", tmp_path / "base")

    assert done.exit_code == 2
    assert "models/ranker/1/saved_model.pb: must be a SavedModel" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


# the image, and Compose


def test_hadolint_finds_nothing_in_the_dockerfile(folder):
    assert run(tool("hadolint"), folder / "Dockerfile") == (0, "")


def test_the_files_that_the_flags_name_are_in_the_image(folder):
    copied = re.search(r"^COPY (.*) /config/$", (folder / "Dockerfile").read_text(), re.M).group(1)
    named = [f for flag in entrypoint(folder) for f in re.findall(r"=/config/(.*)", flag)]

    assert set(named) <= set(copied.split())
    assert all((folder / name).is_file() for name in copied.split())


def test_the_compose_file_keeps_the_schema(folder):
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]

    assert run(*command, folder / "compose.yaml")[0] == 0, run(*command, folder / "compose.yaml")


def test_what_compose_mounts_is_in_the_folder_but_for_the_secrets(folder):
    services = read(folder, "compose.yaml")["services"].values()
    mounts = [mount for service in services for mount in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]

    assert len(files) == 6
    assert all((folder / file).is_file() for file in files)


@pytest.mark.parametrize(("name", "wanted"), [("ranker", 0), ("away", 1)])
def test_the_health_check_of_compose_follows_the_state_of_the_model(folder, address, name, wanted):
    *shell, script = read(folder, "compose.yaml")["services"]["server"]["healthcheck"]["test"][1:]
    script = script.replace("127.0.0.1/8501", address.replace(":", "/")).replace("$$", "$")

    assert run(*shell, script.replace("/ranker/", f"/{name}/"))[0] == wanted


# Envoy


@pytest.fixture(scope="module")
def bootstrap(folder):
    return json_format.ParseDict(read(folder, "envoy.yaml"), bootstrap_pb2.Bootstrap())


@pytest.fixture(scope="module")
def manager(bootstrap):
    [listener] = bootstrap.static_resources.listeners
    [chain] = listener.filter_chains
    found = manager_pb2.HttpConnectionManager()
    assert chain.filters[0].typed_config.Unpack(found)
    return found


def test_envoy_speaks_tls_only(bootstrap):
    [listener] = bootstrap.static_resources.listeners
    [chain] = listener.filter_chains
    tls = _tls.DownstreamTlsContext()

    assert chain.transport_socket.typed_config.Unpack(tls)
    assert tls.common_tls_context.tls_certificates[0].private_key.filename


def test_every_request_needs_a_token(manager):
    jwt = _jwt.JwtAuthentication()

    assert manager.http_filters[0].typed_config.Unpack(jwt)
    [rule] = jwt.rules
    assert (rule.match.prefix, rule.requires.provider_name) == ("/", "tokens")
    assert list(jwt.providers["tokens"].audiences) == ["ranker"]


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("/v1/models/ranker:predict", True),
        ("/v1/models/ranker/labels/stable:classify", True),
        ("/v1/models/ranker/versions/1/metadata", True),
        ("/v1/models/ranker", True),
        ("/v1/models/rankers:predict", False),
        (monitoring.PATH, False),
        ("/", False),
    ],
)
def test_only_predictions_and_the_state_of_the_model_pass_as_rest(manager, path, passes):
    [host] = manager.route_config.virtual_hosts
    rest = host.routes[1]

    assert rest.route.cluster == "rest"
    assert bool(re.fullmatch(rest.match.safe_regex.regex, path)) == passes


def test_only_the_prediction_service_passes_as_grpc(manager):
    [host] = manager.route_config.virtual_hosts

    assert len(host.routes) == 2
    assert host.routes[0].match.prefix == "/tensorflow.serving.PredictionService/"
    assert host.routes[0].route.cluster == "grpc"


def test_envoy_asks_the_state_of_the_model_for_both_interfaces(bootstrap, address):
    for cluster in bootstrap.static_resources.clusters:
        [locality] = cluster.load_assignment.endpoints
        [found] = locality.lb_endpoints
        socket = found.endpoint.address.socket_address
        port = found.endpoint.health_check_config.port_value or socket.port_value
        assert (socket.address, port) == ("server", 8501)
        assert status(address, cluster.health_checks[0].http_health_check.path) == 200


# Prometheus and Grafana


def expressions(folder):
    rules = read(folder, "alerts.yml")["groups"][0]["rules"]
    panels = json.loads((folder / "grafana" / "dashboard.json").read_text())["panels"]
    return [rule["expr"] for rule in rules] + [t["expr"] for p in panels for t in p["targets"]]


def test_alerts_and_panels_ask_for_metrics_of_tensorflow_serving(folder):
    named = set(itertools.chain(*(re.findall(r":[a-z:_]+", e) for e in expressions(folder))))

    assert {re.sub("_(bucket|count)$", "", n) if "latency" in n else n for n in named} == METRICS


def test_every_scrape_asks_for_the_path_that_is_served(folder):
    [scrape] = read(folder, "prometheus.yml")["scrape_configs"]
    [endpoint] = manifests(folder)["ServiceMonitor"]["spec"]["endpoints"]

    assert scrape["metrics_path"] == endpoint["path"] == monitoring.PATH
    assert f'path: "{monitoring.PATH}"' in (folder / "monitoring.config").read_text()


def test_promtool_takes_the_configuration_and_the_alerts(folder):
    code, said = run(tool("promtool"), "check", "config", folder / "prometheus.yml")

    assert (code, "4 rules found" in said) == (0, True), said


def count(status):
    return f':tensorflow:serving:request_count{{model_name="ranker", status="{status}"}}'


def at_most(limit):
    return f':tensorflow:serving:request_latency_bucket{{model_name="ranker", le="{limit}"}}'


@pytest.mark.parametrize(
    ("alert", "series", "minutes"),
    [
        ("ServerDown", {'up{job="ranker", instance="a"}': "0x60"}, 2),
        ("ServerErrors", {count("OK"): "0+90x60", count("INTERNAL"): "0+10x60"}, 20),
        ("BadRequests", {count("NOT_FOUND"): "0+10x60"}, 40),
        (
            "SlowAnswers",
            {at_most("1e5"): "0+9x60", at_most("1e6"): "0+10x60", at_most("+Inf"): "0+10x60"},
            30,
        ),
    ],
)
def test_an_alert_fires(folder, tmp_path, alert, series, minutes):
    seen = {'up{job="ranker", instance="b"}': "1x60", **series}
    query = f'count(ALERTS{{alertname!="{alert}", alertstate="firing"}}) or vector(0)'
    fires = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    cases = {
        "rule_files": [str(folder / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in seen.items()],
                "promql_expr_test": [
                    {
                        "expr": expression,
                        "eval_time": f"{minutes}m",
                        "exp_samples": [{"labels": "{}", "value": count}],
                    }
                    for expression, count in ((fires, 1), (query, 0))
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(cases))

    code, said = run(tool("promtool"), "test", "rules", tmp_path / "tests.yml")

    assert code == 0, said


# Kubernetes and KServe


def test_kubernetes_takes_the_manifests(folder):
    known = [path for path in kubernetes(folder) if "service_monitor" not in path]
    command = [tool("kubernetes-validate"), "--strict", *(folder / path for path in known)]

    code, said = run(*command)

    assert (code, len(known)) == (0, 5), said


def test_kustomize_names_every_manifest_and_every_configuration(folder):
    found = read(folder, "kustomization.yaml")
    [configs] = found["configMapGenerator"]

    assert sorted(found["resources"]) == sorted(kubernetes(folder))
    assert set(configs["files"]) == {path.name for path in folder.glob("*.config")}
    volumes = manifests(folder)["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["configMap"]["name"] == configs["name"]
    assert container(folder)["image"].split(":")[0] == found["images"][0]["name"]


def test_selectors_find_the_pods_and_the_service(folder):
    found = manifests(folder)
    pods = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    spec = {kind: manifest["spec"] for kind, manifest in found.items()}

    assert spec["Deployment"]["selector"]["matchLabels"] == pods
    assert spec["Service"]["selector"] == pods
    assert spec["PodDisruptionBudget"]["selector"]["matchLabels"] == pods
    assert spec["NetworkPolicy"]["podSelector"]["matchLabels"] == pods
    labels = found["Service"]["metadata"]["labels"]
    assert spec["ServiceMonitor"]["selector"]["matchLabels"] == labels
    ports = {port["name"]: port["port"] for port in spec["Service"]["ports"]}
    assert ports == {p["name"]: p["containerPort"] for p in container(folder)["ports"]}
    assert {f"--port={ports['grpc']}", f"--rest_api_port={ports['rest']}"} <= set(
        entrypoint(folder)
    )
    assert spec["ServiceMonitor"]["endpoints"][0]["port"] in ports


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe"])
def test_a_probe_succeeds_once_a_version_is_available(folder, address, probe):
    path = container(folder)[probe]["httpGet"]["path"]

    assert status(address, path) == 200
    assert status(address, path.replace("ranker", "away")) == 404
    assert status(address, path.replace("/metadata", "/labels/stable/metadata")) == 200


def test_a_pod_ends_after_the_requests_that_it_took(folder):
    spec = manifests(folder)["Deployment"]["spec"]["template"]["spec"]
    command, seconds = container(folder)["lifecycle"]["preStop"]["exec"]["command"]
    [timeout] = [
        int(flag.split("=")[1]) / 1000
        for flag in entrypoint(folder)
        if flag.startswith("--rest_api_timeout_in_ms")
    ]

    assert shlex.join([command]) == "sleep"
    assert spec["terminationGracePeriodSeconds"] > int(seconds) + timeout


def unknown(value, model, models):
    """Returns the keys that a message of KServe's or Kubernetes' API does not have."""
    if model.startswith("list["):
        return [k for item in value for k in unknown(item, model[5:-1], models)]
    kind = models(model)
    if kind is None:
        return []
    fields = {alias: kind.openapi_types[name] for name, alias in kind.attribute_map.items()}
    found = [key for key in value if key not in fields]
    for key in fields.keys() & value.keys():
        found += unknown(value[key], fields[key], models)
    return found


@pytest.mark.parametrize(("key", "wanted"), [("minReplicas", []), ("minReplica", ["minReplica"])])
def test_kserve_knows_every_field_of_the_inference_service(folder, key, wanted):
    kserve = pytest.importorskip("kserve")
    kubernetes_models = pytest.importorskip("kubernetes.client")
    service = read(folder, "kserve/inference_service.yaml")
    service["spec"]["predictor"][key] = service["spec"]["predictor"].pop("minReplicas")

    def models(name):
        return getattr(kserve, name, None) or getattr(kubernetes_models, name, None)

    assert unknown(service, "V1beta1InferenceService", models) == wanted


def test_kserve_runs_the_same_image_with_the_same_probe(folder):
    [served] = read(folder, "kserve/inference_service.yaml")["spec"]["predictor"]["containers"]
    image = read(folder, "kustomization.yaml")["images"][0]

    assert served["image"] == f"{image['newName']}:{image['newTag']}"
    probe = container(folder)["readinessProbe"]["httpGet"]
    assert served["readinessProbe"]["httpGet"]["path"] == probe["path"]
