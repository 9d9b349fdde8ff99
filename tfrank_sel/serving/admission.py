"""Admission of requests: receiving them in time, and running them in threads within limits."""

import asyncio
import contextlib
import ctypes
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent import futures
from typing import TypeVar

from tfrank_sel.serving.limits import ExceededError, Limits
from tfrank_sel.serving.status import Code, ServingError

T = TypeVar("T")

# Requests above this size run one at a time, so that they neither take the memory of several nor
# keep smaller ones waiting. So do those whose tensors are larger than this, or have more elements.
_LARGE = 2**20
_LARGE_ELEMENTS = 2**17
_THREADS = 8
# glibc keeps hundreds of MiB that large requests have freed, until it is asked to return them.
_TRIM_SECONDS = 1.0
_trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)


class Admission:
    """The requests of both protocols, from their first byte to their answer.

    All methods belong to the event loop; the work itself runs in threads.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._small_limits = dataclasses.replace(
            limits,
            request_bytes=min(4 * _LARGE, limits.request_bytes),
            elements=min(_LARGE_ELEMENTS, limits.elements),
            decoded_bytes=min(_LARGE, limits.decoded_bytes),
        )
        self._trimming = False
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

    async def run(self, work: Callable[[bytes, Limits], T], body: bytes, seconds: float) -> T:
        """Runs the work of a request in a thread.

        Args:
            work: Function of the body and the limits that it checks. A body that is small and
                exceeds the limits of small requests is run again, among the large ones.
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
        try:
            async with asyncio.timeout(seconds):
                if size <= _LARGE:
                    with contextlib.suppress(ExceededError):
                        return await self._submitted(self._small, work, body, self._small_limits)
                return await self._submitted(self._large, work, body, limits)
        except TimeoutError as error:
            message = f"The request must be answered in {seconds:.3g} seconds"
            raise ServingError(Code.DEADLINE_EXCEEDED, message) from error

    def _submitted(
        self,
        pool: futures.ThreadPoolExecutor,
        work: Callable[[bytes, Limits], T],
        body: bytes,
        limits: Limits,
    ) -> Awaitable[T]:
        size = len(body)
        self._requests += 1
        self._bytes += size
        loop = asyncio.get_running_loop()
        running = pool.submit(work, body, limits)
        # A thread cannot be stopped: late work counts until it ends.
        is_large = pool is self._large
        running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._ended, size, is_large))
        return asyncio.wrap_future(running)

    def _ended(self, size: int, is_large: bool) -> None:
        self._requests -= 1
        self._bytes -= size
        if is_large and not self._trimming:
            self._trimming = True
            asyncio.get_running_loop().call_later(_TRIM_SECONDS, self._return_memory)

    def _return_memory(self) -> None:
        self._trimming = False
        if _trim:
            self._large.submit(_trim, 0)

    def close(self) -> None:
        """Waits until running work has ended; what waits is dropped."""
        for pool in (self._small, self._large):
            pool.shutdown(cancel_futures=True)
