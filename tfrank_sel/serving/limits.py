"""Limits on requests: sizes, numbers of values, and the time to send them."""

import asyncio
import dataclasses
import math
import select
from collections.abc import Sequence
from typing import Any

import numpy as np
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tfrank_sel.arguments import Checked
from tfrank_sel.serving.status import Code, ServingError

_LONG_HEAD = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


_CHUNK = 2**18  # bytes that are counted at a time: other threads run in between


class ExceededError(ServingError):
    """A request has more of something than a limit allows."""


def exceeded(what: str, limit: int, received: int) -> ExceededError:
    """Returns the error of a request that has too many of something."""
    message = f"Too many {what}. Received: {received}. Accepted: at most {limit}"
    return ExceededError(Code.INVALID_ARGUMENT, message)


@dataclasses.dataclass(frozen=True)
class Limits(Checked):
    """The limits of both protocols, checked before memory is taken.

    Args:
        request_bytes: Size of a message. A body may have a quarter, also after it is inflated: its
            numbers are longer, and Python's objects longer still.
        header_bytes: Size of the headers.
        elements: Numbers and strings in all tensors of a message; a body may have an eighth.
        decoded_bytes: Size of all tensors of a request, or of its examples.
        items: Size of every axis of a tensor but the first, so that of a list of items.
        axes: Axes of a tensor, of 32 bytes each.
        lists: Lists and objects in a JSON body.
        requests: Requests that wait or run at a time.
        waiting_bytes: Size of these requests together.
        receiving: Requests that are received at a time; the oldest of the connection with the most
            of them gives way to a new one.
        pipelined: HTTP requests of a connection that wait for the answer to an earlier one.
        send_seconds: Time for a client to send a request.
        run_seconds: Time to answer a request, if the client sets no earlier deadline.

    Raises:
        ValueError: If one is not positive.
    """

    request_bytes: int = 2**24
    header_bytes: int = 2**16
    elements: int = 2**21
    decoded_bytes: int = 2**26
    items: int = 2**16
    axes: int = 32
    lists: int = 2**16
    requests: int = 1024
    waiting_bytes: int = 2**27
    receiving: int = 64
    pipelined: int = 16
    send_seconds: float = 30.0
    run_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field, value in dataclasses.asdict(self).items():
            if value <= 0:
                raise ValueError(f"`{field}` must be positive. Received: {value}")

    @property
    def body_bytes(self) -> int:
        """Size of a body."""
        return self.request_bytes // 4

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """Checks the shape of one tensor.

        Raises:
            ServingError: INVALID_ARGUMENT if it has too many axes, items or elements.
        """
        if len(shape) > self.axes:
            raise exceeded(f"axes of tensor {name}", self.axes, len(shape))
        if (most := max(shape[1:], default=0)) > self.items:
            raise exceeded(f"items on an axis of tensor {name}", self.items, most)
        self.check_elements(math.prod(shape))

    def check_elements(self, elements: int, decoded_bytes: int = 0) -> None:
        """Checks all tensors of a request together.

        Raises:
            ServingError: INVALID_ARGUMENT if they are too large.
        """
        if elements > self.elements:
            raise exceeded("elements of a request", self.elements, elements)
        if decoded_bytes > self.decoded_bytes:
            raise exceeded("decoded bytes of a request", self.decoded_bytes, decoded_bytes)

    def check_json(self, body: bytes) -> None:
        """Counts commas and brackets, before a body is parsed.

        Raises:
            ServingError: INVALID_ARGUMENT if there are too many; those in strings count, too.
        """
        commas = lists = 0
        octets = np.frombuffer(body, np.uint8)
        for start in range(0, len(octets), _CHUNK):
            chunk = octets[start : start + _CHUNK]
            commas += int(np.count_nonzero(chunk == ord(",")))
            if commas > self.elements // 8:
                raise exceeded("values of a JSON body", self.elements // 8, commas)
            lists += int(np.count_nonzero(chunk == ord("[")) + np.count_nonzero(chunk == ord("{")))
            if lists > self.lists:
                raise exceeded("lists and objects of a JSON body", self.lists, lists)


_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # of Linux; all systems tell of a reset
ANSWERED = "tfrank_sel.answered"  # key of a request's scope: its connection, of `Answered`


@dataclasses.dataclass
class Answered:
    """The requests of a connection that are being answered, until the client is gone."""

    tasks: set["asyncio.Task[Any]"] = dataclasses.field(default_factory=set)
    is_gone: bool = False
    descriptor: int | None = None

    def is_left(self) -> bool:
        """Whether the client has hung up, also if the event loop has not seen it yet."""
        if self.descriptor is None or self.is_gone:
            return self.is_gone
        found = select.poll()
        found.register(self.descriptor, _HUNG_UP)
        return bool(found.poll(0))


class LimitedHttp(HttpToolsProtocol):
    """One connection of HTTP/1.1, closed when a request's head is too long or too slow.

    So it is when too many requests wait for the answer to an earlier one. When the client goes
    away, its requests are dropped.

    Args:
        limits: The limits.
        **protocol: What uvicorn gives its protocols.
    """

    def __init__(self, limits: Limits, **protocol: Any) -> None:
        super().__init__(**protocol)
        self._limits = limits
        self._head: int | None = None  # bytes of a head that is not whole
        self._counted = 0  # bytes of what was received last that belong to it
        self._timer: asyncio.TimerHandle | None = None
        self._answered, self._cycles = Answered(), list[Any]()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._answered.descriptor = transport.get_extra_info("socket").fileno()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)
        for cycle in self._cycles:  # uvicorn tells the latest request only
            cycle.disconnected = True
            cycle.message_event.set()
        self._answered.is_gone = True
        for task in self._answered.tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._answered.is_left():  # before it is parsed, and gets a task
            self.transport.abort()
            return
        self._counted = len(data)
        super().data_received(data)
        if self._head is None:
            return
        self._head += self._counted
        self._wait()
        if self._head > self._limits.header_bytes:
            self.transport.write(_LONG_HEAD)
            self.transport.close()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            raise exceeded("pipelined requests", self._limits.pipelined, len(self.pipeline) + 1)
        self._head = 0
        super().on_message_begin()
        self.scope[ANSWERED] = self._answered  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._head = None
        self._go_on()
        super().on_headers_complete()
        self._cycles = [x for x in self._cycles if not x.response_complete] + [self.cycle]

    def on_message_complete(self) -> None:
        self._counted = 0
        super().on_message_complete()

    def _wait(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._limits.send_seconds, self.transport.close)

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
