"""Requests to search engines by HTTP, whose errors are one line."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tfrank_sel.data.lists import InputError
from tfrank_sel.refusals import received

AUTHORIZATION = "TFRANK_SEL_ENGINE_AUTHORIZATION"  # the value of the header, such as Basic dXNl...
_PATIENCE = 60.0  # seconds
_LONGEST = 500  # characters of an error


def send(method: str, url: str, body: Any = None, form: Mapping[str, str] | None = None) -> Any:
    """Sends a request, and returns the JSON of the answer.

    Args:
        method: The HTTP method.
        url: The URL.
        body: Body, JSON-ready.
        form: Fields of a form, in place of a body.

    Raises:
        InputError: If the engine cannot be reached, refuses, or does not answer with JSON.
    """
    headers = {}
    data = None
    if form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        data = urllib.parse.urlencode(form).encode()
    elif body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body, allow_nan=False).encode()
    if AUTHORIZATION in os.environ:
        headers["Authorization"] = os.environ[AUTHORIZATION]
    place = f"{method} {url}"
    try:
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        reason = f"{error.code}, {_reason(error.read())}"
        raise InputError(place, received("the engine must accept the request", reason)) from error
    except (OSError, ValueError) as error:
        expected = "expected an engine that answers with JSON"
        raise InputError(place, received(expected, getattr(error, "reason", error))) from error


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
