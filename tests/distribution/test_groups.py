"""Groups of processes on this machine, and the clusters that describe them."""

import json
import pathlib
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks.speed import local_group
from tests import refusals
from tests.distribution import one_process
from tfrank_sel.distribution import CollectiveGroup
from tfrank_sel.distribution.groups import Cluster

MODULE = one_process.__name__


@pytest.fixture(scope="module")
def answers():
    """What three processes find."""
    found = local_group.run([MODULE, "answer"], 3)
    assert [status for status, _, _ in found] == [0, 0, 0], found
    return [json.loads(text) for _, text, _ in found]


def test_all_processes_find_the_same_to_the_last_bit(answers):
    assert answers[0] == answers[1] == answers[2]


def test_a_sum_is_that_of_all_processes(answers):
    expected = one_process.VALUES.sum(axis=0).ravel()
    np.testing.assert_allclose(answers[0]["totals"], [expected, expected], rtol=1e-6)


def test_values_of_any_type_are_exchanged_as_they_are(answers):
    rows = [0, 0, 1, 0, 1, 2]
    expected = [[3 * (2**53 + 1), 3], [[bool(x) for x in rows], *[rows] * 4], [6, 0]]
    assert answers[0]["types"] == expected


def test_an_address_that_is_taken_is_named(monkeypatch):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        jobs = {"cluster": {"worker": [address]}, "task": {"type": "worker", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(jobs))
        code = "from tfrank_sel.distribution import CollectiveGroup; CollectiveGroup()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"address of this process must be free. Received: {address}" in done.stderr


@pytest.mark.parametrize("kind", ["eager", "compiled"])
def test_an_optimizer_takes_the_mean_gradient_and_clips_it(answers, kind):
    expected = [[-0.1, -0.3], [-0.5, -0.9], [-0.2, -0.4]], [0.5], [7.0]  # the mean of -0.9 is -1.5
    for found, one in zip(answers[0][kind], expected, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-6)


def test_gradients_of_two_types_keep_their_types(answers):
    assert answers[0]["means"] == [["float32", 2.0], ["float64", 4.0]]


def test_logs_are_means_over_the_processes(answers):
    assert answers[0]["logs"] == {"loss": 2.0, "ndcg": 0.5}


def test_the_others_notice_a_process_that_hangs():
    processes = local_group.start([MODULE, "hang"], 3, stdout=subprocess.PIPE)
    try:
        state = pathlib.Path(f"/proc/{processes[1].pid}/stat")
        while state.read_text(encoding="utf-8").split()[2] != "T":
            assert processes[1].poll() is None
            time.sleep(0.1)
        assert [processes[rank].communicate(timeout=60)[0] for rank in (0, 2)] == ["lost\n"] * 2
    finally:
        for process in processes:
            process.kill()


def test_the_chief_is_the_first_process_where_no_task_has_its_name(monkeypatch):
    workers = ["a:1", "b:2"]
    named = ["c:3"]
    tasks = [("worker", 1, [], 1), ("chief", 0, named, 0), ("worker", 1, named, 2)]
    for kind, index, chief, expected in tasks:
        jobs = {"worker": workers, **({"chief": chief} if chief else {})}
        value = {"cluster": jobs, "task": {"type": kind, "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(value))
        assert Cluster.of_environment() == Cluster([*chief, *workers], expected)


def test_without_a_cluster_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    alone = CollectiveGroup()
    assert (alone.rank, alone.size, alone.is_chief) == (0, 1, True)
    assert alone.total(np.ones([2])).tolist() == [1.0, 1.0]
    assert alone.gather_rows(np.arange(4), np.array([1, 3])).tolist() == [1, 3]


@pytest.mark.parametrize(("cluster", "task", "reason"), refusals.of("tf_config"))
def test_a_malformed_cluster_is_refused(monkeypatch, cluster, task, reason):
    value = {"task": task, **({"cluster": cluster} if cluster else {})}
    monkeypatch.setenv("TF_CONFIG", json.dumps(value))
    with pytest.raises(ValueError, match=f"`TF_CONFIG` must be .*Received: .*{reason}"):
        Cluster.of_environment()
