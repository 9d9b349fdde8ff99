"""Options of a server: annotated fields of dataclasses, which are also options of a command."""

import dataclasses
import inspect
import math
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from typer.models import OptionInfo

from tfrank_sel import commandline
from tfrank_sel.arguments import Checked, Count, Positive
from tfrank_sel.serving.status import Code, ServingError


@dataclasses.dataclass(frozen=True)
class PollingOptions:
    """How a server follows its models; the help of the options describes the fields."""

    config_file: Annotated[
        str | None,
        typer.Option(
            "--model-config-file", help="Path or URL of a `models.config`, instead of one model."
        ),
    ] = None
    config_poll_seconds: Annotated[
        float,
        typer.Option(
            "--model-config-file-poll-wait-seconds",
            min=0.0,
            help="Seconds between reads of that file; 0 to read it once.",
        ),
    ] = 0.0
    allow_labels_for_unavailable: Annotated[
        bool,
        typer.Option(
            "--allow-version-labels-for-unavailable-models/"
            "--no-allow-version-labels-for-unavailable-models",
            help="Accept a new label for a version that is not served yet.",
        ),
    ] = False
    poll_seconds: Annotated[
        float,
        typer.Option(
            "--file-system-poll-wait-seconds",
            min=0.01,
            help="Seconds between checks for new versions.",
        ),
    ] = 1.0


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each annotated field of its parameters that are dataclasses."""
    groups: dict[str, commandline.Group] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind: Any = parameter.annotation
        if dataclasses.is_dataclass(kind):
            # Of the constructor itself, since `Checked` takes any argument in `__new__`.
            fields = inspect.signature(vars(kind)["__init__"]).parameters.values()
            groups[parameter.name] = [x for x in fields if _is_option(x)], parameter.annotation
    return commandline.group_parameters(command, groups)


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(x, OptionInfo) for x in typing.get_args(parameter.annotation))


_CHUNK = 2**18  # bytes that are counted at a time: other threads run in between


class ExceededError(ServingError):
    """A request has more of something than a limit allows."""


def exceeded_error(what: str, limit: int, received: int) -> ExceededError:
    """Returns the error of a request that has too many of something."""
    message = f"Too many {what}. Received: {received}. Accepted: at most {limit}"
    return ExceededError(Code.INVALID_ARGUMENT, message)


@dataclasses.dataclass(frozen=True)
class Limits(Checked):
    """The limits of both protocols, checked before memory is taken.

    The help of its option describes each limit that has one. A JSON body may have a quarter of the
    bytes, also after it is inflated, and an eighth of the elements: its numbers are longer, and
    Python's objects longer still.

    Args:
        header_bytes: Size of the headers.
        decoded_bytes: Size of all tensors of a request, or of its examples.
        axes: Axes of a tensor, of 32 bytes each.
        lists: Lists and objects in a JSON body.
        waiting_bytes: Size of the requests that wait or run together.
        receiving: Requests that are received at a time; the oldest of the connection with the most
            of them gives way to a new one.
        pipelined: HTTP requests of a connection that wait for the answer to an earlier one.
        send_seconds: Time for a client to send a request.
        run_seconds: Time to answer a request, if the client sets no earlier deadline.

    Raises:
        ValueError: If one is not positive.
    """

    request_bytes: Annotated[
        Count,
        typer.Option(
            "--max-request-bytes",
            min=1,
            help="Maximum size of a gRPC message; a quarter for JSON, decompressed.",
        ),
    ] = 2**24
    header_bytes: Count = 2**16
    elements: Annotated[
        Count,
        typer.Option(
            "--max-elements",
            min=1,
            help="Maximum number of values in a request; an eighth for JSON.",
        ),
    ] = 2**21
    decoded_bytes: Count = 2**26
    items: Annotated[
        Count,
        typer.Option(
            "--max-items",
            min=1,
            help="Maximum size of every axis but the first, such as the items.",
        ),
    ] = 2**16
    axes: Count = 32
    lists: Count = 2**16
    requests: Annotated[
        Count,
        typer.Option(
            "--max-concurrent-requests", min=1, help="Maximum number of requests that wait or run."
        ),
    ] = 1024
    waiting_bytes: Count = 2**27
    receiving: Count = 64
    pipelined: Count = 16
    send_seconds: Positive = 30.0
    run_seconds: Positive = 30.0

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
            raise exceeded_error(f"axes of tensor {name}", self.axes, len(shape))
        if (most := max(shape[1:], default=0)) > self.items:
            raise exceeded_error(f"items on an axis of tensor {name}", self.items, most)
        self.check_elements(math.prod(shape))

    def check_elements(self, elements: int, decoded_bytes: int = 0) -> None:
        """Checks all tensors of a request together.

        Raises:
            ServingError: INVALID_ARGUMENT if they are too large.
        """
        if elements > self.elements:
            raise exceeded_error("elements of a request", self.elements, elements)
        if decoded_bytes > self.decoded_bytes:
            raise exceeded_error("decoded bytes of a request", self.decoded_bytes, decoded_bytes)

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
                raise exceeded_error("values of a JSON body", self.elements // 8, commas)
            lists += int(np.count_nonzero(chunk == ord("[")) + np.count_nonzero(chunk == ord("{")))
            if lists > self.lists:
                raise exceeded_error("lists and objects of a JSON body", self.lists, lists)
