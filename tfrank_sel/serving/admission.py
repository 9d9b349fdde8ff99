"""Admission of requests: receiving them in time, and running them in threads within limits."""

import asyncio
import contextlib
import contextvars
import ctypes
import dataclasses
import functools
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from typing import Any, TypeVar

from tfrank_sel.errors import received
from tfrank_sel.serving.options import ExceededError, Limits
from tfrank_sel.serving.status import Code, ServingError

T = TypeVar("T")

# Requests above this size run one at a time, so that they neither take the memory of several nor
# keep smaller ones waiting. So do those whose tensors are larger than this, or have more elements.
_LARGE = 2**20
_LARGE_ELEMENTS = 2**17
_THREADS = 8
_LATER = "more; try again later"
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
        # of each connection, oldest first
        self._receiving: dict[object, dict[asyncio.Timeout, None]] = {}
        self._ended_early: set[asyncio.Timeout] = set()
        self._requests = 0
        self._bytes = 0
        self._small = futures.ThreadPoolExecutor(_THREADS, "requests")
        self._large = futures.ThreadPoolExecutor(1, "large-requests")
        # A reload waits for models that load: eight of them would leave no thread for requests.
        self._slow = futures.ThreadPoolExecutor(_THREADS, "slow-requests")

    @contextlib.asynccontextmanager
    async def receive(self, connection: object) -> AsyncIterator[None]:
        """Receives a request in time.

        If too many are being received, the oldest of the connection with the most of them ends.

        Args:
            connection: The connection that it comes from.

        Raises:
            ServingError: DEADLINE_EXCEEDED if the client is too slow, UNAVAILABLE if the request
                ends for another; the client may repeat it.
        """
        limits = self.limits
        if sum(map(len, self._receiving.values())) >= limits.receiving:
            most = max(self._receiving, key=lambda x: len(self._receiving[x]))
            oldest = next(iter(self._receiving[most]))
            self._end_receiving(most, oldest)
            if not oldest.expired():  # as it may in this turn of the loop
                self._ended_early.add(oldest)
                # Its own timeout is the one way into a coroutine that waits for bytes.
                oldest.reschedule(asyncio.get_running_loop().time())
        timeout = asyncio.timeout(limits.send_seconds)
        try:
            async with timeout:
                self._receiving.setdefault(connection, {})[timeout] = None
                yield
        except TimeoutError as error:
            if timeout in self._ended_early:
                message = f"At most {limits.receiving} requests may be received at a time"
                raise ServingError(Code.UNAVAILABLE, received(message, _LATER)) from error
            message = received(f"A request must come in {limits.send_seconds} seconds", "a part")
            raise ServingError(Code.DEADLINE_EXCEEDED, message, http_status=408) from error
        finally:
            self._end_receiving(connection, timeout)
            self._ended_early.discard(timeout)

    def _end_receiving(self, connection: object, timeout: asyncio.Timeout) -> None:
        of_connection = self._receiving.get(connection, {})
        of_connection.pop(timeout, None)
        if not of_connection:
            self._receiving.pop(connection, None)

    async def run(
        self,
        work: Callable[[bytes, Limits], T],
        body: bytes,
        seconds: float,
        *,
        is_slow: bool = False,
    ) -> T:
        """Runs the work of a request in a thread, unless the request is cancelled before.

        Args:
            work: Function of the body and the limits that it checks. A body that is small and
                exceeds the limits of small requests is run again, among the large ones.
            body: The body, which counts against the limits until the work ends.
            seconds: Time until the answer is due.
            is_slow: Whether it may take long; then it runs in a thread of its own kind.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many requests are waiting, DEADLINE_EXCEEDED
                if the answer is late, or what the work raises.
        """
        limits, size = self.limits, len(body)
        if self._requests >= limits.requests or self._bytes + size > limits.waiting_bytes:
            message = f"At most {limits.requests} requests of {limits.waiting_bytes} bytes together"
            message = received(f"{message} may wait or run", _LATER)
            raise ServingError(Code.RESOURCE_EXHAUSTED, message)
        try:
            async with asyncio.timeout(seconds):
                if is_slow:
                    return await self._submit(self._slow, work, body, limits)
                if size <= _LARGE:
                    # How large its tensors are is known when it is parsed, in a thread.
                    with contextlib.suppress(ExceededError):
                        return await self._submit(self._small, work, body, self._small_limits)
                return await self._submit(self._large, work, body, limits)
        except TimeoutError as error:
            message = f"The request must be answered in {seconds:.3g} seconds"
            raise ServingError(Code.DEADLINE_EXCEEDED, message) from error

    async def _submit(
        self,
        pool: futures.ThreadPoolExecutor,
        work: Callable[[bytes, Limits], T],
        body: bytes,
        limits: Limits,
    ) -> T:
        """Runs work in a thread, which wakes the event loop once, unlike `wrap_future`."""
        size, is_large = len(body), pool is self._large
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        # Taken by the thread, or by the end of the request if that is first. The context has the
        # session of the request, which threads do not inherit.
        turn = iter([functools.partial(contextvars.copy_context().run, work, body, limits)])

        # In the event loop, so that the counts need no lock.
        def tell(setter: Callable[[Any], None], value: Any) -> None:
            self._release(size, is_large)
            if not answer.done():
                setter(value)

        def run() -> None:
            call = next(turn, None)
            if call is None:
                return
            try:
                loop.call_soon_threadsafe(tell, answer.set_result, call())
            except BaseException as error:
                # This frame refers to the answer: the cycle would keep the request in memory.
                frames = error.__traceback__ and error.__traceback__.tb_next
                loop.call_soon_threadsafe(tell, answer.set_exception, error.with_traceback(frames))

        self._requests += 1
        self._bytes += size
        pool.submit(run)
        try:
            return await answer
        finally:  # A thread cannot be stopped: late work counts until it ends.
            if next(turn, None) is not None:
                self._release(size, is_large)

    def _release(self, size: int, is_large: bool) -> None:
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
        for pool in (self._small, self._large, self._slow):
            pool.shutdown(cancel_futures=True)
