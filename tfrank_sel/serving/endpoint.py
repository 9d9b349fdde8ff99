"""The local endpoint: the core, gRPC and REST in one process."""

import asyncio
import contextlib
import functools
import pathlib
import socket
import threading
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import grpc
import uvicorn
import uvloop
from tensorflow.core.protobuf import config_pb2

from tfrank_sel.serving.admission import Admission
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.versions import Load
from tfrank_sel.serving.grpc_services import create_server
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.rest import page
from tfrank_sel.serving.rest.api import RestApi
from tfrank_sel.serving.rest.connections import LimitedHttp
from tfrank_sel.serving.status import Code, ServingError

_STOP_SECONDS = 2.0  # for requests that are dropped when the grace is over


class Endpoint:
    """Answers TensorFlow Serving's gRPC and REST requests on two ports of this machine.

    Args:
        models: The models to serve.
        host: Address to listen on.
        grpc_port: Port for gRPC; 0 for any free port.
        rest_port: Port for REST; 0 for any free port.
        tls: Credentials of gRPC, from `deployment.config.credentials`; None for plain text. REST is
            not encrypted, as in TensorFlow Serving.
        limits: Limits on requests.
        session: Threads and memory of the models; None for the defaults of TensorFlow.
        **core: Further arguments of `ServerCore`.
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
        session: config_pb2.ConfigProto | None = None,
        **core: Any,
    ) -> None:
        self.host = host
        self.grpc_port = grpc_port
        self.rest_port = rest_port
        self._tls = tls
        self._limits = limits
        load: Load = functools.partial(_load, session=session)
        self._core = ServerCore(models, load=load, limits=limits, **core)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._grace = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Loads the models, then opens the ports.

        Raises:
            ServingError: If a port is taken or a model has no version that loads.
        """
        # Reserved before the models load, which takes long; opened afterwards, when all are ready.
        for port in (self.rest_port, self.grpc_port):
            listen(self.host, port).close()
        with contextlib.ExitStack() as undo:
            self._core.start()
            undo.callback(self._core.stop)
            listener = listen(self.host, self.rest_port)
            undo.callback(listener.close)
            opened: futures.Future[int] = futures.Future()
            self._thread = threading.Thread(
                target=self._run, args=(listener, opened), name="endpoint", daemon=True
            )
            self._thread.start()
            self.grpc_port = opened.result()
            undo.pop_all()
        self.rest_port = listener.getsockname()[1]

    def _run(self, listener: socket.socket, opened: futures.Future[int]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listener, opened))

    async def _serve(self, listener: socket.socket, opened: futures.Future[int]) -> None:
        """Serves both protocols from one event loop until `stop`."""
        self._loop = asyncio.get_running_loop()
        admission = Admission(self._limits)
        server = create_server(self._core, admission)
        try:
            opened.set_result(_add_port(server, self.host, self.grpc_port, self._tls))
        except Exception as error:  # `start` waits for one of the two
            opened.set_exception(error)
            return
        config = uvicorn.Config(
            RestApi(self._core, admission),
            http=functools.partial(LimitedHttp, self._limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            log_level="warning",
        )
        rest = uvicorn.Server(config)
        serving = asyncio.create_task(rest.serve([listener]))
        await server.start()
        await self._stopped.wait()
        rest.should_exit = True
        due = self._loop.time() + self._grace
        await server.stop(self._grace)
        await asyncio.wait([serving], timeout=max(0.0, due - self._loop.time()))
        await asyncio.to_thread(admission.close)

    def stop(self, grace_seconds: float = 10.0) -> bool:
        """Closes the ports, lets running requests end, and frees the models.

        Args:
            grace_seconds: Maximum time for running requests to end.

        Returns:
            Whether all has ended. A request that does not end, and a version that is loading,
            cannot be stopped: four seconds later, they are left to the end of the process.
        """
        if self._loop is None or self._thread is None:
            return True
        self._grace = grace_seconds
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(grace_seconds + _STOP_SECONDS)
        return self._core.stop() and not self._thread.is_alive()

    def __enter__(self) -> "Endpoint":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _load(path: pathlib.Path, version: int, session: config_pb2.ConfigProto | None) -> Model:
    """Loads a version with all that REST tells of it: its files may go while it is served."""
    model = Model(path, version, session)
    page.of_model(model)  # and what reads values of rows
    return model


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket.

    Raises:
        ServingError: If the address is not available.
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


def _add_port(
    server: grpc.aio.Server, host: str, port: int, tls: grpc.ServerCredentials | None
) -> int:
    address = host_and_port(host, port)
    try:
        if tls is not None:
            return server.add_secure_port(address, tls)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise _port_error(host, port, str(error)) from error


def host_and_port(host: str, port: int) -> str:
    """Returns a host and a port as a client takes them: an address of IPv6 is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _port_error(host: str, port: int, reason: str) -> ServingError:
    address = host_and_port(host, port)
    return ServingError(Code.UNAVAILABLE, f"{address} must be free to listen on: {reason}")
