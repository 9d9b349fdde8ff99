"""Recommendations to all users in a file, also after a process that writes them was killed."""

import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from pyarrow import parquet

from tests.recommend.made import QUICK, taken
from tfrank_sel import locks
from tfrank_sel.data import InputError
from tfrank_sel.recommend import Popular, Recommender, Successors, answers

TAKEN = taken()


def fitted(**options):
    return Recommender(QUICK, num_trees=8, num_threads=1, **options).fit(TAKEN)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("recommender") / "saved"
    fitted().save(path)
    return path


def check(path, recommender, k):
    """Whether the file has what `recommend` returns."""
    ids, scores = recommender.recommend(k=k)
    rows = parquet.read_table(path).to_pydict()
    users, ranks = np.nonzero(ids != "")
    assert rows["user"] == recommender.taken_.user_ids[users].tolist()
    assert rows["rank"] == (ranks + 1).tolist()
    assert rows["item"] == ids[users, ranks].tolist()
    np.testing.assert_array_equal(rows["score"], scores[users, ranks].astype(float))


KILLED = """
import os, pathlib, signal, sys
from tfrank_sel.recommend import Recommender, answers
answers.PART, table, calls = 20, answers._table, []
def last(*given):
    calls.append(given)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return table(*given)
answers._table = last
Recommender.load(sys.argv[1]).write(sys.argv[2], 4)
"""


def test_what_was_killed_goes_on_where_it_was(saved, tmp_path, monkeypatch, capsys):
    path = tmp_path / "all.parquet"
    command = [sys.executable, "-c", KILLED, saved, path]
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    monkeypatch.setattr(answers, "PART", 20)
    recommender, starts = Recommender.load(saved), []
    table = answers._table
    monkeypatch.setattr(answers, "_table", lambda *x: starts.append(x[1]) or table(*x))
    work = tmp_path / ".all.parquet.partial"
    shutil.copytree(work, tmp_path / "killed")
    recommender.write(path, 4, verbose=True)
    assert starts == [40, 60, 80]
    assert "100%" in capsys.readouterr().err
    check(path, recommender, 4)
    later = Recommender.load(saved)
    later.taken_ = dataclasses.replace(later.taken_, times=later.taken_.times + 1.0)
    for other, k in ((recommender, 5), (fitted(repeats=True), 4), (later, 4)):
        path.unlink()
        shutil.copytree(tmp_path / "killed", work)
        starts.clear()
        other.write(path, k)
        assert starts == [0, 20, 40, 60, 80]  # what is there is of other recommendations
        check(path, other, k)
    shutil.rmtree(tmp_path / "killed")
    assert [*tmp_path.iterdir()] == [path]


def test_the_file_is_new_and_a_damaged_part_is_named(saved, tmp_path, monkeypatch):
    path, recommender = tmp_path / "all.parquet", Recommender.load(saved)
    monkeypatch.setattr(answers, "PART", 50)
    table = answers._table

    def interrupted(model, start, k):
        if start:
            raise KeyboardInterrupt
        return table(model, start, k)

    monkeypatch.setattr(answers, "_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recommender.write(path)
    monkeypatch.setattr(answers, "_table", table)
    [part] = tmp_path.glob(".*.partial/work/*.parquet")
    octets = part.read_bytes()
    middle = len(octets) // 4
    flipped = octets[:middle] + bytes([octets[middle] ^ 1]) + octets[middle + 1 :]
    for damaged in (octets[:-20], flipped):
        part.write_bytes(damaged)
        with pytest.raises((ValueError, OSError), match=r"0\.parquet"):
            recommender.write(path)
    with (
        locks.hold(tmp_path / ".all.parquet.partial"),
        pytest.raises(InputError, match="by one process at a time"),
    ):
        recommender.write(path)
    part.write_bytes(octets)
    # a recommender that is fitted again to the same interactions goes on, too
    fitted().write(path)
    check(path, recommender, 10)
    with pytest.raises(FileExistsError, match="must not exist"):
        recommender.write(path)


def test_a_file_that_appears_meanwhile_stays(saved, tmp_path, monkeypatch):
    path, recommender = tmp_path / "all.parquet", Recommender.load(saved)
    table = answers._table

    def beside_another(*given):
        path.write_text("of another program")
        return table(*given)

    monkeypatch.setattr(answers, "_table", beside_another)
    with pytest.raises(FileExistsError, match="must not exist"):
        recommender.write(path)
    assert path.read_text() == "of another program"
    path.unlink()
    recommender.write(path)
    check(path, recommender, 10)


def test_users_without_enough_candidates_have_fewer_rows(tmp_path):
    recommender = Recommender((Successors(count=2), Popular(count=2)), num_trees=3).fit(TAKEN)
    recommender.write(tmp_path / "all.parquet", 20)
    check(tmp_path / "all.parquet", recommender, 20)
    with pytest.raises(AttributeError, match="must be set by `fit`"):
        Recommender().write(tmp_path / "other.parquet")
