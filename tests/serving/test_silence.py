"""Nothing that goes wrong in one place silences the endpoint, or stops what follows folders."""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
import s3fs

from tests.ports import free_port
from tests.serving.test_reload import publish, soon, write
from tfrank_sel.export.saved_model import WARM_UP
from tfrank_sel.serving.admission import Admission
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.model_config import ModelConfig, Specific
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.engine import versions
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.predict import warmup_requests
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.rest import page
from tfrank_sel.serving.status import Code, ServingError

FLOODS = {
    "print": "for i in range(40000): print('x' * 99)",
    "logging": "import logging\nfor i in range(40000): logging.warning('x' * 99)",
    "below Python": "import os\nfor i in range(40000): os.write(2, b'x' * 99)",
    "a process": "import subprocess\n"
    "subprocess.run(['head', '-c', '4000000', '/dev/zero'], stderr=subprocess.STDOUT)",
}


@pytest.mark.parametrize("kind", FLOODS)
def test_output_that_nobody_reads_stops_nothing(kind, tmp_path):
    done = tmp_path / "done"
    code = "import pathlib\nfrom tfrank_sel.serving.output import drain_output\n"
    code += "with drain_output():\n"
    lines = [*FLOODS[kind].splitlines(), f"pathlib.Path({str(done)!r}).touch()"]
    code += "".join(f"    {line}\n" for line in lines)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with process:
        assert process.wait(100) == 0  # while nothing is read
        assert process.stdout.read()
    assert done.exists()


def test_output_that_is_read_is_whole_and_in_order():
    code = (
        "from tfrank_sel.serving.output import drain_output\n"
        "with drain_output():\n    for i in range(1000): print(i, flush=True)\nprint('after')"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [*map(str, range(1000)), "after"]


ODD = [ValueError("NUL"), TypeError("scheme"), AttributeError("empty"), KeyError("Size"), OSError()]


@pytest.mark.sample(5)
@pytest.mark.parametrize("error", ODD, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("place", ["folder", "configuration"])
def test_no_exception_of_one_round_ends_the_next(half, tmp_path, monkeypatch, caplog, error, place):
    failing, rounds = threading.Event(), []

    def fails(kept):
        def wrapped(place):
            if failing.is_set() and str(tmp_path) in str(place):  # of this test's server
                rounds.append(1)
                raise error
            return kept(place)

        return wrapped

    path, base = tmp_path / "models.config", tmp_path / "base"
    shutil.copytree(half / "1", base / "1")
    write(path, base, "")
    module, name = (versions, "find") if place == "folder" else (model_config, "read")
    monkeypatch.setattr(module, name, fails(getattr(module, name)))
    options = {"poll_seconds": 0.02, "config_file": path, "config_poll_seconds": 0.02}
    core = ServerCore(model_config.read(path), **options)
    core.start()
    try:
        failing.set()
        assert soon(lambda: len(rounds) > 3)
        with core.acquire("half") as model:
            assert model.version == 1
        failing.clear()
        publish(half / "2", base / "2")
        assert soon(lambda: core.statuses("half", 2)[0].state == versions.State.AVAILABLE)
        told = [x for x in caplog.messages if str(tmp_path) in x]
        assert len([x for x in told if type(error).__name__ in x or "cannot" in x]) == 1
        assert b":tfrank_sel:serving:failed_round_count{" in core.metrics()
    finally:
        core.stop()


@pytest.mark.parametrize("wrong", ["nowhere", "empty", "broken"])
def test_a_model_with_a_wrong_new_folder_stays_until_it_has_a_version(half, tmp_path, wrong):
    path, new = tmp_path / "models.config", tmp_path / wrong
    if wrong != "nowhere":
        new.mkdir()
    if wrong == "broken":
        (new / "1").mkdir()
        (new / "1" / "saved_model.pb").write_text("no graph")
    write(path, half, "")
    core = ServerCore(
        model_config.read(path), poll_seconds=0.02, config_file=path, config_poll_seconds=0.02
    )
    core.start()
    try:
        with pytest.raises(ServingError) as error:
            core.reload([ModelConfig("half", new)])
        assert error.value.code == Code.UNKNOWN
        with core.acquire("half") as model:
            assert model.version == 2
        write(path, new, "")
        publish(half / "1", new / "7")
        assert soon(lambda: core.statuses("half", 7)[0].state == versions.State.AVAILABLE)
        with core.acquire("half") as model:
            assert model.version == 7
    finally:
        core.stop()


@pytest.mark.parametrize(
    "base_path",
    ["http://127.0.0.1:9/m", "github://x", "zip://x::http://h", "s3://b::http://h", "/srv/\0m"],
)
def test_folders_are_here_or_in_stores_that_are_known(base_path):
    with pytest.raises(ServingError, match=r"base_path must be .*\. Received: ") as error:
        model_config.locate(base_path)
    assert error.value.code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("scheme", model_config.SCHEMES)
def test_a_store_that_is_known_is_accepted(scheme):
    assert model_config.locate(f"{scheme}://bucket/m/") == f"{scheme}://bucket/m"


@pytest.mark.long
def test_a_version_that_loads_for_ever_does_not_delay_the_end(half):
    loading, go_on = threading.Event(), threading.Event()

    def load(path, version):
        if version == 2:
            loading.set()
            go_on.wait(60)
        return Model(path, version)

    first = ModelConfig("half", half, model_config.Specific([1]))
    core = ServerCore([first], poll_seconds=0.02, load=load)
    core.start()
    core._models["half"].config = ModelConfig("half", half)
    assert loading.wait(20)
    assert not core.stop()
    go_on.set()
    for thread in core._threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.long
def test_a_signal_ends_a_server_whose_first_version_is_loading(half, tmp_path):
    code = (
        "import sys, time\nfrom tfrank_sel.serving import endpoint\n"
        "class Slow:\n    def __init__(self, *_, **__):\n"
        "        print('loading', flush=True); time.sleep(1000)\n"
        "endpoint.Model = Slow\n"
        "from tfrank_sel.serving.__main__ import main\nmain()"
    )
    ports = [f"--grpc-port={free_port()}", f"--rest-port={free_port()}"]
    command = [sys.executable, "-c", code, "serve", f"--model-base-path={half}", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_connection_with_the_most_unfinished_requests_gives_way():
    async def receive(admission, connection, seconds):
        async with admission.receive(connection):
            await asyncio.sleep(seconds)

    async def run():
        admission = Admission(Limits(receiving=4))
        good = asyncio.create_task(receive(admission, "good", 0.2))
        await asyncio.sleep(0)
        bad = [asyncio.create_task(receive(admission, "bad", 0.1)) for _ in range(50)]
        ended = await asyncio.gather(good, *bad, return_exceptions=True)
        admission.close()
        return ended

    good, *bad = asyncio.run(run())
    assert good is None
    codes = [x.code for x in bad if x is not None]
    assert codes == [Code.UNAVAILABLE] * 47


def test_a_connection_with_too_many_waiting_requests_is_closed(endpoint):
    one = b"GET /v1/models/half/metadata HTTP/1.1\r\nhost: h\r\n\r\n"
    with socket.create_connection(("127.0.0.1", endpoint.rest_port), timeout=20) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(one * 1000)
            while connection.recv(1 << 16):
                pass
        assert select.select([connection], [], [], 0)[0]  # closed
    with socket.create_connection(("127.0.0.1", endpoint.rest_port), timeout=20) as connection:
        connection.sendall(one * 10 + one.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        answer = b""
        while received := connection.recv(1 << 16):
            answer += received
    assert answer.count(b"HTTP/1.1 200") == 11


ENDS = {"reset": struct.pack("ii", 1, 0), "closed": struct.pack("ii", 0, 0)}
POST = b"POST /v1/models/half:predict HTTP/1.1\r\nhost: h\r\ncontent-length: 20\r\n\r\n"
SENT = {"one": POST + b'{"instances": [2.0]}', "several": 5 * (POST + b'{"instances": [2.0]}')}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("sent", SENT)
def test_requests_of_clients_that_are_gone_are_dropped_without_a_word(
    half, caplog, monkeypatch, sent, end
):
    runs, run = [], Model.run

    def slow(*args, **options):
        runs.append(1)
        time.sleep(0.1)
        return run(*args, **options)

    with Endpoint([ModelConfig("half", half)]) as endpoint:
        monkeypatch.setattr(Model, "run", slow)
        place = "127.0.0.1", endpoint.rest_port
        for _ in range(100):
            with socket.create_connection(place) as connection:
                connection.sendall(SENT[sent])
                time.sleep(0.002)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ENDS[end])
        began = time.monotonic()
        with socket.create_connection(place, timeout=60) as connection:
            connection.sendall(SENT["one"])
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - began < 1.0
    assert len(runs) < 50
    assert caplog.text == ""


@pytest.fixture
def silent_store(monkeypatch):
    """A server of S3 that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "key")
        s3fs.S3FileSystem.clear_instance_cache()
        yield "s3://bucket/half"
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.long
def test_a_store_that_does_not_answer_holds_up_no_other_change(half, silent_store, monkeypatch):
    monkeypatch.setattr("tfrank_sel.serving.engine.core._STORE_SECONDS", 3.0)
    core = ServerCore([ModelConfig("half", half, Specific([1]))])
    core.start()
    refused = []

    def change():
        with pytest.raises(
            ServingError, match="s3://bucket/half must answer in 3 seconds"
        ) as found:
            core.reload([ModelConfig("half", silent_store)])
        refused.append(found.value.code)

    try:
        changing = threading.Thread(target=change)
        changing.start()
        time.sleep(0.5)
        began = time.monotonic()
        core.reload([ModelConfig("half", half, Specific([2]))])
        assert time.monotonic() - began < 2.0
        changing.join(60)
        assert refused == [Code.UNAVAILABLE]
        with core.acquire("half") as model:
            assert model.version == 2
    finally:
        core.stop()


@pytest.mark.parametrize(
    "base_path", ["hdfs://10.0.0.1:8020/x", "s3://other/half", "gs://bucket/x"]
)
def test_a_client_names_no_store_that_the_server_is_not_configured_with(half, base_path):
    core = ServerCore([ModelConfig("half", half), ModelConfig("far", "s3://bucket/far")])
    with pytest.raises(ServingError, match=r"configured with: s3://bucket\. Received") as found:
        core.request([ModelConfig("half", base_path)])
    assert found.value.code == Code.INVALID_ARGUMENT


def test_the_page_reads_a_version_once(half, monkeypatch):
    read = []
    monkeypatch.setattr(page.input_features, "of_model", lambda *of: read.append(of))
    core = ServerCore([ModelConfig("half", half)])
    core.reload([ModelConfig("half", half)])
    read.clear()
    assert page.render_page(core) == page.render_page(core)
    assert len(read) == 1


@pytest.mark.parametrize("kept", [1, 11, 12, 15, -1])
def test_warm_up_requests_that_are_cut_are_refused(half, tmp_path, kept):
    shutil.copytree(half / "1", tmp_path / "1")
    path = tmp_path / "1" / WARM_UP
    path.parent.mkdir()
    record = b"\x10\0\0\0\0\0\0\0" + bytes(4 + 16 + 4)
    path.write_bytes(record[:kept])
    with pytest.raises(ServingError) as error:
        list(warmup_requests(path))
    assert error.value.code == Code.DATA_LOSS
    assert os.fspath(path) in str(error.value)


def test_rounds_log_a_change_of_the_fault(caplog):
    followed = versions.Rounds()
    for reason in ("a", "a", "b", "b", "a"):
        with followed.attempt("cannot"):
            raise RuntimeError(reason)
    assert [x[-1] for x in caplog.messages] == ["a", "b", "a"]
    with followed.attempt("cannot"):
        time.sleep(0)
    assert followed.fault == ""
