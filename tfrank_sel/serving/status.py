"""Status codes that gRPC, REST and TensorFlow share, and the error that carries one."""

import contextlib
import enum
import logging
from collections.abc import Iterator

from google.protobuf import message as protobuf

_log = logging.getLogger(__name__)

# TensorFlow Serving truncates error messages to this number of characters.
_MESSAGE_LIMIT = 1024


class Code(enum.IntEnum):
    """The canonical codes, by the numbers that gRPC and TensorFlow give them."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def http_status(self) -> int:
        """The HTTP status of TensorFlow Serving for this code."""
        return _HTTP_STATUS[self]

    @classmethod
    def of_http(cls, status: int) -> "Code":
        """Returns the code of an HTTP status; the most common code if there are several."""
        return _CODES.get(status, cls.UNKNOWN)


_HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}

_CODES = {status: code for code, status in reversed(_HTTP_STATUS.items())}


class ServingError(Exception):
    """Error of a request, or of the start of a server.

    Args:
        code: The kind of error.
        message: The required and the received value; truncated after 1024 characters.
        http_status: HTTP status, if it is not that of the code.

    Example:
        >>> error = ServingError(Code.NOT_FOUND, "Could not find any versions of model m")
        >>> error.code.http_status, str(error)
        (404, 'Could not find any versions of model m')
    """

    def __init__(self, code: Code, message: str, http_status: int | None = None) -> None:
        if len(message) > _MESSAGE_LIMIT:
            message = message[:_MESSAGE_LIMIT] + "...TRUNCATED"
        super().__init__(message)
        self.code = code
        self.http_status = http_status or code.http_status


def invalid(message: str) -> ServingError:
    """Returns the error of a request, or of a file, that breaks a rule."""
    return ServingError(Code.INVALID_ARGUMENT, message)


@contextlib.contextmanager
def mapped() -> Iterator[None]:
    """Turns every exception into a `ServingError`, and logs unexpected ones.

    No frame keeps an exception in a variable: the cycle would keep a refused request in memory
    until Python collects it.
    """
    try:
        yield
    except ServingError:
        raise
    except protobuf.DecodeError as error:
        raise invalid(
            "The request must be a message of its method. Received: other bytes"
        ) from error
    except MemoryError as error:
        message = "The request needs more memory than there is"
        raise ServingError(Code.RESOURCE_EXHAUSTED, message) from error
    except Exception as error:
        _log.exception("a request failed")
        raise ServingError(Code.INTERNAL, f"The server failed: {type(error).__name__}") from error
