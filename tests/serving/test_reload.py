import contextlib
import pathlib
import shutil
import threading
import time
from typing import ClassVar

import grpc
import numpy as np
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

from tests import refusals
from tests.serving.half_plus import Client
from tfrank_sel.serving.deployment.model_config import (
    AllVersions,
    Latest,
    ModelConfig,
    Specific,
    read,
)
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.versions import State
from tfrank_sel.serving.status import Code, ServingError

X = np.array([2.0], np.float32)


@pytest.fixture
def core(half):
    core = ServerCore([ModelConfig("half", half, Latest(2))], poll_seconds=0.05)
    core.start()
    yield core
    core.stop()


def served(core, **which):
    with core.acquire("half", **which) as model:
        return model.version


def soon(look):
    """What a look finds, once it finds something and does not fail, within 100 seconds."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        with contextlib.suppress(ServingError):
            if found := look():
                return found
        time.sleep(0.02)
    return look()


def labelled(half, **labels):
    return [ModelConfig("half", half, Specific([1, 2]), labels)]


def test_policies_say_which_versions_to_serve():
    found = [3, 1, 2]
    assert Latest().aspired_versions(found) == [3]
    assert Latest(2).aspired_versions(found) == [3, 2]
    assert AllVersions().aspired_versions(found) == [3, 2, 1]
    assert Specific([1, 7]).aspired_versions(found) == [1]


def test_labels_name_versions(core, half):
    core.reload(labelled(half, stable=1, canary=2))

    assert (served(core, label="stable"), served(core, label="canary")) == (1, 2)
    with pytest.raises(ServingError, match="Unrecognized servable version label: other"):
        served(core, label="other")


def test_a_label_may_only_name_what_is_served(core, half):
    core.reload(labelled(half, stable=1))

    with pytest.raises(ServingError, match="assign label to version 77 of model half, which is"):
        core.reload(labelled(half, stable=1, x=77))

    assert served(core, label="stable") == 1


def test_a_new_label_may_wait_for_its_version_if_allowed(half):
    core = ServerCore(labelled(half, later=77), allow_labels_for_unavailable=True)
    core.start()
    try:
        with pytest.raises(ServingError) as error:
            served(core, label="later")
        assert error.value.code == Code.NOT_FOUND
        core.reload(labelled(half, later=1))
        with pytest.raises(ServingError, match="which is not currently available"):
            core.reload(labelled(half, later=77))  # moved away from a version that is served
        assert served(core, label="later") == 1
    finally:
        core.stop()


def test_a_reload_replaces_the_models(core, half):
    core.reload([ModelConfig("other", half)])

    with core.acquire("other") as model:
        assert model.version == 2
    with pytest.raises(ServingError, match="Servable not found"):
        served(core)
    assert {x.state for x in core.statuses("half")} == {State.END}


def test_a_reload_tells_which_models_have_no_version(core, half, tmp_path):
    with pytest.raises(
        ServingError, match=r"1 model\(s\) did not become available.*empty"
    ) as error:
        core.reload([ModelConfig("half", half), ModelConfig("empty", tmp_path)])

    assert error.value.code == Code.UNKNOWN
    assert served(core) == 2


def test_only_tensorflow_models_are_served(half):
    with pytest.raises(ServingError, match=r"must be tensorflow\. Received: other"):
        ServerCore([ModelConfig("half", half, platform="other")]).start()


def test_a_server_reloads_on_request_and_asks_by_label(half):
    text = f"""config {{ model_config_list {{ config {{
        name: "half" base_path: "{half}" model_platform: "tensorflow"
        model_version_policy {{ all {{}} }}
        version_labels {{ key: "canary" value: 2 }} version_labels {{ key: "stable" value: 1 }}
    }} }} }}"""
    request = text_format.Parse(text, model_management_pb2.ReloadConfigRequest())
    with Endpoint([ModelConfig("half", half, AllVersions())]) as endpoint:
        client = Client(endpoint.grpc_port)
        models = model_service_pb2_grpc.ModelServiceStub(client.channel)
        models.HandleReloadConfigRequest(request)
        for label, y in (("stable", 3.0), ("canary", 4.0)):
            asked = client.request(x=X)
            asked.model_spec.version_label = label
            assert client.stub.Predict(asked).outputs["y"].float_val[0] == y
        request.config.model_config_list.config.add(name="half")
        with pytest.raises(grpc.RpcError, match="Illegal to list model half multiple times"):
            models.HandleReloadConfigRequest(request)


def publish(version, path):
    """Copies a version to a folder that is followed, whole at once."""
    aside = path.parent / "aside"
    shutil.copytree(version, aside)
    aside.rename(path)


def write(path, base, rest):
    write_models(path, {"half": base}, rest)


def write_models(path, bases, rest=""):
    """Writes the configuration of models atomically, from their folders by name."""
    aside = path.with_name("aside")
    configs = [
        f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" {rest} }}'
        for name, base in bases.items()
    ]
    aside.write_text(f"model_config_list {{ {' '.join(configs)} }}")
    aside.rename(path)


def test_a_configuration_file_is_followed(half, tmp_path):
    path = tmp_path / "models.config"
    write(path, half, "model_version_policy { specific { versions: 1 } }")
    core = ServerCore(read(path), poll_seconds=0.02, config_file=path, config_poll_seconds=0.02)
    core.start()
    try:
        assert served(core) == 1
        path.write_text("not a configuration")
        time.sleep(0.2)
        assert served(core) == 1
        write(path, half, "model_version_policy { latest { num_versions: 1 } }")
        assert soon(lambda: served(core) == 2)
    finally:
        core.stop()


def test_a_reload_does_not_wait_while_the_file_makes_a_version_load(half, tmp_path):
    loading, go_on = threading.Event(), threading.Event()

    def load(path, version):
        if version == 2:
            loading.set()
            go_on.wait(20)
        return Model(path, version)

    path = tmp_path / "models.config"
    write(path, half, "model_version_policy { specific { versions: 1 } }")
    options = {"poll_seconds": 0.02, "config_file": path, "config_poll_seconds": 0.02}
    core = ServerCore(read(path), **options, load=load)
    core.start()
    try:
        write(path, half, "")
        assert loading.wait(20)
        start = time.monotonic()
        core.reload([ModelConfig("half", half, Specific([1]), {"stable": 1})])
        assert time.monotonic() - start < 5
        assert served(core, label="stable") == 1
    finally:
        go_on.set()
        core.stop()


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", ["folder", "reload"])
def test_a_slow_folder_delays_no_other_model(half, tmp_path, way):
    loading, go_on = threading.Event(), threading.Event()

    def load(path, version):
        if version == 2 and path.parent.name == "slow":
            loading.set()
            go_on.wait(600)
        return Model(path, version)

    for name in ("slow", "half"):
        shutil.copytree(half / "1", tmp_path / name / "1")
    models = [ModelConfig(name, tmp_path / name) for name in ("slow", "half")]
    core = ServerCore(models[way == "reload" :], poll_seconds=0.02, load=load)
    core.start()
    reload = threading.Thread(target=core.reload, args=[models])
    try:
        shutil.copytree(half / "2", tmp_path / "slow" / "2")
        if way == "reload":
            reload.start()
        assert loading.wait(20)
        time.sleep(0.2)  # checks go on
        shutil.copytree(half / "2", tmp_path / "half" / "2")
        assert soon(lambda: served(core) == 2)
        assert answering(core, "slow") == (1 if way == "folder" else None)
        if way == "folder":
            assert not core.stop()
    finally:
        go_on.set()
        if way == "reload":
            reload.join()
        core.stop()


def test_a_configuration_that_is_refused_is_tried_again(half, tmp_path):
    path, base = tmp_path / "models.config", tmp_path / "base"
    shutil.copytree(half / "1", base / "1")
    shutil.copytree(half / "2", tmp_path / "2")
    write(path, base, "")
    core = ServerCore(read(path), poll_seconds=0.02, config_file=path, config_poll_seconds=0.02)
    core.start()
    try:
        write(path, base, 'version_labels { key: "canary" value: 2 }')
        time.sleep(0.2)  # the version is not there yet
        (tmp_path / "2").rename(base / "2")
        assert soon(lambda: served(core, label="canary")) == 2
    finally:
        core.stop()


@pytest.mark.parametrize(("text", "message"), refusals.of("reload"))
def test_a_bad_configuration_is_told(tmp_path, text, message):
    path = tmp_path / "models.config"
    path.write_text(text)

    with pytest.raises(ServingError, match=message) as error:
        read(path)

    assert error.value.code == Code.INVALID_ARGUMENT
    with pytest.raises(ServingError, match="cannot be read: No such file"):
        read(pathlib.Path(f"{path}.other"))


def test_a_model_whose_folder_moves_is_loaded_from_there(core, half, tmp_path):
    shutil.copytree(half / "1", tmp_path / "1")

    core.reload([ModelConfig("half", tmp_path)])

    assert served(core) == 1


class Fake:
    """A version that takes no time to load; one with a file `broken` does not."""

    loads: ClassVar[list[pathlib.Path]] = []

    def __init__(self, path, version):
        self.loads.append(path)
        if (path / "broken").exists():
            raise ValueError("cut")
        self.path, self.version, self.definitions, self.signatures = path, version, {}, {}

    def close(self):
        pass


def answering(core, name):
    """The version that answers; None if there is none."""
    with contextlib.suppress(ServingError), core.acquire(name) as model:
        return model.version
    return None


@pytest.fixture
def followed(tmp_path, monkeypatch):
    """A server of `m` in `good`, that follows the file `models.config`, and a folder `new`."""
    monkeypatch.setattr(Fake, "loads", [])
    (tmp_path / "good" / "1").mkdir(parents=True)
    (tmp_path / "new").mkdir()
    file, models = tmp_path / "models.config", [ModelConfig("m", tmp_path / "good")]
    write_models(file, {"m": tmp_path / "good"})
    options = {"poll_seconds": 0.02, "config_file": file, "config_poll_seconds": 0.02}
    core = ServerCore(models, load=Fake, **options)
    core.start()
    yield core
    core.stop()


@pytest.mark.parametrize("way", ["request", "file"])
@pytest.mark.parametrize("name", ["m", "n"], ids=["new folder", "new name"])
@pytest.mark.parametrize("state", ["empty", "broken"])
def test_a_reload_is_served_told_and_counted_alike(followed, tmp_path, caplog, way, name, state):
    caplog.set_level("INFO")
    good, new = tmp_path / "good", tmp_path / "new"
    if state == "broken":
        (new / "2").mkdir()
        (new / "2" / "broken").touch()
    folders = {"m": good, name: new}
    models = [ModelConfig(x, y) for x, y in folders.items()]
    told = []
    if way == "request":
        for _ in range(3):  # a second request of the same is no success
            with pytest.raises(ServingError) as error:
                followed.request(models)
            told.append(str(error.value))
    else:
        write_models(tmp_path / "models.config", folders)
        assert soon(lambda: [x for x in caplog.messages if "did not become available" in x])
    time.sleep(0.2)
    told += [x for x in caplog.messages if "did not become available" in x]
    wanted = f"{new}/2 does not load: cut" if state == "broken" else f"{new} must hold a version"
    assert {*told} == {
        f"1 model(s) did not become available: {{{{Name: {name} {wanted}"
        f"{'' if state == 'broken' else ': a folder whose name is an integer. Received: none'}}}}}"
    }
    assert len(told) == (3 if way == "request" else 1)
    assert Fake.loads.count(new / "2") == (state == "broken")
    failed = f'load_attempt_count{{model_path="{new}/2",status="fail"}} 1.0'
    assert (failed.encode() in followed.metrics()) == (state == "broken")
    assert (answering(followed, "m"), answering(followed, "n")) == (1, None)
    assert followed.unavailable() == ["n"] * (name == "n")
    assert not [x for x in caplog.messages if x.startswith("serving what")]
    if state == "broken":
        assert followed.statuses(name, 2)[0].state == State.LOADING
    (new / "3").mkdir()
    assert soon(lambda: answering(followed, name) == 3)
    assert answering(followed, "m") == (1 if name == "n" else 3)
    assert followed.unavailable() == []
    # a check that began before its folder, or core, was left may still load from that
    assert len([path for path in Fake.loads if new in path.parents]) == 1 + (state == "broken")
    if way == "file":
        told = soon(lambda: [x for x in caplog.messages if x.startswith("serving what")])
        assert len(told) == 1


def test_a_version_that_does_not_load_is_tried_six_times_however_often_it_is_named(
    followed, tmp_path
):
    (tmp_path / "new" / "2").mkdir()
    (tmp_path / "new" / "2" / "broken").touch()
    for name in ("m", "n"):
        model = ModelConfig(name, tmp_path / "new", load_retry_seconds=0.0)
        for _ in range(12):
            with pytest.raises(ServingError, match="does not load: cut"):
                followed.request([ModelConfig("o", tmp_path / "good"), model])
        time.sleep(0.1)
        assert Fake.loads.count(tmp_path / "new" / "2") == 6
        Fake.loads.clear()


def test_a_new_folder_that_is_given_up_leaves_the_old_one(followed, tmp_path):
    other = [ModelConfig("m", tmp_path / "new")]
    with pytest.raises(ServingError, match="must hold a version"):
        followed.request(other)
    followed.request([ModelConfig("m", tmp_path / "good", labels={"stable": 1})])
    (tmp_path / "new" / "2").mkdir()
    time.sleep(0.2)
    with followed.acquire("m", label="stable") as model:
        assert model.version == 1
    followed.request([ModelConfig("m", tmp_path / "new")])
    assert answering(followed, "m") == 2


def test_what_is_gone_leaves_the_status(followed, tmp_path):
    for version in range(2, 30):
        (tmp_path / "good" / f"{version}").mkdir()
        assert soon(lambda version=version: answering(followed, "m") == version)
    states = [x.state for x in followed.statuses("m")]
    assert states == [State.AVAILABLE] + [State.END] * 10
    assert followed.metrics().count(b"model_path=") == 29  # counts stay
    for x in range(30):
        followed.request([ModelConfig(f"m{x}", tmp_path / "good")])
    assert followed.statuses("m19")[0].state == State.END
    with pytest.raises(ServingError, match="Could not find any versions"):
        followed.statuses("m18")
