"""A release by the command line, followed by a server that polls the folder."""

import itertools
import pathlib
import re
import shlex
import shutil
import tempfile
import threading
import time
import warnings
from concurrent import futures

import grpc
import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import example, given, settings, strategies as st
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig
from typer.testing import CliRunner

from tests.serving.half_plus import Client
from tests.serving.test_reload import soon
from tfrank_sel.data.rejections import InputError
from tfrank_sel.export.releases import Releases
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.check import check
from tfrank_sel.serving.endpoint import Endpoint


@pytest.fixture
def release(tmp_path):
    """Runs a command on a folder of models, and returns what it prints."""

    def run(*command, status=0):
        options = ["--folder", tmp_path, "--model-name", "half"]
        done = CliRunner().invoke(app, [*map(str, (*command, *options))])
        assert done.exit_code == status, done.output
        return done.stdout or done.stderr

    return run


def answer(client, label):
    """What the version of a label says of 2; None if there is no such label."""
    request = client.request(x=np.array([2.0], np.float32))
    request.model_spec.version_label = label
    try:
        [y] = client.stub.Predict(request, timeout=20.0).outputs["y"].float_val
    except grpc.RpcError as error:
        return None if error.code() == grpc.StatusCode.INVALID_ARGUMENT else str(error)
    return y


def test_a_server_follows_a_release_from_its_publication_to_its_end(half, tmp_path, release):
    told = tmp_path / "models.config"
    assert "is served" in release("publish", half / "1")
    server = Endpoint(
        model_config.read(told),
        poll_seconds=0.05,
        config_file=told,
        config_poll_seconds=0.05,
        allow_labels_for_unavailable=True,
    )
    with server:
        client, asked = Client(server.grpc_port), threading.Event()
        seen = []

        def ask():
            while not asked.is_set():
                seen.append(answer(client, "stable"))
                time.sleep(0.001)

        def served():
            return {x: y for x in ("stable", "canary", "previous") if (y := answer(client, x))}

        assert "version 1 is stable" in release("promote")
        assert soon(lambda: served() == {"stable": 3.0})
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for command, wanted in (
                (("publish", half / "2", "--canary"), {"stable": 3.0, "canary": 4.0}),
                (("roll-back",), {"stable": 3.0}),
                (("publish", half / "2", "--canary"), {"stable": 3.0, "canary": 4.0}),
                (("promote",), {"stable": 4.0, "previous": 3.0}),
                (("roll-back",), {"stable": 3.0}),
                (("publish", half / "2", "--canary"), {"stable": 3.0, "canary": 4.0}),
                (("promote",), {"stable": 4.0, "previous": 3.0}),
            ):
                release(*command)
                assert list(check(tmp_path)) == []
                assert soon(lambda wanted=wanted: served() == wanted), (command, served())
            # one and four have labels, two and three were rolled back
            assert release("remove-old", "--keep", 1) == "removed: 2, 3\n"
            assert served() == {"stable": 4.0, "previous": 3.0}
        finally:
            asked.set()
            thread.join()
    # no request failed, and the answers changed when the labels did
    assert [y for y, _ in itertools.groupby(seen)] == [3.0, 4.0, 3.0, 4.0]


def test_the_commands_of_the_operations_guide_run(half, tmp_path, release):
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    [block] = re.findall(r"```sh\n# once:(.*?)```", guide, re.S)
    commands = re.findall(r"^tfrank-sel-serving ((?:publish|promote|roll|rem).*)", block, re.M)

    for command in commands:
        words = shlex.split(command, comments=True)
        where = words.index("--folder")
        words[where : where + 2] = []
        release(*(half / "1" if word.startswith("runs/") else word for word in words))

    labels = [command.split()[0] for command in commands]
    assert labels == ["publish", "promote", "publish", "promote", "roll-back", "remove-old"]
    assert model_config.read(tmp_path / "models.config")[0].labels == {"stable": 1}


def test_what_cannot_be_released_is_told_in_one_line(half, tmp_path, release):
    assert "a canary requires another version" in release(
        "publish", half / "1", "--canary", status=2
    )
    assert "`saved_model` must contain saved_model.pb" in release("publish", tmp_path, status=2)
    assert "expected a canary to promote. Received: labels {}" in release("promote", status=2)
    release("publish", half / "1", "--version", 7)
    assert "must be new in" in release("publish", half / "1", "--version", 7, status=2)
    assert "must have two versions to roll back" in release("roll-back", status=2)
    release("promote")
    assert "expected a canary to promote" in release("promote", status=2)
    assert "expected a canary or a previous version" in release("roll-back", status=2)
    assert "must be a canary first" in release("publish", half / "2", status=2)
    release("publish", half / "2", "--canary")
    assert "must be promoted or rolled back" in release("publish", half / "2", "--canary", status=2)
    assert release("remove-old", "--keep", 1) == "removed: none\n"
    mark = b"\xef\xbb\xbfmodel_config_list {}"
    for damaged in (
        b"nonsense",
        b"\xff\xfemodel_config_list {}",
        b"model_config_list {",
        b"",
        mark,
    ):
        (tmp_path / "models.config").write_bytes(damaged)
        for command in (("promote",), ("publish", half / "2")):
            told = release(*command, status=2)
            assert "models.config: expected a ModelServerConfig" in told
            assert ("byte order mark" in told) == (damaged == mark)
        assert (tmp_path / "models.config").read_bytes() == damaged
    (tmp_path / "models.config").unlink()
    (tmp_path / "models.config").mkdir()
    assert "Is a directory" in release("publish", half / "2", status=2)


def test_a_number_that_was_rolled_back_is_no_other_model(half, tmp_path, release):
    for x in (1, 2):
        release("publish", half / f"{x}")
    assert release("roll-back") == "version 1 is served\n"
    assert f"{tmp_path / 'half' / '3'} is served" in release("publish", half / "2")
    assert "Received: rolled-back-2" in release("publish", half / "2", "--version", 2, status=2)
    assert release("roll-back") == "version 1 is served\n"
    (tmp_path / "half" / "rolled-back-3").rename(tmp_path / "half" / "3")
    (tmp_path / "half" / "rolled-back-3").mkdir()  # of an earlier version of the package
    assert release("roll-back") == "version 1 is served\n"
    kept = {"1", "rolled-back-2", "rolled-back-3", "rolled-back-3-2"}
    assert {x.name for x in (tmp_path / "half").iterdir()} == kept
    (tmp_path / "half" / ".removed-0" / "variables").mkdir(parents=True)  # by a killed process
    release("remove-old", "--keep", 1)
    assert {x.name for x in (tmp_path / "half").iterdir()} == kept


@pytest.mark.parametrize(("command", "gone"), [("promote", "2"), ("roll-back", "1")])
def test_a_version_that_is_gone_does_not_become_stable(half, tmp_path, release, command, gone):
    release("publish", half / "1")
    release("publish", half / "2", "--canary")
    (tmp_path / "half" / gone).rename(tmp_path / "away")
    before = (tmp_path / "models.config").read_bytes()
    assert f"version {gone} must be there to become stable" in release(command, status=2)
    assert (tmp_path / "models.config").read_bytes() == before
    other = {"promote": "roll-back", "roll-back": "promote"}[command]
    release(other)
    assert model_config.read(tmp_path / "models.config")[0].labels == {"stable": 3 - int(gone)}


def test_models_that_are_published_at_once_are_all_served(half, tmp_path):
    names = [f"m{i}" for i in range(24)]
    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: Releases(str(tmp_path), name).publish(half / "1"), names))
    assert sorted(x.name for x in model_config.read(tmp_path / "models.config")) == sorted(names)
    assert sorted(x.name for x in tmp_path.iterdir()) == sorted([*names, "models.config"])


ENTRY = """# of the shop
# kept by hand

model_config_list { config { name: "other" base_path: "/other" model_platform: "tensorflow" }
config { name: "half" base_path: "%s/half" model_platform: "tensorflow"
logging_config { sampling_config { sampling_rate: 0.5 } } %s } }"""
BOTH = "specific { versions: 1 versions: 2 versions: 3 versions: 4 }"


@pytest.mark.parametrize(
    ("labels", "policy", "command", "wanted", "served"),
    [
        (
            {"canary": 3, "stable": 2, "partner": 1},
            BOTH,
            "promote",
            {"stable": 3, "previous": 2},
            0,
        ),
        ({"canary": 3, "stable": 2, "partner": 1}, BOTH, "roll-back", {"stable": 2}, [1, 2, 4]),
        ({"stable": 2, "partner": 1}, BOTH, "publish --canary", {"stable": 2, "canary": 5}, 0),
        ({"stable": 3, "previous": 2, "partner": 2}, BOTH, "roll-back", {"stable": 2}, [1, 2, 4]),
        ({"partner": 1}, "specific { versions: 1 versions: 4 }", "promote", {"stable": 4}, [1, 4]),
        ({}, "specific { versions: 1 versions: 4 }", "roll-back", {}, [1]),
        ({}, "specific { versions: 4 }", "roll-back", {}, [3]),
        ({}, "specific { versions: 1 versions: 2 }", "promote", {"stable": 2}, [1, 2]),
        ({}, "all {}", "publish", {}, "all"),
        ({"partner": 1}, "all {}", "publish --canary", {"stable": 4, "canary": 5}, "all"),
        ({"partner": 1}, "all {}", "roll-back", {}, "all"),
        ({}, "latest { num_versions: 2 }", "publish", {}, "latest 2"),
        ({"partner": 2}, "latest { num_versions: 2 }", "promote", {"stable": 4}, "latest 3"),
        ({}, "", "promote", {"stable": 4}, [4]),
    ],
)
def test_what_a_person_wrote_stays(
    half, tmp_path, release, labels, policy, command, wanted, served
):
    for version in (1, 2, 3, 4):
        shutil.copytree(half / "1", tmp_path / "half" / f"{version}")
    rest = label_lines(*labels.items())
    file = tmp_path / "models.config"
    file.write_text(ENTRY % (tmp_path, f"model_version_policy {{ {policy} }} {rest}"))
    command = command.replace("publish", f"publish {half / '2'}")
    release(*command.split())
    text = file.read_text()
    other, entry = model_config.read(file)
    assert text.startswith("# of the shop\n# kept by hand\n\nmodel_config_list")
    assert (other.name, "sampling_rate: 0.5" in text) == ("other", True)
    assert entry.labels == {**wanted, **{x: y for x, y in labels.items() if x == "partner"}}
    found = {
        model_config.AllVersions: lambda x: "all",
        model_config.Latest: lambda x: f"latest {x.num_versions}",
        model_config.Specific: lambda x: [*x.versions],
    }[type(entry.policy)](entry.policy)
    assert found == (served or sorted({*[1, 2, 3, 4], *wanted.values()}))


@pytest.mark.parametrize(
    ("labels", "command", "told"),
    [
        (
            {"canary": 3},
            "promote",
            "a version must be labelled `stable`. Received: labels {'canary': 3}",
        ),
        ({"canary": 3}, "roll-back", "expected a canary or a previous version"),
        ({"previous": 3}, "promote", "expected a canary to promote"),
        ({"previous": 3}, "roll-back", None),
        ({"partner": 4}, "roll-back", "version 4 must have no label to be rolled back"),
        ({"partner": 1}, "publish", "must be a canary first"),
        ({}, "publish", "must be a canary first"),
        ({"partner": 9}, "publish", "must be a canary first"),
        ({"previous": 9}, "roll-back", "version 9 must be there to become stable"),
    ],
)
def test_labels_that_allow_no_release_are_told(half, tmp_path, release, labels, command, told):
    for version in (1, 2, 3, 4):
        shutil.copytree(half / "1", tmp_path / "half" / f"{version}")
    rest = label_lines(*labels.items())
    file = tmp_path / "models.config"
    file.write_text(ENTRY % (tmp_path, f"model_version_policy {{ {BOTH} }} {rest}"))
    before = file.read_bytes()
    command = command.replace("publish", f"publish {half / '2'}")
    said = release(*command.split(), status=0 if told is None else 2)
    assert told is None or (told in said and len(said.splitlines()) == 1)
    assert told is None or file.read_bytes() == before
    assert {x.name for x in (tmp_path / "half").iterdir()} == {"1", "2", "3", "4"}


def test_a_label_of_no_version_is_removed_with_a_warning(half, tmp_path):
    shutil.copytree(half / "1", tmp_path / "half" / "1")
    file = tmp_path / "models.config"
    file.write_text(ENTRY % (tmp_path, label_lines(("partner", 2), ("partner of 1", 1))))
    command = ["publish", half / "2", "--canary", "--folder", tmp_path, "--model-name", "half"]
    done = CliRunner().invoke(app, [*map(str, command)])
    reason = "labels of versions that are not there were removed. Received: ['partner']"
    assert done.stderr == f"Warning: {tmp_path / 'half'}: {reason}\n"
    labels = {"partner of 1": 1, "stable": 1, "canary": 2}
    assert model_config.read(file)[1].labels == labels


def label_lines(*labels):
    return "".join(f'version_labels {{ key: "{x}" value: {y} }}' for x, y in labels)


def pinned(*versions):
    return f"specific {{ {''.join(f'versions: {x} ' for x in versions)} }}"


PLATFORMS = ("", 'model_platform: "tensorflow"', "model_type: TENSORFLOW", "model_type: OTHER")
COMMANDS = {
    "publish": lambda releases, model: releases.publish(model),
    "canary": lambda releases, model: releases.publish(model, canary=True),
    "canary 7": lambda releases, model: releases.publish(model, 7, canary=True),
    "promote": lambda releases, model: releases.promote(),
    "roll back": lambda releases, model: releases.roll_back(),
    "remove": lambda releases, model: releases.remove_old(1),
}


def served(entry, there):
    """What a server has of an entry, by TensorFlow Serving's rules."""
    policy = entry.model_version_policy
    if policy.WhichOneof("policy_choice") == "all":
        return there
    if policy.WhichOneof("policy_choice") == "specific":
        return there & {*policy.specific.versions}
    return {*sorted(there)[-max(1, policy.latest.num_versions) :]}


def entries(file):
    return text_format.Parse(file.read_bytes(), ModelServerConfig()).model_config_list.config


@pytest.mark.long
@settings(max_examples=80)
@given(
    st.sets(st.integers(0, 5), min_size=1),
    st.dictionaries(st.sampled_from(["stable", "canary", "previous", "a", "b"]), st.integers(0, 7)),
    st.one_of(
        st.sampled_from(["", "all {}", "latest { num_versions: 1 }", "latest { num_versions: 2 }"]),
        st.sets(st.integers(0, 6), min_size=1).map(lambda x: pinned(*x)),
    ),
    st.sampled_from(PLATFORMS),
    st.sampled_from(["", "/models/half", "gs://models/half"]),
    st.lists(st.text(st.sampled_from(" #x\t\r\f\v\x1c\x85\u2028é{"))).map(
        lambda lines: "".join(f"{x[:1] if x[:1].isspace() else ''}#{x}\n\n" for x in lines)
    ),
    st.lists(st.sampled_from(list(COMMANDS)), min_size=1, max_size=3),
)
# comments, base paths of containers, the former platform, labels of no version, pins of old ones
@example({1}, {}, "", PLATFORMS[1], "", "# a\u2028b\n# a\x0cb\n \t# c\n", ["canary"])
@example({1, 2}, {}, "", PLATFORMS[1], "/models/half", "", ["roll back"])
@example({1, 2}, {}, pinned(2), PLATFORMS[2], "/models/half", "# a\n", ["roll back"])
@example({1, 5}, {"stable": 1, "a": 7}, pinned(1), PLATFORMS[2], "", "", ["canary", "canary"])
@example({1, 5}, {"stable": 1, "a": 7}, pinned(1), "", "", "", ["canary 7", "promote"])
@example({1, 5}, {"a": 6}, "", PLATFORMS[1], "/models/half", "", ["roll back", "canary"])
@example({1, 3, 4, 5}, {}, pinned(3), PLATFORMS[1], "", "", ["roll back"])
@example({2, 3, 4}, {"a": 2}, pinned(4), PLATFORMS[1], "/models/half", "", ["roll back"])
@example({1, 2, 4}, {}, pinned(1, 4), PLATFORMS[1], "", "", ["roll back"])
def test_a_release_is_whole_or_refused(there, labels, policy, platform, path, head, commands):
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True):
        root, model = pathlib.Path(name), pathlib.Path(name, "model")
        for folder in (model, *(root / "half" / str(x) for x in there)):
            folder.mkdir(parents=True)
            (folder / "saved_model.pb").write_text("x")
        file = root / "models.config"
        rest = f"{platform} {label_lines(*labels.items())} model_version_policy {{ {policy} }}"
        file.write_text(
            f'''{head}model_config_list {{ config {{ name: "other" base_path: "/other" }} config {{
            # a comment of an entry
            name: "half" base_path: "{path}" {rest} }} }}'''
        )
        for command in commands:
            check_release(root, model, head, COMMANDS[command])


def check_release(root, model, head, command):
    def found():
        folders = {x.name for x in (root / "half").iterdir()}
        return file.read_bytes(), folders, {int(x) for x in folders if x.isdigit()}

    file, releases = root / "models.config", Releases(str(root), "half")
    (other, entry), (text, folders, there) = entries(file), found()
    try:
        result = command(releases, model)
    except InputError:
        assert found()[:2] == (text, folders)
        return
    (other_now, now), (text_now, _, there_now) = entries(file), found()
    assert other_now == other
    assert text_now.decode().startswith(head)
    yours = {x: y for x, y in entry.version_labels.items() if x in ("a", "b")}
    alive = {x: y for x, y in yours.items() if y in there}
    assert {x: y for x, y in now.version_labels.items() if x in ("a", "b")} in (
        alive,
        *([yours] if text_now == text else []),
    )
    assert {*alive.values()} <= there_now
    assert served(now, there_now) or not served(entry, there)
    if isinstance(result, int):
        assert pathlib.Path(releases.served_folder()).name == str(result)
        assert result in served(now, there_now)
    if text_now == text:
        return
    assert {*now.version_labels.values()} <= served(now, there_now)
    assert now.base_path == (entry.base_path or str(root / "half"))
    assert (now.model_type, now.model_platform) == (0, "tensorflow")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/x", "x/y", "x\\y", ".lease", "x\n", "x\0", "\x1b[31mx"]
)
def test_a_name_that_is_a_path_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="`model_name` must be a name of printable characters"):
        Releases(str(tmp_path), name)
    assert Releases(str(tmp_path), "Schuhe für Läufer, v2 (a:b)").model_name
