"""Admission of requests: receiving them in time, and running them in threads within limits."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from typing import TypeVar

from tfrank_sel.serving.limits import Limits
from tfrank_sel.serving.status import Code, ServingError

T = TypeVar("T")

# Requests above this size run one at a time, so that they neither take the memory of several nor
# keep smaller ones waiting.
_LARGE = 2**20
_THREADS = 8


class Admission:
    """The requests of both protocols, from their first byte to their answer.

    All methods belong to the event loop; the work itself runs in threads.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._receiving: dict[asyncio.Timeout, None] = {}  # oldest first
        self._requests = 0
        self._bytes = 0
        self._small = futures.ThreadPoolExecutor(_THREADS, "requests")
        self._large = futures.ThreadPoolExecutor(1, "large-requests")

    @contextlib.asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Receives a request in time. If too many are being received, the oldest ends.

        Raises:
            ServingError: DEADLINE_EXCEEDED if the client is too slow.
        """
        limits = self.limits
        if len(self._receiving) >= limits.receiving:
            oldest = next(iter(self._receiving))
            del self._receiving[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(limits.send_seconds) as timeout:
                self._receiving[timeout] = None
                try:
                    yield
                finally:
                    self._receiving.pop(timeout, None)
        except TimeoutError as error:
            raise ServingError(
                Code.DEADLINE_EXCEEDED,
                f"A request must come in {limits.send_seconds} seconds, and sooner if more than "
                f"{limits.receiving} come at a time. Received: a part",
                http_status=408,
            ) from error

    async def run(self, work: Callable[[bytes], T], body: bytes, seconds: float) -> T:
        """Runs the work of a request in a thread.

        Args:
            work: Function of the body.
            body: The body, which counts against the limits until the work ends.
            seconds: Time until the answer is due.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many requests are waiting, DEADLINE_EXCEEDED
                if the answer is late, or what the work raises.
        """
        limits, size = self.limits, len(body)
        if self._requests >= limits.requests or self._bytes + size > limits.waiting_bytes:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {limits.requests} requests of {limits.waiting_bytes} bytes together may "
                "wait or run. Received: more; try again later",
            )
        self._requests += 1
        self._bytes += size
        loop = asyncio.get_running_loop()
        running = (self._large if size > _LARGE else self._small).submit(work, body)
        # A thread cannot be stopped: late work counts until it ends.
        running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._ended, size))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(running)
        except TimeoutError as error:
            message = f"The request must be answered in {seconds:.3g} seconds"
            raise ServingError(Code.DEADLINE_EXCEEDED, message) from error
        finally:
            del running  # its exception refers to this frame

    def _ended(self, size: int) -> None:
        self._requests -= 1
        self._bytes -= size

    def close(self) -> None:
        """Waits until running work has ended; what waits is dropped."""
        for pool in (self._small, self._large):
            pool.shutdown(cancel_futures=True)
