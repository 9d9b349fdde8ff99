"""Places that cannot be written to, are written to by another, or are full."""

import re
import subprocess
import sys

import keras
import pytest

from tfrank_sel import data, export
from tfrank_sel.locks import claim

SPEC = data.FeatureSpec(num_features=3)


@pytest.fixture(scope="module")
def model():
    layers = keras.layers
    return keras.Sequential([keras.Input([None, 3]), layers.Dense(1), layers.Reshape([-1])])


@pytest.fixture
def saved_model(tmp_path):
    folder = tmp_path / "saved_model"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    return folder


def test_a_place_that_cannot_be_written_to_is_named(tmp_path, model, saved_model):
    for place in (tmp_path / "file" / "m", "/proc/m"):  # not even by root
        (tmp_path / "file").write_text("")
        for write in (
            lambda path: export.export(model, SPEC, path),
            lambda path: export.publish(saved_model, path, 1),
            lambda path: data.letor.write(path, []),
        ):
            with pytest.raises(OSError, match=re.escape(str(place).removesuffix("m"))):
                write(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "saved_model"]


def test_of_two_at_once_the_second_is_refused(tmp_path, model, saved_model):
    for write in (
        lambda: export.export(model, SPEC, tmp_path / "1"),
        lambda: export.publish(saved_model, tmp_path, 1),
    ):
        with (
            claim(tmp_path / ".1.partial"),
            pytest.raises(FileExistsError, match="is being written by another process"),
        ):
            write()
        assert not (tmp_path / "1").exists()


def test_what_finds_no_room_names_the_file_and_leaves_nothing():
    steps = ["--steps", "run ingest", "publish", "export", "--limits", "1000"]
    command = [sys.executable, "-m", "benchmarks.robustness.full_disk", *steps]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\| ([\w ]+) \| 1000 \|", done.stdout) == ["run ingest", "publish", "export"]
