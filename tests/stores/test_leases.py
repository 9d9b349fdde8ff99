"""Leases of places in stores, between processes for real."""

import json
import multiprocessing
import os
import signal
import socket
import threading
import time

import pytest

from tests.stores.conftest import forget
from tfrank_sel.data import leases, stores
from tfrank_sel.pipelines.files import mirrors

ALIVE = {"renewed": 0.2, "expired": 60.0}  # a machine may be busy for a while
IMPATIENT = {"renewed": 0.2, "expired": 1.5}


def wait_until(holds) -> None:
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def hold(folder: str, ready, seconds: float) -> None:
    forget()
    try:
        with leases.hold(folder, **ALIVE):
            ready.put(os.getpid())
            time.sleep(seconds)
            ready.put("ended")
    except Exception as error:
        ready.put(type(error).__name__)


@pytest.fixture
def process():
    """Starts processes that hold a folder, and ends them."""
    context = multiprocessing.get_context("spawn")
    started = []

    def start(folder: str, seconds: float = 60.0):
        ready = context.Queue()
        one = context.Process(target=hold, args=(folder, ready, seconds))
        one.start()
        started.append(one)
        return one, ready

    yield start
    for one in started:
        one.kill()
        one.join()


def test_one_process_at_a_time_holds_a_folder(bucket, process):
    folder = f"{bucket}/run"
    _, ready = process(folder)
    ready.get(timeout=300)
    wanted = pytest.raises(FileExistsError, match="run is held by another process, process")
    with wanted, leases.hold(folder, **ALIVE):
        pass
    with leases.hold(f"{bucket}/other", **ALIVE):
        pass
    assert stores.find(f"{bucket}/other") == []


def test_the_lease_of_a_killed_process_is_taken_at_once_on_its_machine(bucket, process):
    one, ready = process(bucket)
    ready.get(timeout=300)
    os.kill(one.pid, signal.SIGKILL)
    one.join()
    began = time.monotonic()
    with leases.hold(bucket, renewed=10.0, expired=45.0):
        assert time.monotonic() - began < 30.0


def test_a_lease_without_a_sign_of_life_is_taken_over_and_its_holder_told(bucket, process):
    one, ready = process(bucket, seconds=1.0)
    ready.get(timeout=300)
    os.kill(one.pid, signal.SIGSTOP)
    with leases.hold(bucket, **IMPATIENT):
        os.kill(one.pid, signal.SIGCONT)
        assert ready.get(timeout=300) == "ended"
        assert ready.get(timeout=300) == "LeaseError"
        assert len(stores.find(bucket)) == 1


def test_of_many_one_takes_over(bucket, process):
    one, ready = process(bucket)
    ready.get(timeout=300)
    os.kill(one.pid, signal.SIGKILL)
    one.join()
    others = [process(bucket)[1] for _ in range(3)]
    told = [ready.get(timeout=300) for ready in others]
    assert sorted(map(type, told), key=str) == [int, str, str], told
    assert {x for x in told if isinstance(x, str)} == {"FileExistsError"}


def test_a_lease_outlives_errors_of_the_client(bucket, monkeypatch, caplog):
    """google.auth's RefreshError, for example, is neither an OSError nor a ValueError."""
    latest, failures = leases._latest, 2

    def flaky(folder):
        nonlocal failures
        if failures and threading.current_thread() is not threading.main_thread():
            failures -= 1
            raise Exception("503, try again")
        return latest(folder)

    with leases.hold(bucket, renewed=0.05, expired=60.0):
        monkeypatch.setattr(leases, "_latest", flaky)
        before = latest(bucket)
        wait_until(lambda: latest(bucket) != before)
    assert [record.message for record in caplog.records if "503" in record.message] == [
        f"{bucket}: no sign of life could be given, next try follows: Exception('503, try again')"
    ]


def test_a_process_that_was_replaced_is_told_even_after_the_other_has_ended(bucket):
    def hold():
        with leases.hold(bucket, renewed=0.05, expired=60.0):
            leases._write(bucket, 2, 0, "create")
            wait_until(lambda: not stores.is_file(leases._place(bucket, 1)))
            leases._write(bucket, 1, 9, "create")  # as by a sign of life that was under way
            stores.remove(leases._place(bucket, 2))

    with pytest.raises(leases.LeaseError):
        hold()
    assert stores.find(bucket) == []


@pytest.mark.parametrize("processes", ["another boot pid:[1]", "", None])
def test_a_process_id_of_another_machine_or_container_says_nothing(bucket, processes):
    """Containers may share the name of the host."""
    owner = {"host": socket.gethostname(), "process": 2**22 + 1, "sign": 0}
    if processes is not None:
        owner["processes"] = processes
    stores.write_text(leases._place(bucket, 1), json.dumps(owner))
    began = time.monotonic()
    with leases.hold(bucket, renewed=10.0, expired=0.5):
        assert time.monotonic() - began >= 0.5


def test_what_is_no_lease_of_a_process_is_taken_over(bucket):
    for name, content in (("x.json", b"{}"), ("00000001.json", b"")):
        with stores.open_file(f"{bucket}/{leases.FOLDER}/{name}", "wb") as file:
            file.write(content)
    with leases.hold(bucket, renewed=10.0, expired=0.2):
        assert stores.is_file(f"{bucket}/{leases.FOLDER}/00000002.json")


def test_an_error_within_a_run_is_not_one_of_its_lease(bucket, tmp_path):
    run = mirrors.Mirror(tmp_path / "run", f"{bucket}/run")
    with pytest.raises(FileExistsError, match="of the body"), run.hold():
        raise FileExistsError("of the body")
