"""What gRPC and REST share: status codes, the error that carries one, and the name of a session."""

import contextlib
import enum
import logging
import re
from collections.abc import Iterator
from typing import Self

from google.protobuf import message as protobuf

from tfrank_sel.errors import received, refusal

SESSION = "x-session"  # header of HTTP, or key of gRPC's metadata, that names the session

# What HTTP and gRPC both carry as it is, and what is short enough to be logged.
_SESSION = re.compile(r"[!-~](?:[ -~]{0,254}[!-~])?")

_log = logging.getLogger(__name__)

# TensorFlow Serving truncates error messages to this number of characters.
_MESSAGE_LIMIT = 1024


class Code(enum.IntEnum):
    """The canonical codes, by the numbers that gRPC and TensorFlow give them.

    Attributes:
        http_status: The HTTP status of TensorFlow Serving for a code.
    """

    http_status: int

    def __new__(cls, number: int, http_status: int = 0) -> Self:
        code = int.__new__(cls, number)
        code._value_ = number
        code.http_status = http_status
        return code

    OK = 0, 200
    CANCELLED = 1, 499
    UNKNOWN = 2, 500
    INVALID_ARGUMENT = 3, 400
    DEADLINE_EXCEEDED = 4, 504
    NOT_FOUND = 5, 404
    ALREADY_EXISTS = 6, 409
    PERMISSION_DENIED = 7, 403
    RESOURCE_EXHAUSTED = 8, 429
    FAILED_PRECONDITION = 9, 400
    ABORTED = 10, 409
    OUT_OF_RANGE = 11, 400
    UNIMPLEMENTED = 12, 501
    INTERNAL = 13, 500
    UNAVAILABLE = 14, 503
    DATA_LOSS = 15, 500
    UNAUTHENTICATED = 16, 401

    @classmethod
    def of_http(cls, status: int) -> "Code":
        """Returns the code of an HTTP status; the most common code if there are several."""
        return next((code for code in cls if code.http_status == status), cls.UNKNOWN)


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


def check_session(name: str) -> None:
    """Raises a ValueError for a name of a session that a client or a log cannot take."""
    if not _SESSION.fullmatch(name):
        raise refusal(
            "`session` must have 1 to 256 printable characters of ASCII, the first and the last "
            "no space",
            repr(name) if len(name) <= 256 else f"{len(name)} characters",
        )


def invalid(expected: str, *values: object) -> ServingError:
    """Returns the error of a request, or of a file, that breaks a rule, with what was received."""
    return ServingError(Code.INVALID_ARGUMENT, received(expected, *values) if values else expected)


@contextlib.contextmanager
def map_errors() -> Iterator[None]:
    """Turns every exception into a `ServingError`, and logs unexpected ones.

    No frame keeps an exception in a variable: the cycle would keep a refused request in memory
    until Python collects it.
    """
    try:
        yield
    except ServingError:
        raise
    except protobuf.DecodeError as error:
        raise invalid("The request must be a message of its method", "other bytes") from error
    except MemoryError as error:
        message = "The request needs more memory than there is"
        raise ServingError(Code.RESOURCE_EXHAUSTED, message) from error
    except Exception as error:
        _log.exception("a request failed")
        raise ServingError(Code.INTERNAL, f"The server failed: {type(error).__name__}") from error
