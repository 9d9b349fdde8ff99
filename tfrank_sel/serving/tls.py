"""TLS of the gRPC service, from an `SSLConfig`."""

import pathlib
import ssl
import tempfile
from collections.abc import Iterator
from typing import Any

import grpc


def credentials(config: Any) -> grpc.ServerCredentials:
    """Returns the credentials of a server.

    Args:
        config: The `SSLConfig`: PEM of `server_key` and `server_cert`, and, if clients
            need a certificate (`client_verify`), that of their authority, `custom_ca`.
    """
    pair = config.server_key.encode(), config.server_cert.encode()
    authority = config.custom_ca.encode() or None
    return grpc.ssl_server_credentials([pair], authority, config.client_verify)


def broken_rules(config: Any) -> Iterator[tuple[str, str]]:
    """Yields the invalid fields of an `SSLConfig`, and the required value of each."""
    if config.client_verify and not config.custom_ca:
        yield "custom_ca", "must hold the authority of the clients, as client_verify asks for it"
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for field in ("server_cert", "server_key"):
            files.append(pathlib.Path(folder, field))
            files[-1].write_text(getattr(config, field))
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*map(str, files))
        except ssl.SSLError as error:
            rule = f"must be a certificate and its key, in PEM. Received: {error.reason or error}"
            yield "server_cert, server_key", rule
    if config.custom_ca:
        try:
            ssl.create_default_context(cadata=config.custom_ca)
        except ssl.SSLError as error:
            yield "custom_ca", f"must be certificates in PEM. Received: {error.reason}"
