"""Prometheus and its alerts ask for what TensorFlow Serving exports."""

import http.client
import re

import grpc
import pytest
import yaml

from benchmarks.robustness.attacks import METHOD, predict_request
from tests.ports import free_port
from tests.serving import gateways
from tests.serving.deployments import manifests, read, run, tool
from tfrank_sel.serving import monitoring
from tfrank_sel.serving.deployment import folder

# those that TensorFlow Serving exports, beside the series of its histograms
METRICS = {
    ":tensorflow:serving:request_count",
    ":tensorflow:serving:request_latency",
    ":tensorflow:cc:saved_model:load_attempt_count",
}


def test_alerts_ask_for_metrics_of_tensorflow_serving(deployment):
    rules = read(deployment, "alerts.yml")["groups"][0]["rules"]
    named = {n for rule in rules for n in re.findall(r"(?<!\w):[a-z:_]+", rule["expr"])}

    assert {
        re.sub("_(bucket|count|sum)$", "", n) if "latency" in n else n for n in named
    } == METRICS


def test_every_scrape_asks_for_the_path_that_is_served(deployment):
    scrape, edge = read(deployment, "prometheus.yml")["scrape_configs"]
    [endpoint] = manifests(deployment)["ServiceMonitor"]["spec"]["endpoints"]

    assert edge["metrics_path"] == "/stats/prometheus"
    assert scrape["metrics_path"] == endpoint["path"] == monitoring.PATH
    assert f'path: "{monitoring.PATH}"' in (deployment / "monitoring.config").read_text()


def test_promtool_takes_the_configuration_and_the_alerts(deployment):
    code, said = run(tool("promtool"), "check", "config", deployment / "prometheus.yml")

    assert (code, "14 rules found" in said) == (0, True), said


def count(status):
    return f':tensorflow:serving:request_count{{model_name="ranker", status="{status}"}}'


def at_most(limit):
    labels = f'{{model_name="ranker", API="Predict", le="{limit}"}}'
    return f":tensorflow:serving:request_latency_bucket{labels}"


def loads(version, status):
    labels = f'{{model_path="/models/ranker/{version}", status="{status}"}}'
    return f":tensorflow:cc:saved_model:load_attempt_count{labels}"


def edge(code):
    labels = f'{{envoy_http_conn_manager_prefix="ranker", envoy_response_code_class="{code}"}}'
    return f"envoy_http_downstream_rq_xx{labels}"


def edge_grpc(status):
    return f'envoy_cluster_grpc{{envoy_cluster_name="ranker", grpc_status="{status}"}}'


def another(series):
    return series.replace("ranker", "another")


ANSWERED = ':tensorflow:serving:request_latency_count{model_name="ranker", API="Predict"}'


@pytest.mark.parametrize(
    ("alerts", "series", "minutes"),
    [
        ("ServerDown", {'up{job="ranker", instance="a"}': "0x60"}, 2),
        # half of the predictions fail: one that lasts is told by both
        ("ServerErrors|ServerErrorsSlowly", {count("INTERNAL"): "0+100x60"}, 20),
        ("ServerErrorsSlowly", {count("INTERNAL"): "0+1x60"}, 50),
        ("BadRequests", {count("NOT_FOUND"): "0+10x60"}, 40),
        (
            "SlowAnswers",
            {at_most("1e5"): "0+9x60", at_most("1e6"): "0+10x60", at_most("+Inf"): "0+10x60"},
            30,
        ),
        ("NoTraffic", {ANSWERED: "100x60"}, 40),
        ("VersionDoesNotLoad", {loads(2, "fail"): "_x20 1x40"}, 25),
        (
            "StaleModel",
            {loads(1, "success"): "1x15000", another(loads(2, "success")): "_x9000 1x6000"},
            12000,
        ),
        ("none", {loads(1, "success"): "1x60", another(loads(2, "fail")): "_x20 1x40"}, 25),
        ("Restarts", {count("OK"): "0+9x9 0+9x9 0+9x9 0+9x9"}, 40),
        ("EdgeErrors", {edge(5): "0+10x60", edge(2): "0+90x60"}, 20),
        ("EdgeErrors", {edge(5): "0x60", edge(2): "0+90x60", edge_grpc(14): "0+10x60"}, 20),
        ("none", {edge(5): "0x60", edge(2): "0+90x60", edge_grpc(3): "0+10x60"}, 20),
        ("none", {loads(1, "success"): "1x15000", count("OK"): "0+100x60"}, 50),
    ],
)
def test_an_alert_fires_alone(deployment, tmp_path, alerts, series, minutes):
    long = "x15000" if minutes > 60 else "x60"
    seen = {'up{job="ranker", instance="b"}': f"1{long}", ANSWERED: f"0+100{long}", **series}
    others = f'count(ALERTS{{alertname!~"{alerts}", alertstate="firing"}}) or vector(0)'
    fires = f'count(ALERTS{{alertname=~"{alerts}", alertstate="firing"}}) or vector(0)'
    wanted = 0 if alerts == "none" else alerts.count("|") + 1
    expected = {fires: {"{}": wanted}, others: {"{}": 0}}

    code, said = asked(deployment, tmp_path, seen, expected, minutes)

    assert code == 0, said


@pytest.mark.parametrize(
    "base", ["/srv/models/ranker", "/srv/shop.x/Ranker v1+(a)", "gs://models/ranker", "/srv/'ä\"$"]
)
def test_alerts_of_versions_ask_for_the_folder_whatever_the_name(tmp_path, base):
    folder.render(tmp_path / "shop", "shop", base=base)
    rules = read(tmp_path / "shop", "alerts.yml")["groups"][0]["rules"]
    asked = {x["alert"]: x["expr"] for x in rules if "load_attempt_count" in x["expr"]}
    patterns = re.findall(r'model_path=~"(.*?)"', "".join(asked.values()))
    assert (asked.keys(), len(patterns)) == ({"VersionDoesNotLoad", "StaleModel"}, 6)
    for pattern in patterns:
        assert re.fullmatch(pattern, f"{base}/12")
        assert not re.fullmatch(pattern, f"{base}-b/12")
        assert not re.fullmatch(pattern, "/srv/models/shop/12")


def test_alerts_of_two_deployments_do_not_mix(deployment, tmp_path):
    folder.render(tmp_path / "another", "another", 1)
    half_fail = {ANSWERED: "0+100x60", count("INTERNAL"): "0+100x60"}
    series = {**half_fail, another(ANSWERED): "0+100x60", another(count("NOT_FOUND")): "0+100x60"}
    series |= {f'up{{job="{name}", instance="{name}"}}': "1x60" for name in ("ranker", "another")}
    firing = 'count by (alertname, model_name) (ALERTS{alertstate="firing"})'
    expected = {
        f'{{alertname="{alert}", model_name="{name}"}}': 1
        for alert, name in (
            ("ServerErrors", "ranker"),
            ("ServerErrorsSlowly", "ranker"),
            ("BadRequests", "another"),
        )
    }

    code, said = asked(deployment, tmp_path, series, {firing: expected}, 40, tmp_path / "another")

    assert code == 0, said


def asked(deployment, tmp_path, series, expected, minutes, *others):
    """Asks Prometheus for expressions, whose samples are expected by labels."""
    tests = [
        {
            "expr": expression,
            "eval_time": f"{minutes}m",
            "exp_samples": [{"labels": x, "value": y} for x, y in samples.items()],
        }
        for expression, samples in expected.items()
    ]
    given = [{"series": key, "values": values} for key, values in series.items()]
    cases = {
        "rule_files": [str(x / "alerts.yml") for x in (deployment, *others)],
        "tests": [{"interval": "1m", "input_series": given, "promql_expr_test": tests}],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(cases))
    return run(tool("promtool"), "test", "rules", tmp_path / "tests.yml")


def test_the_rules_of_kubernetes_are_those_of_prometheus(deployment):
    rule = manifests(deployment)["PrometheusRule"]

    assert rule["spec"] == read(deployment, "alerts.yml")


def test_alerts_reach_alertmanager_and_a_receiver(deployment):
    services = read(deployment, "compose.yaml")["services"]
    config = read(deployment, "alertmanager.yml")
    [manager] = read(deployment, "prometheus.yml")["alerting"]["alertmanagers"]
    receivers = {receiver["name"] for receiver in config["receivers"]}

    assert manager["static_configs"][0]["targets"] == ["alertmanager:9093"]
    assert set(services["prometheus"]["networks"]) & set(services["alertmanager"]["networks"])
    assert {route["receiver"] for route in config["route"]["routes"]} <= receivers


def test_every_service_of_compose_is_bounded_and_the_server_has_no_way_out(deployment):
    compose = read(deployment, "compose.yaml")

    assert all(
        {"mem_limit", "pids_limit", "networks"} <= x.keys() for x in compose["services"].values()
    )
    assert set(compose["services"]["server"]["networks"]) == {"internal"}
    assert compose["networks"]["internal"] == {"internal": True}


def test_envoy_counts_the_failures_of_grpc_as_the_alert_asks(deployment, tmp_path):
    ports = free_port(), free_port()
    with gateways.running(deployment, "ranker", tmp_path, *ports) as gateway:
        call = gateway.channel.unary_unary(METHOD)
        for request, code in [(b"", "UNAVAILABLE")] * 5 + [
            (predict_request(100_000_000), "INVALID_ARGUMENT"),
            (bytes(20_000_000), "UNKNOWN"),  # too large, which is no fault of the server
        ]:
            with pytest.raises(grpc.RpcError) as error:
                call(request, metadata=gateway.metadata)
            assert error.value.code().name == code
        connection = http.client.HTTPConnection("localhost", gateway.metrics_port)
        connection.request("GET", "/stats/prometheus")
        text = connection.getresponse().read().decode()

    [line] = [x for x in text.splitlines() if x.startswith("envoy_cluster_grpc{")]
    assert line == 'envoy_cluster_grpc{envoy_cluster_name="ranker",grpc_status="14"} 5'


def test_prometheus_scrapes_the_gateway_on_kubernetes_and_clients_do_not(deployment):
    service, metrics, monitor = (
        read(deployment, f"gateway/{name}.yaml")
        for name in ("service", "metrics_service", "service_monitor")
    )
    pod = read(deployment, "gateway/deployment.yaml")["spec"]["template"]
    [port], [endpoint] = metrics["spec"]["ports"], monitor["spec"]["endpoints"]
    [container] = pod["spec"]["containers"]

    assert monitor["spec"]["selector"]["matchLabels"] == metrics["metadata"]["labels"]
    assert metrics["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/stats/prometheus")
    assert {"name": port["name"], "containerPort": port["port"]} in container["ports"]
    assert [x["name"] for x in service["spec"]["ports"]] == ["https"]
    listed = read(deployment, "kustomization.yaml")["resources"]
    found = {f"gateway/{path.name}" for path in (deployment / "gateway").iterdir()}
    assert {x for x in listed if x.startswith("gateway/")} == found
