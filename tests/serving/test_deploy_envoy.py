"""The proxy of a deployment, read into Envoy's own messages."""

import re

import pytest
from google.protobuf import json_format

from tests.serving.deployments import read, status
from tfrank_sel.serving import monitoring

pytest.importorskip("envoy", reason="xds-protos is not installed")

from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.extensions.access_loggers.stream.v3 import stream_pb2 as _access
from envoy.extensions.filters.http.buffer.v3 import buffer_pb2 as _buffer
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as _jwt
from envoy.extensions.filters.http.router.v3 import router_pb2 as _router
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.resource_monitors.downstream_connections.v3 import (
    downstream_connections_pb2 as _connections,
)
from envoy.extensions.resource_monitors.fixed_heap.v3 import fixed_heap_pb2 as _heap
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2 as _tls
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as _options

# what the messages above are for: an `Any` is read once its message is known
READ_AS_ANY = (_access, _buffer, _connections, _heap, _jwt, _router, _tls, _options)


@pytest.fixture(scope="module")
def bootstrap(deployment):
    return json_format.ParseDict(read(deployment, "envoy.yaml"), bootstrap_pb2.Bootstrap())


@pytest.fixture(scope="module")
def manager(bootstrap):
    _, listener = bootstrap.static_resources.listeners
    [chain] = listener.filter_chains
    found = manager_pb2.HttpConnectionManager()
    assert chain.filters[0].typed_config.Unpack(found)
    return found


def test_envoy_speaks_tls_only(bootstrap):
    _, listener = bootstrap.static_resources.listeners
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


def test_envoy_asks_the_state_of_the_model_for_both_interfaces(bootstrap, deployed):
    for cluster in bootstrap.static_resources.clusters[1:]:
        [locality] = cluster.load_assignment.endpoints
        [found] = locality.lb_endpoints
        socket = found.endpoint.address.socket_address
        port = found.endpoint.health_check_config.port_value or socket.port_value
        assert (socket.address, port) == ("ranker", 8501)
        assert status(deployed, cluster.health_checks[0].http_health_check.path) == 200


def test_the_metrics_of_envoy_are_open_and_its_administration_is_not(bootstrap):
    metrics, _ = bootstrap.static_resources.listeners
    found = manager_pb2.HttpConnectionManager()
    assert metrics.filter_chains[0].filters[0].typed_config.Unpack(found)
    [host] = found.route_config.virtual_hosts
    [route] = host.routes

    assert (route.match.path, route.route.cluster) == ("/stats/prometheus", "admin")
    assert bootstrap.admin.address.socket_address.address == "127.0.0.1"


def test_envoy_bounds_what_reaches_the_server(bootstrap, manager):
    buffer = _buffer.Buffer()
    assert manager.http_filters[1].typed_config.Unpack(buffer)
    memory = 0
    for cluster in bootstrap.static_resources.clusters[1:]:
        [threshold] = cluster.circuit_breakers.thresholds
        memory += threshold.max_requests.value * buffer.max_request_bytes.value

    assert memory <= 2**30  # half of the server's 2 GiB
    assert manager.access_log
    assert bootstrap.overload_manager.actions
