"""Models published to stores, and served from there."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from concurrent import futures

import pytest
import s3fs
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner

from tests.ports import free_port
from tests.serving.half_plus import save
from tests.stores.conftest import forget
from tfrank_sel import export
from tfrank_sel.data import leases, stores
from tfrank_sel.data.rejections import InputError
from tfrank_sel.export.releases import Releases
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.model_config import ModelConfig, Specific
from tfrank_sel.serving.endpoint import Endpoint


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """Folder of SavedModels, by bias."""
    folder = tmp_path_factory.mktemp("half")
    for bias in (2, 3):
        save(folder, bias, bias=bias)
    return folder


def files(url):
    return {path.removeprefix(f"{url}/") for path in stores.find(url)}


def test_versions_of_a_store_are_published_taken_back_and_removed(folder, half, tmp_path):
    base = f"{folder}/ranker"
    assert export.versions(base) == {}
    for version in (1, 2, 3, 4):
        assert export.publish(half / "2", base) == f"{base}/{version}"
    on_disk = export.publish(half / "2", tmp_path / "ranker")
    names = {str(x.relative_to(on_disk)) for x in on_disk.rglob("*") if x.is_file()}
    assert files(f"{base}/4") == names
    with pytest.raises(FileExistsError, match=r"must be new in .*Received: 4"):
        export.publish(half / "3", base, 4)
    assert export.roll_back(base) == 3
    assert files(f"{base}/rolled-back-4") == names
    assert export.versions(base) == {i: f"{base}/{i}" for i in (1, 2, 3)}
    assert export.remove_old(base, keep=2) == [1]
    assert export.versions(base).keys() == {2, 3}
    assert export.publish(f"{base}/3", base) == f"{base}/5"  # 4 was rolled back
    assert not [name for name in files(base) if name.startswith(("1/", ".lease"))]
    with pytest.raises(FileNotFoundError, match=r"must contain saved_model\.pb"):
        export.publish(f"{base}/none", base)


def fail_at(monkeypatch, operation, name):
    """Lets a store fail before a file is sent or removed."""
    genuine = getattr(s3fs.S3FileSystem, operation)

    async def failing(self, *paths, **options):
        if any(str(path).endswith(name) for path in paths):
            raise OSError("the line is cut")
        return await genuine(self, *paths, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, operation, failing)
    forget()


@pytest.mark.parametrize("name", ["variables.index", "saved_model.pb"])
def test_a_version_that_is_half_sent_is_none_and_is_sent_again(bucket, half, monkeypatch, name):
    base = f"{bucket}/ranker"
    export.publish(half / "2", base)
    with monkeypatch.context() as patch:
        fail_at(patch, "_put_file", name)
        with pytest.raises(InputError, match="the line is cut"):
            export.publish(half / "3", base)
    assert export.versions(base).keys() == {1}
    assert export.publish(half / "3", base) == f"{base}/2"
    assert files(f"{base}/2") == files(f"{base}/1")


def test_a_version_that_is_half_removed_is_none(bucket, half, monkeypatch):
    base = f"{bucket}/ranker"
    for _ in range(2):
        export.publish(half / "2", base)
    with monkeypatch.context() as patch:
        fail_at(patch, "_rm_file", "variables.index")
        with pytest.raises(InputError, match="the line is cut"):
            export.remove_old(base, keep=1)
    assert any(name.startswith("1/") for name in files(base))
    assert export.versions(base).keys() == {2}


def test_one_process_at_a_time_publishes(bucket, half):
    base = f"{bucket}/ranker"
    with leases.hold(base, renewed=0.2), pytest.raises(FileExistsError, match="another process"):
        export.publish(half / "2", base)


class Server:
    """A server process, and the lines it writes."""

    def __init__(self, *options):
        command = [sys.executable, "-m", "tfrank_sel.serving", "serve", "--rest-port=0"]
        self.process = subprocess.Popen(
            [*command, "--grpc-port=0", "--file-system-poll-wait-seconds=0.2", *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "AWS_MAX_ATTEMPTS": "1"},
        )
        [self.address] = re.findall(r"REST (\S+):?", self.until("Serving "))

    def until(self, what):
        for line in self.process.stdout:
            if what in line:
                return line
        raise AssertionError(f"the server ended before {what!r}")

    def answer(self, x=2.0):
        body = json.dumps({"instances": [x]}).encode()
        with urllib.request.urlopen(f"{self.address}:predict", body) as found:
            return json.load(found)["predictions"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()


def test_a_server_follows_a_store_and_serves_on_when_it_is_out_of_reach(
    bucket, half, tmp_path, monkeypatch
):
    port = free_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    forget()
    store = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    store.start()
    base = f"{bucket}/ranker"
    export.publish(half / "2", base)
    with Server("--model-base-path", base) as server:
        assert server.address.endswith("/v1/models/ranker")
        assert server.answer() == [3.0]
        export.publish(half / "3", base)
        server.until("serving version 2")
        assert server.answer() == [4.0]
        store.stop()
        assert base in server.until("cannot read")
        assert server.answer() == [4.0]
        store = ThreadedMotoServer("127.0.0.1", port, verbose=False)
        store.start()
        forget()
        assert export.roll_back(base) == 1
        server.until("serving version 1")
        assert server.answer() == [3.0]
        assert stores.find(tmp_path / "cache") == []
    store.stop()


NULL = json.dumps(
    {
        "signature_name": "predict",
        "inputs": {
            "brand": [["acme", None]],
            "price": [[1.5, 2.5]],
            "sizes": [[[1, 2], [3.5, 4]]],
            "country": ["de"],
            "mask": [[True, True]],
        },
    }
).encode()


def named(endpoint, name):
    """What a model answers to values that only its manifest tells how to read, and its inputs."""
    address = f"http://127.0.0.1:{endpoint.rest_port}"
    with urllib.request.urlopen(f"{address}/v1/models/{name}:predict", NULL) as found:
        answer = json.load(found)
    with urllib.request.urlopen(address) as found:
        return answer, found.read().replace(b'{"new":', b'{"old":')


def test_models_of_a_store_outlive_all_that_others_do_with_it(bucket, exported, tmp_path):
    """The shared copies of its versions, other servers and names of it: no answer changes."""
    base = f"{bucket}/ranker"
    export.publish(exported / "lookups", base)
    old, new = (ModelConfig(name, base) for name in ("old", "new"))
    with Endpoint([old]) as first:
        copy = stores.near_folder(f"{base}/1")  # as `score` makes it
        with Endpoint([old]) as second:
            expected = named(second, "old")
        assert named(first, "old") == expected
        other = subprocess.Popen(
            [sys.executable, "-m", "tfrank_sel.serving", "serve", "--model-base-path", base]
            + ["--rest-port=0", "--grpc-port=0"],
            stdout=subprocess.PIPE,
        )
        assert other.stdout.readline().startswith(b"Serving ")
        other.kill()
        other.communicate()
        assert named(first, "old") == expected
        shutil.rmtree(tmp_path / "cache" / "folders")
        copy = stores.near_folder(f"{base}/1")
        first._core.reload([new])
        assert named(first, "new") == expected
        assert {*stores.find(copy)} == {f"{copy}/{x}" for x in files(f"{base}/1")}
        export.publish(exported / "lookups", base)
        with Endpoint([new]) as second:
            assert named(second, "new") == expected
    assert os.path.isdir(copy)


def refused(*arguments):
    told = CliRunner().invoke(app, list(map(str, arguments)))
    assert told.exit_code == 2, (told.output, told.exception)
    [line] = told.stderr.splitlines()
    return line


def test_a_server_that_finds_no_model_tells_why_in_a_line(bucket, monkeypatch):
    def line(url):
        return refused("serve", "--model-base-path", url, "--rest-port=0", "--grpc-port=0")

    assert f"{bucket}/none must hold a version" in line(f"{bucket}/none")
    assert "base_path must be a local folder, or a URL of s3" in line("foo://bucket/ranker")
    assert "Received: the unknown scheme foo://" in refused(
        "serve", "--model-config-file", "foo://bucket/models.config"
    )
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    forget()
    assert "must be within reach. Received: Could not connect" in line(f"{bucket}/ranker")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    forget()
    assert "expected credentials of the store" in line(f"{bucket}/ranker")


def test_a_deployment_holds_the_models_of_a_store(bucket, half, tmp_path):
    base = f"{bucket}/half"
    for bias in ("2", "3"):
        export.publish(half / bias, base)
    options = ["--output", tmp_path / "out", "--model-name", "half", "--saved-model-base"]
    told = CliRunner().invoke(app, ["deployment", "--copy-models", *map(str, options), base])
    assert told.exit_code == 0, told.output
    for version in ("1", "2"):
        copied = tmp_path / "out" / "models" / "half" / version
        assert files(f"{base}/{version}") == {
            str(x.relative_to(copied)) for x in copied.rglob("*") if x.is_file()
        }
    options[1] = tmp_path / "another"
    assert "Received: foo://bucket" in refused("deployment", *options, "foo://bucket")


def test_models_that_are_published_to_a_store_at_once_wait_for_each_other(bucket, half):
    names = [f"m{i}" for i in range(6)]
    with futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: Releases(bucket, name).publish(half / "2"), names))
    served = model_config.read(f"{bucket}/models.config")
    assert sorted(x.name for x in served) == names


def test_a_release_to_a_store_is_what_a_server_is_told(bucket, half, monkeypatch):
    root = f"{bucket}/served"
    base, told, releases = f"{root}/ranker", f"{root}/models.config", Releases(root, "ranker")
    assert releases.served_folder() is None
    with pytest.raises(InputError, match="a canary requires another version"):
        releases.publish(half / "2", canary=True)
    assert releases.publish(half / "2") == f"{base}/1"
    assert model_config.read(told) == [ModelConfig("ranker", base)]
    assert releases.publish(half / "3", canary=True) == f"{base}/2"
    labels = {"stable": 1, "canary": 2}
    assert model_config.read(told) == [ModelConfig("ranker", base, Specific([1, 2]), labels)]
    assert releases.served_folder() == f"{base}/1"
    assert releases.promote() == 2
    assert releases.served_folder() == f"{base}/2"
    with pytest.raises(InputError, match="must be new in"):
        releases.publish(half / "3", 2, canary=True)
    monkeypatch.setattr(export.releases, "_PATIENCE", 0.1)
    with leases.hold(root, renewed=0.2), pytest.raises(InputError, match="another process"):
        releases.promote()
    assert releases.roll_back() == 1
    releases.publish(half / "3", canary=True)
    assert releases.remove_old(keep=1) == [2]
    assert model_config.read(told)[0].labels == {"stable": 1, "canary": 3}
