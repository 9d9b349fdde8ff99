"""Requests to search engines by HTTP, whose errors are one line."""

import json
import math
import os
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tfrank_sel.data import InputError
from tfrank_sel.errors import received, refusal
from tfrank_sel.http_client import MISFORMED, Client

T = TypeVar("T")
AUTHORIZATION = "TFRANK_SEL_ENGINE_AUTHORIZATION"  # the value of the header, such as Basic dXNl...
# Seconds to wait for an answer.
PATIENCE = 120.0
# Number of characters of an answer that an error shows.
_SHOWN = 100


class Connection:
    """Requests to a search engine, authorized by the environment.

    Args:
        base: URL of the engine.

    Raises:
        ValueError: If the authorization is no header.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        authorization = os.environ.get(AUTHORIZATION, "").strip()
        if not (authorization.isascii() and authorization.isprintable()):
            # without the value, which is secret
            raise refusal(f"{AUTHORIZATION} must be printable ASCII", "other characters")
        self._client = Client(base, PATIENCE, authorization=authorization, by_proxy=True)

    def send(
        self,
        method: str,
        path: str,
        read: Callable[[Any], T],
        body: Any = None,
        *,
        form: Mapping[str, str] | None = None,
        largest: int | None = None,
    ) -> T:
        """Sends a request, and returns what is read from the JSON of the answer.

        Args:
            method: The HTTP method.
            path: What the URL has after the base and a slash.
            read: Reads the answer, and raises an error for one that says no success.
            body: Body, JSON-ready.
            form: Fields of a form, in place of a body.
            largest: As in `Client.ask`.

        Raises:
            InputError: If the engine cannot be reached, refuses, answers only in part, or with
                something else.
        """
        headers, data = {}, None
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            data = urllib.parse.urlencode(form).encode()
        elif body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body, allow_nan=False).encode()
        request, shown = f"{method} {self._base}/{path}", self._client.redact
        try:
            answer = self._client.ask(method, f"/{path}", data, headers, largest)
        except (OSError, ValueError) as error:
            raise InputError(request, shown(str(error))) from error
        expected = "expected an engine that answers with JSON"
        try:
            content = json.loads(answer.content) if answer.status // 100 == 2 else {"error": ""}
            expected = "expected a successful answer of the engine that `--engine` names"
            if _refuses(content):
                reason = f"{answer.status}, {shown(answer.reason)}"
                raise InputError(request, received("the engine must accept the request", reason))
            if fault := _partial(content):
                reason = received("expected the answer of all shards, in time", shown(fault))
                raise InputError(request, reason)
            return read(content)
        except MISFORMED as error:
            if isinstance(error, InputError):
                raise
            start = shown(answer.content.decode("utf-8", "replace"))[:_SHOWN]
            raise InputError(request, received(expected, start)) from error


def _refuses(answer: Any) -> bool:
    """Whether an answer with a status of success has an error, or another status of Solr."""
    return "error" in answer or bool(answer.get("responseHeader", {}).get("status"))


def _partial(answer: Any) -> str:
    """What says that an answer lacks documents that the index has; empty if nothing does."""
    if answer.get("timed_out") or answer.get("responseHeader", {}).get("partialResults"):
        return "a search that ran out of time"
    if failed := answer.get("_shards", {}).get("failed"):
        return f"{failed} failed shards"
    return ""


def string(value: Any) -> str:
    """Returns a name or an identifier in an answer.

    Raises:
        AttributeError: If it is of another type.
        UnicodeError: If it has half a character.
    """
    return str.encode(value).decode()


def check_done(is_done: bool) -> None:
    """Raises a ValueError if an answer says that nothing was done."""
    if not is_done:
        raise ValueError("not done")


def number(value: Any) -> float:
    """Returns a number in an answer; engines write NaN as text.

    Raises:
        TypeError: If it is of another type.
        ValueError: If it is infinite, or other text.
    """
    if isinstance(value, bool) or math.isinf(found := float(value)):
        raise ValueError(received("expected a finite number or NaN", value))
    return found
