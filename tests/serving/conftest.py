import pathlib

import pytest

from serving.endpoint import Endpoint
from serving.model_config import Latest, ModelConfig
from tests.serving.half_plus import Client, save


@pytest.fixture(scope="session")
def half(tmp_path_factory) -> pathlib.Path:
    base = tmp_path_factory.mktemp("models") / "half"
    save(base, 1, bias=2)
    save(base, 2, bias=3)
    (base / "not_a_version").mkdir()
    return base


@pytest.fixture(scope="session")
def endpoint(half):
    with Endpoint([ModelConfig("half", half, Latest(2))]) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def client(endpoint):
    return Client(endpoint.grpc_port)
