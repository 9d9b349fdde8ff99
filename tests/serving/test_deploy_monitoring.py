"""Prometheus, its alerts and Grafana's dashboard ask for what TensorFlow Serving exports."""

import itertools
import json
import re

import pytest
import yaml

from tests.serving.deployments import manifests, read, run, tool
from tfrank_sel.serving import monitoring

# those that TensorFlow Serving exports, beside the series of its histograms
METRICS = {
    ":tensorflow:serving:request_count",
    ":tensorflow:serving:request_latency",
    ":tensorflow:serving:runtime_latency",
}


def expressions(deployment):
    rules = read(deployment, "alerts.yml")["groups"][0]["rules"]
    panels = json.loads((deployment / "grafana" / "dashboard.json").read_text())["panels"]
    return [rule["expr"] for rule in rules] + [t["expr"] for p in panels for t in p["targets"]]


def test_alerts_and_panels_ask_for_metrics_of_tensorflow_serving(deployment):
    named = set(itertools.chain(*(re.findall(r":[a-z:_]+", e) for e in expressions(deployment))))

    assert {re.sub("_(bucket|count)$", "", n) if "latency" in n else n for n in named} == METRICS


def test_every_scrape_asks_for_the_path_that_is_served(deployment):
    [scrape] = read(deployment, "prometheus.yml")["scrape_configs"]
    [endpoint] = manifests(deployment)["ServiceMonitor"]["spec"]["endpoints"]

    assert scrape["metrics_path"] == endpoint["path"] == monitoring.PATH
    assert f'path: "{monitoring.PATH}"' in (deployment / "monitoring.config").read_text()


def test_promtool_takes_the_configuration_and_the_alerts(deployment):
    code, said = run(tool("promtool"), "check", "config", deployment / "prometheus.yml")

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
def test_an_alert_fires_alone(deployment, tmp_path, alert, series, minutes):
    seen = {'up{job="ranker", instance="b"}': "1x60", **series}
    others = f'count(ALERTS{{alertname!="{alert}", alertstate="firing"}}) or vector(0)'
    fires = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    cases = {
        "rule_files": [str(deployment / "alerts.yml")],
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
                    for expression, count in ((fires, 1), (others, 0))
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(cases))

    code, said = run(tool("promtool"), "test", "rules", tmp_path / "tests.yml")

    assert code == 0, said
