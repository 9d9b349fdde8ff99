"""Connections of HTTP/1.1: limits on what is received, and the end of a client's requests."""

import asyncio
import dataclasses
import select
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tfrank_sel.serving.options import Limits, exceeded_error

ANSWERED = "tfrank_sel.answered"  # key of a request's scope: its connection, of `Answered`

_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # of Linux; all systems tell of a reset
_LONG_HEAD = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


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
        # The kernel knows of a reset at once, the event loop in its next turn; in this one it would
        # start the requests of clients that went away.
        poll = select.poll()
        poll.register(self.descriptor, _HUNG_UP)
        return bool(poll.poll(0))


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
            raise exceeded_error(
                "pipelined requests", self._limits.pipelined, len(self.pipeline) + 1
            )
        self._head = 0
        super().on_message_begin()
        self.scope[ANSWERED] = self._answered  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._head = None
        self._go_on()
        super().on_headers_complete()
        self._cycles = [x for x in self._cycles if not x.response_complete] + [self.cycle]

    def on_message_complete(self) -> None:
        self._counted = 0  # what follows in the same piece begins the next head
        super().on_message_complete()

    def _wait(self) -> None:
        # One timer for a head, not for a piece of it: dripping bytes gains no time.
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._limits.send_seconds, self.transport.close)

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
