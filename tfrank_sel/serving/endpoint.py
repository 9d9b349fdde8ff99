"""The local endpoint: core, gRPC and REST under one roof."""

import contextlib
import functools
import socket
import threading
from collections.abc import Sequence
from typing import Any

import grpc
import uvicorn
from tensorflow.core.protobuf import config_pb2

from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import LoadedModel
from tfrank_sel.serving.engine.versions import Load
from tfrank_sel.serving.grpc_services import create_server
from tfrank_sel.serving.limits import LimitedHttp, Limits
from tfrank_sel.serving.rest.api import RestApi
from tfrank_sel.serving.status import Code, ServingError


class Endpoint:
    """Answers TensorFlow Serving's gRPC and REST requests on two ports of this machine.

    Args:
        models: What to serve.
        host: Address to listen on.
        grpc_port: Port for gRPC; 0 for any that is free.
        rest_port: Port for REST; 0 for any that is free.
        tls: What gRPC encrypts with, from `tls.credentials`; None for plain text. REST stays plain,
            as it does on a real server.
        limits: What clients may send.
        cors: Whether pages from elsewhere may ask by REST.
        session: What models may use, such as threads; None for what TensorFlow takes by itself.
        **core: What else a `ServerCore` takes.
    """

    def __init__(
        self,
        models: Sequence[ModelConfig],
        *,
        host: str = "127.0.0.1",
        grpc_port: int = 0,
        rest_port: int = 0,
        tls: grpc.ServerCredentials | None = None,
        limits: Limits = Limits(),  # noqa: B008
        cors: bool = False,
        session: config_pb2.ConfigProto | None = None,
        **core: Any,
    ) -> None:
        self.host = host
        self.grpc_port = grpc_port
        self.rest_port = rest_port
        self._tls = tls
        self._limits = limits
        self._cors = cors
        load: Load = functools.partial(LoadedModel, session=session)
        self._core = ServerCore(models, load=load, **core)
        self._grpc: grpc.Server | None = None
        self._rest: uvicorn.Server | None = None
        self._rest_thread: threading.Thread | None = None

    def start(self) -> None:
        """Loads the models, then opens the ports: who can connect is answered.

        Raises:
            ServingError: If a port is taken or a model has no version that loads.
        """
        # Asked before the models load, which takes long; opened after, so that open means ready.
        for port in (self.rest_port, self.grpc_port):
            listen(self.host, port).close()
        with contextlib.ExitStack() as undo:
            self._core.start()
            undo.callback(self._core.stop)
            listener = listen(self.host, self.rest_port)
            undo.callback(listener.close)
            server = create_server(self._core, self._limits)
            self.grpc_port = _add_port(server, self.host, self.grpc_port, self._tls)
            undo.pop_all()
        self.rest_port = listener.getsockname()[1]
        self._grpc = server
        config = uvicorn.Config(
            RestApi(self._core, self._limits, cors=self._cors),
            loop="uvloop",
            http=functools.partial(LimitedHttp, self._limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            log_level="warning",
        )
        self._rest = uvicorn.Server(config)
        self._rest_thread = threading.Thread(
            target=self._rest.run, args=([listener],), name="rest", daemon=True
        )
        self._rest_thread.start()
        self._grpc.start()

    def stop(self, grace_seconds: float = 10.0) -> None:
        """Closes the ports, lets running requests end, and frees the models.

        Args:
            grace_seconds: How long requests may still run.
        """
        if self._grpc is None or self._rest is None or self._rest_thread is None:
            return
        self._rest.should_exit = True
        self._grpc.stop(grace_seconds).wait()
        self._rest_thread.join(grace_seconds)
        self._core.stop()

    def __enter__(self) -> "Endpoint":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    Raises:
        ServingError: If the address cannot be listened on.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise _port_error(host, port, error.strerror or str(error)) from error
    return listener


def _add_port(server: grpc.Server, host: str, port: int, tls: grpc.ServerCredentials | None) -> int:
    address = f"{host}:{port}"
    try:
        if tls is not None:
            return server.add_secure_port(address, tls)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise _port_error(host, port, str(error)) from error


def _port_error(host: str, port: int, reason: str) -> ServingError:
    return ServingError(Code.UNAVAILABLE, f"{host}:{port} must be free to listen on: {reason}")
