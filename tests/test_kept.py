"""All that is kept is whole or not there, and damage to it is told by the name of the file."""

import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tfrank_sel import artefacts, data, export, locks
from tfrank_sel.clicks.propensities import Propensities
from tfrank_sel.data import stores
from tfrank_sel.data.cache import Cache
from tfrank_sel.data.schema import Schema
from tfrank_sel.export.releases import Releases
from tfrank_sel.features import Number
from tfrank_sel.models.als import RGFactorizer
from tfrank_sel.recommend import Popular, Recommender, Successors
from tfrank_sel.serving.deployment import folder as deployment
from tfrank_sel.training.callbacks import Backup


class Kept(NamedTuple):
    """What is kept: a function that writes it to a path, and one that reads it, if we have one."""

    write: Callable[[pathlib.Path], Any]
    read: Callable[[pathlib.Path], Any] | None = None


MASK = np.arange(5) < np.array([[2], [5], [3]])
BATCH = {"features": np.ones([3, 5, 2], np.float32), "mask": MASK}, np.ones([3, 5], np.float32)
LISTS = [data.ItemList("q", np.ones(2, "f"), np.ones([2, 3], "f"), ("a", "b"))]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> dict[str, Kept]:
    """Everything that the library keeps outside of a run, by name."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "saved" / "variables").mkdir(parents=True)
    graph = saved_model_pb2.SavedModel()
    about = graph.meta_graphs.add().meta_info_def
    about.tensorflow_version = "2" * 2000
    about.tags.append("serve")
    (folder / "saved" / "saved_model.pb").write_bytes(graph.SerializeToString())
    (folder / "saved" / "variables" / "variables.index").write_bytes(bytes(3000))
    releases = Releases(str(folder / "root"), "ranker")
    releases.publish(folder / "saved")
    pairs = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])
    factorizer = RGFactorizer(num_factors=4, sweeps=1, num_threads=1).fit(pairs)
    taken = [(user, (user + time) % 9, time) for user in range(30) for time in range(4)]
    columns = dict(zip(("user", "item", "time"), zip(*taken, strict=True), strict=True))
    recommender = Recommender([Successors(), Popular()], num_trees=5, num_threads=1).fit(columns)
    schema = Schema({"price": Number()}, {})
    arrays = [np.arange(500.0)]
    ends = np.linspace(1.0, 0.1, 40)
    propensities = Propensities(np.arange(1, 41), ends, ends, ends, "pbm")

    def published(path: pathlib.Path) -> None:
        artefacts.check(path / "1", "SavedModel")

    def released(path: pathlib.Path) -> None:
        found = Releases(str(path), "ranker")
        artefacts.check(pathlib.Path(found.served_folder() or ""), "SavedModel")

    return {
        "factoriser": Kept(factorizer.save, RGFactorizer.load),
        "recommender": Kept(recommender.save, Recommender.load),
        "cache": Kept(lambda path: Cache.write([BATCH], path), Cache.load),
        "schema": Kept(schema.write, Schema.read),
        "letor": Kept(lambda path: data.letor.write(path, LISTS)),
        "text": Kept(lambda path: stores.write_text(path, "x" * 2000)),
        "version": Kept(lambda path: export.publish(folder / "saved", path, 1), published),
        "release": Kept(
            lambda path: Releases(str(path), "ranker").publish(folder / "saved"), released
        ),
        "deployment": Kept(lambda path: deployment.write(path, "ranker", folder / "root/ranker")),
        "backup": Kept(lambda path: Backup(path).save({}, [], arrays), Backup),
        "propensities": Kept(propensities.save, Propensities.load),
    }


NAMES = (
    *("factoriser", "cache", "schema", "letor", "text"),
    *("version", "release", "deployment", "backup"),
    "propensities",
    "recommender",
)


def test_the_table_is_whole(table):
    assert sorted(table) == sorted(NAMES)


def test_there_is_no_second_way_to_write():
    """What renames its own way: versions, steps, copies of stores, and files of Beam's workers."""
    known = {"export/releases.py", "data/stores.py", "data/resumption.py"}
    known |= {
        "pipelines/files/folders.py",
        "pipelines/files/mirrors.py",
        "pipelines/scoring/rankings.py",
    }
    package = pathlib.Path(artefacts.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\.rename\(|os\.replace\(|[a-z]\.replace\([a-z]+\)", path.read_text())
    }
    assert found == {"locks.py"} | known


def tree(path: pathlib.Path) -> list[str]:
    return sorted(str(x.relative_to(path)) for x in path.rglob("*"))


def killed(write: Callable[[], Any], folder: pathlib.Path, number: int) -> bool:
    """Writes in a process that is killed before one of its changes of a folder, if it comes so far.

    Args:
        write: Writes to the folder.
        folder: The folder.
        number: Number of the change, from 0.
    """
    events, count = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"), 0

    def audit(event: str, found: Any) -> None:
        nonlocal count
        if event in events and str(found[0]).startswith(str(folder)):
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

    if (process := os.fork()) == 0:
        sys.addaudithook(audit)
        try:
            write()
        finally:
            os._exit(0)
    return os.waitpid(process, 0)[1] == signal.SIGKILL


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_killed_at_any_change_is_written_again_and_leaves_nothing(name, table, tmp_path):
    one, number, whole = table[name], 0, tmp_path / "whole" / "x"
    one.write(whole)
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "x"
        is_killed = killed(lambda path=path: one.write(path), folder, number)
        is_there = path.is_file() or (path.exists() and set(tree(whole)) <= set(tree(path)))
        with contextlib.suppress(FileExistsError) if is_there else contextlib.nullcontext():
            one.write(path)
            assert not any(name.startswith(".") for name in os.listdir(folder))
        if one.read is not None:
            one.read(path)
        assert set(tree(whole)) <= set(tree(path)) if path.is_dir() else path.is_file()
        number += 1 + number // 8
        if not is_killed:
            break
    assert number > 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("room", [0, 300, 1000])
def test_what_finds_no_room_names_the_file_and_leaves_nothing(name, room, table, tmp_path):
    path, limits = tmp_path / "x", resource.getrlimit(resource.RLIMIT_FSIZE)
    problem = None
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        table[name].write(path)
    except OSError as error:
        problem = error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if problem is None:
        assert room > 0
    else:
        assert str(path) in str(problem)
        assert "too large" in str(problem)
        assert tree(tmp_path) == []
        table[name].write(path)
    if table[name].read is not None:
        table[name].read(path)


def _cut(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[pathlib.Path], Any]] = {
    "cut": _cut,
    "flipped": _flip,
    "empty": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + bytes(8)),
    "missing": pathlib.Path.unlink,
    "a folder": _folder,
    "other JSON": lambda path: path.write_bytes(b"[1]"),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()),
    "with a mark": lambda path: path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes()),
}


# The digests of an earlier version; a letter of the library's version; a training from the start;
# a zip file ends where it says.
NONE = {(artefacts.DIGESTS, "missing"), (artefacts.DIGESTS, "flipped"), ("backup", "missing")}
NONE |= {("backup", "longer")}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(
    "name", ["factoriser", "cache", "schema", "version", "backup", "propensities"]
)
def test_damage_is_told_by_the_name_of_the_file(name, how, table, tmp_path):
    one = table[name]
    assert one.read is not None
    one.write(tmp_path / "whole")
    names = [x for x in ("", *tree(tmp_path / "whole")) if (tmp_path / "whole" / x).is_file()]
    for number, inside in enumerate(names):
        path = tmp_path / str(number)
        place = path / inside
        (shutil.copytree if inside else shutil.copy)(tmp_path / "whole", path)
        DAMAGES[how](place)
        if (place.name, how) in NONE or (name, how) in NONE:
            continue
        with pytest.raises((OSError, ValueError), match=place.name) as found:
            one.read(path)
        assert "\n" not in str(found.value)


@pytest.mark.parametrize("how", ["cut", "empty", "other JSON", "not UTF-8", "missing"])
@pytest.mark.parametrize("name", ["factoriser", "cache", "schema", "propensities"])
def test_damage_without_digests_is_told_too(name, how, table, tmp_path):
    """As in files of an earlier version."""
    one = table[name]
    assert one.read is not None
    one.write(tmp_path / "x")
    (tmp_path / "x" / artefacts.DIGESTS).unlink() if (tmp_path / "x").is_dir() else None
    for inside in [x for x in ("", *tree(tmp_path / "x")) if (tmp_path / "x" / x).is_file()]:
        place = tmp_path / "x" / inside
        content = place.read_bytes()
        DAMAGES[how](place)
        with pytest.raises((OSError, ValueError), match=place.name):
            one.read(tmp_path / "x")
        place.write_bytes(content)
    one.read(tmp_path / "x")


def test_what_is_not_finite_or_of_another_shape_is_refused_without_digests(table, tmp_path):
    table["factoriser"].write(tmp_path / "x")
    (tmp_path / "x" / artefacts.DIGESTS).unlink()
    with np.load(tmp_path / "x" / "arrays.npz") as found:
        arrays = dict(found)
    for name, wrong in (
        ("user_factors", np.full_like(arrays["user_factors"], np.nan)),
        ("item_factors", arrays["item_factors"][:, :1]),
        ("user_factors", arrays["user_factors"][:-1]),
        ("gains", arrays["gains"] * np.inf),
        ("user_ids", np.arange(99)),
        ("indices", arrays["indices"] + 9),
    ):
        np.savez(tmp_path / "x" / "arrays.npz", **{**arrays, name: wrong})
        with pytest.raises(ValueError, match=r"arrays\.npz: expected the arrays of this RG"):
            RGFactorizer.load(tmp_path / "x")


def test_another_kind_and_a_newer_form_are_refused(table, tmp_path):
    table["cache"].write(tmp_path / "cache")
    with pytest.raises(ValueError, match=r"cache: expected a RGFactorizer\. Received: a Cache"):
        RGFactorizer.load(tmp_path / "cache")
    place = tmp_path / "cache" / artefacts.DIGESTS
    place.write_text(json.dumps({**json.loads(place.read_text()), "form": 2, "version": "9.0"}))
    with pytest.raises(ValueError, match=r"needs tfrank_sel 9\.0 or later"):
        Cache.load(tmp_path / "cache")


# names from elsewhere, such as keys of a store or digests that somebody sent
OUTSIDE = ("", "..", ".", "/etc/x", "../x", "a/../../x", "a//x", "a/./x", "a\nx", "a\x1b[31m", "x/")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_leads_to_no_other_folder(name, table, tmp_path):
    with pytest.raises(ValueError, match="the name of a file must stay in its folder"):
        artefacts.inside(tmp_path, name)
    table["cache"].write(tmp_path / "cache")
    place = tmp_path / "cache" / artefacts.DIGESTS
    record = json.loads(place.read_text())
    record["files"][name] = [0, ""]
    place.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"digests\.json: .* must stay in its folder"):
        Cache.load(tmp_path / "cache")


def test_what_is_no_file_is_not_read(table, tmp_path):
    table["cache"].write(tmp_path / "cache")
    name = next(x for x in tree(tmp_path / "cache") if x != artefacts.DIGESTS)
    (tmp_path / "cache" / name).unlink()
    os.mkfifo(tmp_path / "cache" / name)  # whose reader waits for ever
    with pytest.raises(ValueError, match=f"{name}: must be the file that was written"):
        Cache.load(tmp_path / "cache")


def test_a_file_that_is_replaced_keeps_its_rights_and_links(tmp_path):
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o640)
    (tmp_path / "link").symlink_to("x")
    stores.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "x").read_text() == "new"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_a_file_that_two_write_at_once_is_written_by_one(tmp_path):
    with locks.atomic_path(tmp_path / "x", replaces=True) as written:
        written.write_text("first")
        with pytest.raises(FileExistsError, match="is being written by another process"):
            stores.write_text(tmp_path / "x", "second")
    assert (tmp_path / "x").read_text() == "first"


def test_a_lock_excludes_others_while_its_folder_comes_and_goes(tmp_path):
    """Readers see whole files, and two processes never hold a folder at once."""
    path, mark = tmp_path / "new" / "x", tmp_path / "mark"

    def write(until: float) -> int:
        done = 0
        while time.monotonic() < until:
            with contextlib.suppress(FileExistsError), locks.claim(path) as written:
                descriptor = os.open(mark, os.O_CREAT | os.O_EXCL)  # an error if it is there
                written.write_text("x")
                os.close(descriptor)
                mark.unlink()
                done += 1
        return done

    children = []
    for _ in range(4):
        if (process := os.fork()) == 0:
            code = 1
            try:
                code = 0 if write(time.monotonic() + 1.5) else 2
            finally:
                os._exit(code)
        children.append(process)
    assert [os.waitpid(process, 0)[1] for process in children] == [0] * 4
    assert not path.exists()


def test_a_lock_ends_no_other_file(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"\.lock"), locks.hold(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "precious"
    with locks.hold(tmp_path / "run"):
        (tmp_path / "run" / ".lock").rename(tmp_path / "moved")
        with locks.hold(tmp_path / "run"):
            pass
        (tmp_path / "run" / ".lock").write_text("of another")
    assert (tmp_path / "run" / ".lock").read_text() == "of another"


def test_a_lock_that_its_last_holder_removed_is_none(tmp_path, monkeypatch):
    genuine, ended = locks.fcntl.flock, [tmp_path / ".lock"]

    def flock(lock, how):
        if ended:  # between opening and locking
            ended.pop().unlink()
        genuine(lock, how)

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with locks.hold(tmp_path):
        assert (tmp_path / ".lock").exists()
        with pytest.raises(FileExistsError), locks.hold(tmp_path):
            pass


def test_a_lock_that_is_never_that_of_its_name_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_is_there", lambda lock, path: False)
    with (
        pytest.raises(FileExistsError, match="another process"),
        locks.hold(tmp_path, patience=0.1),
    ):
        pass


@pytest.mark.parametrize("by", ["this version", "an earlier one"])
def test_the_digests_of_a_copy_are_compared_with_the_original(tmp_path, by):
    saved, copy = tmp_path / "saved", tmp_path / "copy"
    (saved / "variables").mkdir(parents=True)
    (saved / "saved_model.pb").write_bytes(b"graph")
    (saved / "variables" / "x").write_bytes(b"values")
    shutil.copytree(saved, copy)
    assert stores.difference(copy, saved) is None  # published before there were digests
    place = copy / artefacts.DIGESTS
    whole = artefacts.text(artefacts.digests(saved), "SavedModel")
    if by == "an earlier one":
        whole = whole.replace(artefacts.__version__, "0.0.1")
    place.write_text(whole)
    assert stores.difference(copy, saved) is None
    others = artefacts.text({"saved_model.pb": (5, "0" * 64)}, "SavedModel")
    for damaged in (
        whole[:40],
        "",
        "[]",
        "{}",
        '{"files": {"x": 1}}',
        others,
        whole.replace("6,", "7,"),
    ):
        place.write_text(damaged)
        assert stores.difference(copy, saved) == str(place)
    (copy / "variables" / "x").unlink()
    assert stores.difference(copy, saved) == str(copy / "variables" / "x")
