import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.models.als import one_process


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """What two processes on this machine fit together."""
    folder = tmp_path_factory.mktemp("group")
    with socket.socket() as first, socket.socket() as second:
        for free in (first, second):
            free.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{free.getsockname()[1]}" for free in (first, second)]
    processes = []
    for rank in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        command = [
            sys.executable,
            "-m",
            "tests.models.als.one_process",
            str(folder / f"{rank}.npz"),
        ]
        environment = {**os.environ, "TF_CONFIG": json.dumps(task), "CUDA_VISIBLE_DEVICES": "-1"}
        processes.append(subprocess.Popen(command, env=environment))
    try:
        assert [process.wait(300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(2)]


@pytest.fixture(scope="module")
def of_one():
    return one_process.fitted(slice(None))


@pytest.mark.parametrize("name", one_process.FACTORIZERS)
def test_two_processes_find_the_factors_of_one(name, of_one, of_two):
    users = np.concatenate([half[f"{name} users"] for half in of_two])
    np.testing.assert_allclose(users, of_one[f"{name} users"], atol=1e-5)
    for half in of_two:
        np.testing.assert_allclose(half[f"{name} items"], of_one[f"{name} items"], atol=1e-5)
        np.testing.assert_allclose(half[f"{name} history"], of_one[f"{name} history"], rtol=1e-4)
