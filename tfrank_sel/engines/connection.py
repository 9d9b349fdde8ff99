"""Requests to search engines by HTTP, whose errors are one line."""

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tfrank_sel.data.rejections import InputError
from tfrank_sel.refusals import received, refusal

T = TypeVar("T")
AUTHORIZATION = "TFRANK_SEL_ENGINE_AUTHORIZATION"  # the value of the header, such as Basic dXNl...
_PATIENCE = 60.0  # seconds
_LONGEST = 500  # characters of an error
_SHOWN = 100  # characters of an answer


def send(
    method: str,
    url: str,
    read: Callable[[Any], T],
    *,
    body: Any = None,
    form: Mapping[str, str] | None = None,
) -> T:
    """Sends a request, and returns what is read from the JSON of the answer.

    Args:
        method: The HTTP method.
        url: The URL.
        read: Reads the answer.
        body: Body, JSON-ready.
        form: Fields of a form, in place of a body.

    Raises:
        InputError: If the engine cannot be reached, refuses, answers only in part, or with
            something else.
        ValueError: If the authorization is no header.
    """
    headers = {}
    data = None
    if form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        data = urllib.parse.urlencode(form).encode()
    elif body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body, allow_nan=False).encode()
    if authorization := os.environ.get(AUTHORIZATION, "").strip():
        if not (authorization.isascii() and authorization.isprintable()):
            # without the value, which is secret
            raise refusal(f"{AUTHORIZATION} must be printable ASCII", "other characters")
        headers["Authorization"] = authorization
    place = f"{method} {url}"
    try:
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            content = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        reason = f"{error.code}, {_reason(error.read())}"
        raise InputError(place, received("the engine must accept the request", reason)) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        expected = "expected an engine that answers with JSON"
        raise InputError(place, received(expected, getattr(error, "reason", error))) from error
    try:
        if fault := _partial(content):
            raise InputError(place, received("expected the answer of all shards, in time", fault))
        return read(content)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        expected = "expected an answer of the engine that `--engine` names"
        raise InputError(place, received(expected, f"{json.dumps(content):.{_SHOWN}}")) from error


def _partial(answer: Any) -> str:
    """What says that an answer lacks documents that the index has; empty if nothing does."""
    if answer.get("timed_out") or answer.get("responseHeader", {}).get("partialResults"):
        return "a search that ran out of time"
    if failed := answer.get("_shards", {}).get("failed"):
        return f"{failed} failed shards"
    return ""


def quoted(name: str) -> str:
    """Returns a name as a part of a URL."""
    return urllib.parse.quote(name, safe="")


def _reason(answer: bytes) -> str:
    """The reason in an error of OpenSearch and Elasticsearch, or of Solr; or the text."""
    try:
        error = json.loads(answer)["error"]
        causes = [*error.get("root_cause", ()), error]
        parts = [x[key] for x in causes for key in ("reason", "msg") if x.get(key)]
        text = "; ".join(dict.fromkeys(parts))
    except (AttributeError, KeyError, TypeError, ValueError):
        text = answer.decode("utf-8", "replace")
    return " ".join(text.split())[:_LONGEST] or "no reason"
