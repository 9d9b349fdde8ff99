"""A server of bytes, and answers that no server should give, for clients of HTTP."""

import base64
import contextlib
import gzip
import json
import socket
import threading
import time
import zlib

SECRET = "admin:s3cret/Öl"
TOKEN = base64.b64encode(SECRET.encode()).decode()


def http(body=b"{}", status="200 OK", *headers, length=None):
    """The bytes of an answer."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", *headers]
    if length is not False:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Server:
    """Answers each request with bytes, or with what a function yields of them.

    Args:
        answer: Takes the method and the path of a request.
        context: Of TLS, if any.
    """

    def __init__(self, answer, context=None):
        self.answer, self.context = answer, context
        self.requests, self.connections, self.sent = [], 0, 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.url = f"http{'s' if context else ''}://localhost:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self.listening.accept()
                threading.Thread(target=self.serve, args=(accepted,), daemon=True).start()

    def serve(self, accepted):
        with contextlib.suppress(OSError, ValueError), accepted:
            accepted.settimeout(20.0)
            if self.context:
                accepted = self.context.wrap_socket(accepted, server_side=True)
            self.connections += 1
            with accepted, accepted.makefile("rb") as received:
                while line := received.readline():
                    method, path, _ = line.decode().split()
                    lines = [x.decode().strip() for x in iter(received.readline, b"\r\n")]
                    headers = dict(x.split(": ", 1) for x in lines)
                    received.read(int(headers.get("Content-Length", 0)))
                    self.requests.append((method, path, headers))
                    answer = self.answer(method, path)
                    for piece in [answer] if isinstance(answer, bytes) else answer:
                        accepted.sendall(piece)
                        self.sent += len(piece)
                    if not isinstance(answer, bytes) or not self.is_whole(answer):
                        return

    @staticmethod
    def is_whole(answer):
        """Whether an answer has the bytes that it tells, so that the connection goes on."""
        head, _, body = answer.partition(b"\r\n\r\n")
        return head.endswith(b"\r\nContent-Length: %d" % len(body))


def drip(head, piece=b" "):
    """Sends a byte after the other, slowly."""
    yield head
    for _ in range(400):
        time.sleep(0.03)
        yield piece


def flood(head, piece, count=1000):
    """Sends much, 600 MiB for example."""
    yield head
    for _ in range(count):
        yield piece


def chunk(piece):
    return b"%x\r\n%s\r\n" % (len(piece), piece)


BLANKS = b" " * 2**16
BOMB = gzip.compress(bytes(2**23), 9)
SLOW = {
    "a byte at a time": lambda: drip(http(length=9999)),
    "a byte at a time, without length": lambda: drip(http(length=False)),
    "a chunk at a time": lambda: drip(
        http(b"", "200 OK", "Transfer-Encoding: chunked", length=False), chunk(b" ")
    ),
    "a header at a time": lambda: drip(b"HTTP/1.1 200 OK\r\n", b"X"),
    "an error at a time": lambda: drip(http(b"", "500 Oops", length=9999), b"x"),
    "100 Continue, again and again": lambda: drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "silence": lambda: drip(b"", b""),
}
GZIP = "Content-Encoding: gzip"
CHUNKED = "Transfer-Encoding: chunked"
DEEP = 200_000
ANSWERS = {
    "600 MiB of blanks": lambda: flood(http(length=10_000 * 2**16), BLANKS, 10_000),
    "blanks without length": lambda: flood(http(length=False), BLANKS),
    "chunks of blanks": lambda: flood(http(b"", "200 OK", CHUNKED, length=False), chunk(BLANKS)),
    "endless error": lambda: flood(http(b"", "500 Oops", length=False), b"x" * 2**16),
    "endless headers": lambda: flood(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", 10_000),
    "endless line of a header": lambda: flood(b"HTTP/1.1 200 OK\r\nX-A: ", BLANKS, 100),
    "endless status": lambda: flood(b"HTTP/1.1 200 ", b"O" * 2**16, 100),
    "bomb of gzip": http(BOMB, "200 OK", GZIP),
    "bomb of deflate": http(zlib.compress(bytes(2**23)), "200 OK", "Content-Encoding: deflate"),
    "bomb in a bomb": http(gzip.compress(BOMB), "200 OK", "Content-Encoding: gzip, gzip"),
    "gzip, cut": http(gzip.compress(b'{"a": 1}')[:-12], "200 OK", GZIP),
    "gzip that is none": http(b"{}", "200 OK", GZIP),
    "bomb in an error": http(BOMB, "500 Oops", GZIP),
    "another encoding": http(b"\x0b\x02\x80{}\x03", "200 OK", "Content-Encoding: x-odd"),
    "cut": http(b'{"hits":', length=5000),
    "error, cut": http(b'{"error":', "500 Oops", length=5000),
    "chunk, cut": http(b"ffff\r\n{}", "200 OK", CHUNKED, length=False),
    "chunk of no size": http(b"zz\r\n{}\r\n", "200 OK", CHUNKED, length=False),
    "chunk of less than nothing": http(b"-5\r\n{}\r\n0\r\n\r\n", "200 OK", CHUNKED, length=False),
    "headers, cut": b"HTTP/1.1 200 OK\r\nContent-Le",
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "no status": b"HTTP/1.1 abc OK\r\n\r\n{}",
    "status of HTTP/9": b"HTTP/9.9 200 OK\r\n\r\n{}",
    "octets": bytes(range(256)),
    "two lengths": http(b"{}", "200 OK", "Content-Length: 7"),
    "length below 0": http(length=-1),
    "length of 5,000 digits": http(length="9" * 5000),
    "empty": http(b""),
    "HTML": http(b"<html>\x1b[2J</html>"),
    "null": http(b"null"),
    "number": http(b"7"),
    "digits": http(b"7" * 5000),
    "text": http(b'"hits"'),
    "true": http(b"true"),
    "array": http(b"[]"),
    "array of arrays": http(b"[[], []]"),
    "object": http(b"{}"),
    "welcome": http(b'{"welcome": 1}'),
    "NaN": http(b"NaN"),
    "deep array": http(b"[" * DEEP),
    "deep array, whole": http(b"[" * DEEP + b"]" * DEEP),
    "deep object": http(b'{"a":' * DEEP),
    "deep error": http(b'{"error":' * DEEP, "500 Oops"),
    "two values": http(b"{} {}"),
    "UTF-16": http('{"error": "ö"}'.encode("utf-16")),
    "Latin-1": http('{"ö": 1}'.encode("latin-1")),
    "no UTF-8": http(b'{"a": "\xff\xfe"}'),
    "half a character": http(b'{"error": "\\ud800"}'),
    "refusal in a success": http(b'{"error": "refused", "status": 400}'),
    "causes in a success": http({"error": {"root_cause": [{"reason": "a\nb"}], "reason": 7}}),
    "error of Solr in a success": http({"responseHeader": {"status": 400}, "error": {"msg": "x"}}),
    "status of Solr in a success": http({"responseHeader": {"status": 500}}),
    "not acknowledged": http({"acknowledged": False, "result": "noop", "model_id": "other"}),
    "failed shards": http({"result": "created", "_shards": {"failed": "\x1b[31m" * 99}}),
    "101": http(b"", "101 Switching", "Upgrade: x", length=False),
    "103": http(b"", "103 Early Hints", length=False),
    "204": http(b"", "204 No Content", length=False),
    "206": http(b'{"hi', "206 Partial"),
    "300": http(b"{}", "300 Choices"),
    "304": http(b"", "304 Not Modified", length=False),
    "302 to nowhere": http(b"{}", "302 Found"),
    "400 with escapes": http(
        {"error": {"reason": "\x1b]0;title\x07\x1b[2J\u202ered", "root_cause": [7]}}, "400 Bad"
    ),
    "401 that says the password": http(
        {"error": f"no user {SECRET} by Basic {TOKEN}\n"}, "401 No", "WWW-Authenticate: Basic"
    ),
    "403 of a URL with a password": http(b"see http://admin:s3cret@host/\x00\x85", "403 Forbidden"),
    "413": http(b"", "413 Too Large", "Retry-After: 1000"),
    "429": http(b"slow\r\ndown", "429 Too Many", "Retry-After: 1000"),
    "500 without reason": http(b"", "500 Oops"),
    "503 for long": http(b"busy", "503 Busy", "Retry-After: 100000"),
    "503 until a date": http(b"busy", "503 Busy", "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT"),
    "503 in words": http(b"busy", "503 Busy", "Retry-After: soon \xe9"),
    "status 999": http(b"", "999 Odd"),
}
ELSEWHERE = {
    "another host": "http://127.0.0.1:{port}/x",
    "another port": "http://localhost:{other}/x",
    "without scheme": "//127.0.0.1:{port}/x",
    "HTTPS": "https://localhost:{port}/x",
    "FTP": "ftp://localhost:{port}/x",
    "a file": "file:///etc/passwd",
    "an odd address": "http://[::1/x\x1b[2J",
    "a password": "http://admin:s3cret@127.0.0.1:{other}/x\x7f",
}


def redirect(to, status="302 Found"):
    return http(b"", status, f"Location: {to}")
