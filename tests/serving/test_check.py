import pathlib
import shutil

import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests import refusals
from tests.serving.certificates import certificate
from tfrank_sel import export
from tfrank_sel.export.saved_model import WARM_UP as PATH
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.check import check
from tfrank_sel.serving.deployment.model_config import AllVersions, Latest, ModelConfig, Specific
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.versions import ModelVersions
from tfrank_sel.serving.status import ServingError

BATCHING = """max_batch_size { value: 128 } batch_timeout_micros { value: 2000 }
allowed_batch_sizes: 32 allowed_batch_sizes: 128 pad_variable_length_inputs: false"""


@pytest.fixture
def folder(half, tmp_path):
    base = tmp_path / "half"
    shutil.copytree(half, base)
    write(tmp_path, labels='version_labels { key: "stable" value: 1 }')
    (tmp_path / "batching.config").write_text(BATCHING)
    (tmp_path / "monitoring.config").write_text('prometheus_config { enable: true path: "/m" }')
    return tmp_path


def write(folder, *, base="half", policy="all {}", labels=""):
    (folder / "models.config").write_text(
        f"""model_config_list {{ config {{ name: "half" base_path: "{folder / base}"
        model_platform: "tensorflow" model_version_policy {{ {policy} }} {labels} }} }}"""
    )


def test_a_folder_that_would_serve_has_no_fault(folder):
    assert list(check(folder)) == []

    done = CliRunner().invoke(app, ["check", str(folder)])
    assert (done.exit_code, "no faults" in done.stdout) == (0, True)


@pytest.mark.parametrize(("changed", "wanted"), refusals.of("served_configurations"))
def test_a_configuration_that_names_what_is_not_there_is_told(folder, changed, wanted):
    write(folder, **changed)

    [fault] = check(folder)

    assert wanted in str(fault)


@pytest.mark.parametrize(("name", "text", "wanted"), refusals.of("served_files"))
def test_a_broken_rule_is_named_by_file_and_field(folder, name, text, wanted):
    (folder / name).write_text(text)

    [fault] = check(folder)

    assert fault.file == folder / name
    assert wanted in str(fault)


def test_every_policy_is_read(tmp_path):
    policies = {
        "latest { num_versions: 2 }": Latest(2),
        "all {}": AllVersions(),
        "specific { versions: 3 }": Specific([3]),
    }
    for text, policy in policies.items():
        write(tmp_path, policy=text, labels='version_labels { key: "x" value: 3 }')
        wanted = ModelConfig("half", tmp_path / "half", policy, {"x": 3})
        assert model_config.read(tmp_path / "models.config") == [wanted]


def test_certificates_are_read(folder):
    cert, key = certificate()
    text = f"server_cert: {cert!r} server_key: {key!r} client_verify: true"
    (folder / "ssl.config").write_text(text)

    [fault] = check(folder)
    assert fault.field == "custom_ca"
    (folder / "ssl.config").write_text(f"{text} custom_ca: {cert!r}")
    assert list(check(folder)) == []
    (folder / "ssl.config").write_text(f"{text} custom_ca: 'x'")
    [fault] = check(folder)
    assert fault.rule.startswith("must be certificates in PEM")


def test_broken_versions_are_told(folder):
    (folder / "half" / "1" / "saved_model.pb").write_bytes(b"no graph")
    (folder / "half" / "2" / PATH).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / "half" / "2" / PATH)) as writer:
        writer.write(b"\xff")
    (folder / "half" / "2" / "batching_params.pbtxt").write_text("x")

    warm_up, batching, graph = check(folder)

    assert f"{PATH}: " in str(warm_up)
    assert "verify your warmup data is in TFRecord format" in str(warm_up)
    assert "must be a BatchingParameters" in str(batching)
    assert "must be a SavedModel that a stock server runs" in str(graph)
    done = CliRunner().invoke(app, ["check", str(folder)])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 3)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def another(path):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"of another kind")


# what is done to a file of a version, and whether a server finds it without digests, too
DAMAGES = [
    ("saved_model.pb", cut, True),
    ("saved_model.pb", pathlib.Path.unlink, True),
    ("saved_model.pb", another, True),
    ("variables/variables.index", pathlib.Path.unlink, True),
    ("variables/variables.index", cut, True),
    ("variables/variables.data-00000-of-00001", pathlib.Path.unlink, True),
    ("variables/variables.data-00000-of-00001", flipped, True),
    ("fingerprint.pb", pathlib.Path.unlink, False),
    ("digests.json", cut, False),
    (PATH, another, True),
    ("notes.txt", another, None),  # a file that is there as well
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("file", "damage", "found"), DAMAGES, ids=[f"{x[1].__name__} {x[0]}" for x in DAMAGES]
)
@pytest.mark.parametrize("has_digests", [True, False])
def test_a_version_has_a_fault_where_a_server_refuses_it(
    half, tmp_path, file, damage, found, has_digests
):
    version = export.publish(half / "1", tmp_path / "half")
    write(tmp_path)
    assert list(check(tmp_path)) == []
    damage(version / file)
    if not has_digests:
        (version / "digests.json").unlink()
    served = ModelVersions(ModelConfig("half", tmp_path / "half"))
    served.poll()
    is_served = served.is_available()
    served.close()

    assert bool(list(check(tmp_path))) == (not is_served)
    assert is_served == (not found if not has_digests else found is None)


MODEL = 'name: "half" base_path: "@/half" model_platform: "tensorflow"'
FAULTS = {
    "a version that is not there": MODEL + " model_version_policy { specific { versions: 7 } }",
    "one of two": MODEL + " model_version_policy { specific { versions: 1 versions: 7 } }",
    "no version": MODEL + " model_version_policy { specific { } }",
    "a negative number": MODEL + " model_version_policy { latest { num_versions: -1 } }",
    "no name": MODEL.replace("half", "", 1),
    "no folder": MODEL.replace("/half", "/none"),
    "an empty folder": MODEL.replace("/half", "/empty"),
    "a relative path": MODEL.replace("@/", ""),
    "another platform": MODEL.replace("tensorflow", "onnx"),
    "no platform": MODEL.replace("tensorflow", ""),
    "an unknown scheme": MODEL.replace("@", "foo://b"),
    "twice": MODEL + " } config { " + MODEL,
}


@pytest.mark.parametrize("text", [MODEL, *FAULTS.values()], ids=["right", *FAULTS])
def test_a_configuration_has_a_fault_where_a_server_tells_one(folder, text):
    (folder / "empty").mkdir()
    content = "model_config_list { config { " + text.replace("@", str(folder)) + " } }"
    (folder / "models.config").write_text(content)
    try:
        core = ServerCore(model_config.read(folder / "models.config"), poll_seconds=60.0)
        core.start()
        told = any(model.fault for model in core._models.values())
        core.stop()
    except ServingError:
        told = True

    assert bool(list(check(folder))) == told == (text != MODEL)
