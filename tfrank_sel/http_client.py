"""The client of servers by HTTP: one deadline, answers of bounded size, errors of one line."""

import base64
import contextlib
import http.client
import io
import json
import math
import re
import socket
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfrank_sel.errors import received, require_extra

with require_extra("A request by HTTP", "engine"):
    import urllib3
    import urllib3.exceptions
    import urllib3.util

# of HTTP or HTTPS, with a path if any, and without user, query and fragment
ADDRESS = re.compile(
    r"https?://([^\s/?#@:\\\[\]]+|\[[^\s/?#@\\\[\]]+\])(:\d{1,5})?(/[^\s?#@\\]*)?", re.IGNORECASE
)
# what reading an answer of another form raises
MISFORMED = AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError
LARGEST = 2**26  # bytes of an answer, decompressed
_PIECE = 2**16  # bytes, of which up to 1032 times as many are inflated at once
_REDIRECTS = 5
_UNAVAILABLE = 503
# Seconds before the second try; each further wait is twice as long.
_WAIT = 0.1
# Number of characters of an error that are read and shown.
_READ, _SHOWN = 4000, 1000
_AS_IT_COMES: dict[str, Any] = {"redirect": False, "retries": False, "preload_content": False}
_USER = re.compile(r"://[^/\s@]*@")


class Answer(NamedTuple):
    """The answer of a server.

    Args:
        status: The HTTP status.
        content: The body, decompressed.
    """

    status: int
    content: bytes

    @property
    def reason(self) -> str:
        """The reason in an error of TensorFlow Serving, OpenSearch or Solr; or the text."""
        text = self.content.decode("utf-8", "replace")
        with contextlib.suppress(*MISFORMED):
            error = json.loads(text)["error"]
            if isinstance(error, str):
                return error
            causes = [*error.get("root_cause", ()), error]
            parts = [x[key] for x in causes for key in ("reason", "msg") if x.get(key)]
            return "; ".join(dict.fromkeys(parts))
        return text


class Client:
    """Requests to one server, whose connections are kept.

    A redirect is followed from a GET to the same scheme, host and port. The header Authorization
    and its parts are left out of all errors.

    Args:
        address: URL of the server that `ADDRESS` matches; paths are appended to it.
        timeout: Maximum time of a request in seconds, with its answer and its repetitions.
        authority: PEM of the certificate authority of the server; None for those of this machine.
        authorization: Value of the header Authorization; empty for none.
        tries: How often a request is sent at most while the server cannot be reached or answers
            with 503. The waits between them grow from 0.1 s, or are as long as Retry-After says.
        by_proxy: Whether the proxies of the environment, such as HTTPS_PROXY, are used.
    """

    def __init__(
        self,
        address: str,
        timeout: float,
        *,
        authority: bytes | None = None,
        authorization: str = "",
        tries: int = 1,
        by_proxy: bool = False,
    ) -> None:
        self._address, self._timeout, self._tries = address, timeout, tries
        self._headers = {"Authorization": authorization} if authorization else {}
        self._secrets = _secrets(authorization) if authorization else []
        # reading those of this machine takes 20 ms
        trusts = context(authority) if authority or address[4:5] in "sS" else None
        self._pool = urllib3.PoolManager(ssl_context=trusts)
        if by_proxy and (proxy := _proxy(address)):
            scheme, _, rest = proxy.partition("://")
            user, _, host = rest.rpartition("@")  # a password may have any characters
            headers = urllib3.make_headers(proxy_basic_auth=urllib.parse.unquote(user) or None)
            proxy = f"{scheme}://{host}"
            self._pool = urllib3.ProxyManager(proxy, proxy_headers=headers, ssl_context=trusts)
        self._pool.pool_classes_by_scheme = _POOLS

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
        largest: int | None = None,
    ) -> Answer:
        """Sends a request, and returns the answer, whatever its status.

        Args:
            method: The HTTP method.
            path: What the URL has after the address.
            body: The body.
            headers: Further headers.
            largest: Maximum number of bytes of the answer; `LARGEST` if None.

        Raises:
            ConnectionError: If the server cannot be reached, or breaks off its answer.
            TimeoutError: If there is no whole answer in time.
            ValueError: If the answer is larger, or a redirect that is not followed.
        """
        until, answer, error = time.monotonic() + self._timeout, None, None
        request: dict[str, Any] = {"body": body, "headers": {**headers, **self._headers}}
        url, most = self._address + path, largest or LARGEST
        for number in range(self._tries):
            wait, answer, error = _WAIT * 2**number, None, None
            try:
                answer, told = self._follow(until, method, url, most, **request)
                wait, is_away = max(wait, told), answer.status == _UNAVAILABLE
            except urllib3.exceptions.HTTPError as found:
                error, is_away = found, isinstance(found, urllib3.exceptions.NewConnectionError)
            if not is_away or number + 1 == self._tries or time.monotonic() + wait >= until:
                break
            time.sleep(wait)
        if answer is None:
            raise self._error(error, until) from error
        return answer

    def _follow(
        self,
        until: float,
        method: str,
        url: str,
        largest: int,
        redirects: int = _REDIRECTS,
        **request: Any,
    ) -> tuple[Answer, float]:
        """The answer after all redirects, and the seconds until the next try that it asks for."""
        timeout = urllib3.Timeout(total=max(until - time.monotonic(), 1e-3))
        response = self._pool.urlopen(method, url, timeout=timeout, **request, **_AS_IT_COMES)
        with contextlib.closing(response):
            answer = Answer(response.status, _content(response, largest))
        location = response.get_redirect_location()
        if not location:
            return answer, _retry_after(response)
        target = urllib.parse.urljoin(url, location)
        if not redirects or method != "GET" or _origin(target) != _origin(url):
            expected = "expected no redirect, but of a GET to the same server"
            raise ValueError(received(expected, self.redact(f"{answer.status} to {target}")))
        return self._follow(until, method, target, largest, redirects - 1, **request)

    def _error(self, error: Exception | None, until: float) -> OSError:
        if isinstance(error, urllib3.exceptions.NewConnectionError):
            cause = self.redact(str(error.__cause__ or error))
            return ConnectionError(received("expected a server that can be reached", cause))
        if isinstance(error, urllib3.exceptions.TimeoutError) or time.monotonic() >= until:
            return TimeoutError(f"expected the whole answer within {self._timeout:g} s")
        reason = self.redact(str(error.args[-1] if error and error.args else error))
        return ConnectionError(received("expected a whole answer by HTTP", reason))

    def redact(self, text: str) -> str:
        """Returns text of the server as `one_line`, without the authorization."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return one_line(text)

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()


def context(authority: bytes | None) -> ssl.SSLContext:
    """Returns a context that trusts an authority, whose PEM may have any text between.

    Raises:
        ssl.SSLError: If there is no certificate in it.
    """
    # Python takes only ASCII, of which certificates are
    pem = authority and authority.decode("ascii", "ignore")
    return ssl.create_default_context(cadata=pem)


def one_line(text: str) -> str:
    """Returns text of others as one short line, without control characters and users of URLs.

    Example:
        >>> one_line("\\x1b[2Jsee  http://a:b@c/\\n")
        '[2Jsee http://c/'
    """
    text = "".join(x if x.isprintable() else " " for x in _USER.sub("://", text[:_READ]))
    text = " ".join(text.split()) or "no reason"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def quote(name: str) -> str:
    """Returns a name as a part of a URL."""
    return urllib.parse.quote(name, safe="")


def _secrets(authorization: str) -> list[str]:
    """The value of a header, its token and, of Basic, what that says."""
    token = authorization.partition(" ")[2].strip()
    secrets = [authorization, token]
    with contextlib.suppress(ValueError):
        user = base64.b64decode(token, validate=True).decode()
        secrets += [user, user.partition(":")[2]]
    return [x for x in secrets if x]


def _proxy(address: str) -> str | None:
    parts = urllib.parse.urlsplit(address)
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or urllib.request.proxy_bypass(parts.netloc):
        return None
    return found if "://" in found else f"http://{found}"


def _origin(url: str) -> tuple[str | None, str | None, int | None]:
    parts = urllib3.util.parse_url(url)
    return parts.scheme, parts.host, parts.port or (443 if parts.scheme == "https" else 80)


def _content(response: urllib3.BaseHTTPResponse, largest: int) -> bytes:
    pieces, size = [], 0
    for piece in response.stream(_PIECE, decode_content=True):
        pieces.append(piece)
        size += len(piece)
        if size > largest:
            raise ValueError(received(f"expected an answer of at most {largest} bytes", "more"))
    return b"".join(pieces)


def _retry_after(response: urllib3.BaseHTTPResponse) -> float:
    with contextlib.suppress(ValueError, urllib3.exceptions.InvalidHeader):
        return urllib3.Retry().get_retry_after(response) or 0.0
    return 0.0


class _Waiting(io.RawIOBase):
    """What a socket receives until a time, however few bytes come at once."""

    def __init__(self, received_by: Any, socket_: socket.socket, until: float) -> None:
        self._received_by, self._socket, self._until = received_by, socket_, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        return self._received_by.readinto(buffer)

    def close(self) -> None:
        self._received_by.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response whose headers and body come within the time that its socket has at first."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        until = time.monotonic() + (sock.gettimeout() or math.inf)
        self.fp = io.BufferedReader(_Waiting(self.fp.detach(), sock, until))


def _timed_pool(pool: Any) -> Any:
    """A class of pools whose connections have such responses."""
    connection = type("Connection", (pool.ConnectionCls,), {"response_class": _Response})
    return type("Pool", (pool,), {"ConnectionCls": connection})


_POOLS = {
    "http": _timed_pool(urllib3.HTTPConnectionPool),
    "https": _timed_pool(urllib3.HTTPSConnectionPool),
}
