import pathlib
import shutil
import threading
import time

import numpy as np
import pytest

from tests.serving.half_plus import Client, save
from tfrank_sel.serving.deployment.model_config import Latest, ModelConfig
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.engine.versions import ModelVersions, State, find
from tfrank_sel.serving.status import ServingError

X = np.array([2.0], np.float32)


@pytest.fixture
def base(half, tmp_path):
    base = tmp_path / "half"
    base.mkdir()
    shutil.copytree(half / "1", base / "1")
    return base


@pytest.fixture
def versions(base):
    versions = ModelVersions(ModelConfig("half", base, load_retry_seconds=0.0, max_load_retries=1))
    versions.poll()
    yield versions
    versions.close()


def states(versions):
    return {status.version: status.state for status in versions.statuses()}


def served(versions, version=None):
    with versions.acquire(version) as model:
        return model and model.version


def test_versions_are_folders_named_by_integers(tmp_path):
    for name in ("3", "00000004", "foo", ".tmp5", "6.tmp", "-7", "٨", "20261121235959123456"):
        (tmp_path / name).mkdir()
    (tmp_path / "9").touch()

    assert find(tmp_path) == {3: tmp_path / "3", 4: tmp_path / "00000004"}


def test_a_new_version_takes_over(versions, base, half):
    assert served(versions) == 1

    shutil.copytree(half / "2", base / "2")
    versions.poll()

    assert (served(versions), served(versions, 1)) == (2, None)
    assert states(versions) == {2: State.AVAILABLE, 1: State.END}


def test_a_version_that_goes_is_followed_by_the_one_before(versions, base, half):
    shutil.copytree(half / "2", base / "2")
    versions.poll()
    shutil.rmtree(base / "2")
    versions.poll()

    assert served(versions) == 1
    assert states(versions) == {2: State.END, 1: State.AVAILABLE}


def test_a_broken_version_leaves_the_old_one_serving(versions, base, half):
    shutil.copytree(half / "2", base / "2")
    (base / "2" / "saved_model.pb").write_bytes(b"broken")

    versions.poll()
    assert states(versions) == {2: State.LOADING, 1: State.AVAILABLE}
    for _ in range(3):
        versions.poll()

    assert served(versions) == 1
    assert states(versions) == {2: State.END, 1: State.AVAILABLE}
    assert "does not load" in versions.statuses()[0].message
    shutil.rmtree(base / "2")
    versions.poll()
    shutil.copytree(half / "2", base / "2")
    versions.poll()
    assert served(versions) == 2


def test_a_broken_version_that_is_taken_away_has_ended(versions, base):
    (base / "2").mkdir()
    versions.poll()
    (base / "2").rmdir()
    versions.poll()

    assert states(versions) == {2: State.END, 1: State.AVAILABLE}


def test_a_version_is_freed_when_its_last_request_ends(versions, base, half):
    with versions.acquire(None) as model:
        shutil.copytree(half / "2", base / "2")
        versions.poll()
        assert states(versions) == {2: State.AVAILABLE, 1: State.UNLOADING}
        signature = model.signatures["serving_default"]
        assert model.run(signature, {"x": X}, ["y"])[0].tolist() == [3.0]
    assert states(versions)[1] == State.END


def test_a_folder_that_disappears_unloads_nothing_and_an_empty_one_everything(versions, base):
    base.rename(base.parent / "away")
    versions.poll()
    assert served(versions) == 1

    base.mkdir()
    versions.poll()
    assert served(versions) is None


@pytest.mark.long
def test_versions_swap_without_a_failed_request(base, half):
    answers, errors, stop = [], [], threading.Event()

    def ask(port):
        client = Client(port)
        while not stop.is_set():
            try:
                response = client.predict(x=X)
                version = response.model_spec.version.value
                answers.append((version, response.outputs["y"].float_val[0]))
            except Exception as error:
                errors.append(error)

    with Endpoint([ModelConfig("half", base)], poll_seconds=0.05) as endpoint:
        threads = [threading.Thread(target=ask, args=(endpoint.grpc_port,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for version in range(2, 6):
            save(base, version, bias=version + 1)
            deadline = time.monotonic() + 100
            while answers[-1:] != [(version, version + 2.0)] and time.monotonic() < deadline:
                time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()

    assert not errors
    assert set(answers) == {(version, version + 2.0) for version in range(1, 6)}


def test_what_cannot_be_served_is_told_at_the_start(tmp_path, half):
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = tmp_path / "broken"
    shutil.copytree(half / "1", broken / "1")
    (broken / "1" / "saved_model.pb").unlink()

    for base, message in ((empty, "must hold a version"), (broken, "does not load")):
        with pytest.raises(ServingError, match=message):
            Endpoint([ModelConfig("m", base)]).start()


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_port_in_use_is_told(endpoint, half, protocol):
    port = getattr(endpoint, f"{protocol}_port")
    second = Endpoint([ModelConfig("half", half)], **{f"{protocol}_port": port})

    with pytest.raises(ServingError, match=f"127.0.0.1:{port} must be free"):
        second.start()


def test_bad_configurations_are_refused():
    with pytest.raises(
        ValueError, match=r"`num_versions` must be positive\. Received: num_versions=0"
    ):
        Latest(0)
    with pytest.raises(ValueError, match="`name` must not be empty"):
        ModelConfig("", pathlib.Path())
    with pytest.raises(ValueError, match="must differ"):
        Endpoint([ModelConfig("m", pathlib.Path())] * 2)


def test_a_poll_does_not_wait_for_a_version_that_is_loading(base):
    loading, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        version = 1

        def __init__(self, path, version):
            self.path = path
            loading.set()
            go_on.wait(20)

        def close(self):
            closed.set()

    versions = ModelVersions(ModelConfig("half", base), load=Slow)
    thread = threading.Thread(target=versions.poll)
    thread.start()
    assert loading.wait(20)
    start = time.monotonic()
    versions.poll(patience=0.1)
    versions.close()
    waited = time.monotonic() - start
    go_on.set()
    thread.join()

    assert waited < 5
    assert closed.is_set()
    assert states(versions) == {1: State.END}
