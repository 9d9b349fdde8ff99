"""What a server takes from its clients: sizes, numbers, and the time to send them."""

import asyncio
import dataclasses
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tfrank_sel.arguments import Checked

_LONG_HEAD = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


@dataclasses.dataclass(frozen=True)
class Limits(Checked):
    """The limits of both protocols.

    Args:
        request_bytes: Size of a request's message or body, also after it is inflated.
        header_bytes: Size of its headers.
        requests: How many requests of a protocol are answered at a time.
        send_seconds: How long a REST client may take to send a request.

    Raises:
        ValueError: If one is not positive.
    """

    request_bytes: int = 2**28
    header_bytes: int = 2**16
    requests: int = 1024
    send_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field, value in dataclasses.asdict(self).items():
            if value <= 0:
                raise ValueError(f"`{field}` must be positive. Received: {value}")


class LimitedHttp(HttpToolsProtocol):
    """One connection of HTTP/1.1, closed when a request's head is too long or too slow.

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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
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
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        self._go_on()
        super().on_headers_complete()

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
