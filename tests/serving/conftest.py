import dataclasses
import pathlib

import keras
import pytest

from tests.serving import gateways
from tests.serving.deployments import deploy, entrypoint
from tests.serving.half_plus import Client, save
from tfrank_sel import export
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.model_config import Latest, ModelConfig
from tfrank_sel.serving.endpoint import Endpoint


@pytest.fixture(scope="session")
def half(shared) -> pathlib.Path:
    def make(base):
        save(base, 1, bias=2)
        save(base, 2, bias=3)
        (base / "not_a_version").mkdir()

    return shared("half", make)[0]


@pytest.fixture(scope="session")
def endpoint(half):
    with Endpoint([ModelConfig("half", half, Latest(2))]) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def named_model(exported, shared):
    """Folder of `saved_model`, and of those that are served: `ranker`, that one, and others."""

    def make(folder):
        packed = keras.Sequential(
            [keras.Input([None, 3]), keras.layers.Dense(1), keras.layers.Reshape([-1])]
        )
        export.export(packed, FeatureSpec(num_features=3), folder / "packed_model")
        (folder / "saved_model").symlink_to(exported / "typed")
        export.publish(folder / "saved_model", folder / "ranker", 1)
        export.publish(exported / "odd", folder / "odd", 1)
        export.publish(exported / "lookups", folder / "lookups", 1)
        export.publish(folder / "packed_model", folder / "packed", 1)

    return shared("named", make)[0]


@pytest.fixture(scope="session")
def named_endpoint(named_model):
    served = [
        ModelConfig(name, named_model / name) for name in ("ranker", "odd", "lookups", "packed")
    ]
    with Endpoint(served) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def client(endpoint):
    return Client(endpoint.grpc_port)


@pytest.fixture(scope="session")
def deployment(half, tmp_path_factory):
    output = tmp_path_factory.mktemp("deployments") / "ranker"
    done = deploy(output, half, "ranker", "--copy-models")
    assert done.exit_code == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def deployed_server(deployment):
    """A server with the deployment's models and the labels that its flags allow."""
    allow = "--allow_version_labels_for_unavailable_models=true" in entrypoint(deployment)
    models = [
        dataclasses.replace(model, base_path=deployment / model.base_path.relative_to("/"))
        for model in model_config.read(deployment / "models.config")
    ]
    with Endpoint(models, allow_labels_for_unavailable=allow) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def gateway(deployment, deployed_server, tmp_path_factory):
    """The proxy of the deployment in front of it."""
    folder = tmp_path_factory.mktemp("envoy")
    ports = deployed_server.grpc_port, deployed_server.rest_port
    with gateways.running(deployment, "ranker", folder, *ports) as found:
        yield found


@pytest.fixture(scope="session")
def deployed(deployed_server):
    """Its address for REST."""
    return f"127.0.0.1:{deployed_server.rest_port}"
