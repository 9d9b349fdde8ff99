"""Real servers of object stores on this machine."""

import socketserver
import threading
from collections.abc import Iterator

import gcsfs
import pytest
import s3fs
from gcp_storage_emulator.server import create_server
from moto.server import ThreadedMotoServer

from tests.ports import free_port


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 server."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def gcs() -> Iterator[str]:
    """The address of a server of Google Cloud Storage, with a bucket."""
    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    threading.Thread(target=server.start, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:  # clients that hang up early are no news
        patch.setattr(socketserver.BaseServer, "handle_error", lambda *_: None)
        yield f"http://127.0.0.1:{port}"
        server.stop()


@pytest.fixture
def environment(s3, gcs, tmp_path, monkeypatch) -> None:
    """What a user sets, to find the stores."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
    monkeypatch.setenv("TFRANK_SEL_CACHE", str(tmp_path / "cache"))
    forget()


def forget() -> None:
    """Drops the clients of stores, which read the environment when they are made."""
    s3fs.S3FileSystem.clear_instance_cache()
    gcsfs.GCSFileSystem.clear_instance_cache()


@pytest.fixture
def bucket(environment, tmp_path) -> str:
    """The URL of a new bucket of S3."""
    name = f"bucket-{abs(hash(tmp_path)):x}"
    s3fs.S3FileSystem().mkdir(name)
    return f"s3://{name}"


@pytest.fixture(params=["s3", "gs"])
def folder(request, bucket, tmp_path) -> str:
    """The URL of an empty folder in a store."""
    return f"{bucket}/folder" if request.param == "s3" else f"gs://bucket/{abs(hash(tmp_path)):x}"
