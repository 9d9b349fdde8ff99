"""Exchange between workers, each a thread of this process."""

import concurrent.futures
import contextlib
import json
import socket

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import refusals
from tfrank_sel.data.lists import InputError
from tfrank_sel.distribution import Cluster, LostWorkerError, MeanLogs, Workers
from tfrank_sel.pipelines.learning.workers import assist


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as door:
        return f"127.0.0.1:{door.getsockname()[1]}"


def together(function, count=2):
    """What a function of the workers returns on each of them."""
    addresses = [free_address() for _ in range(count)]

    def work(index):
        with Cluster(addresses, index).join() as workers:
            return function(workers)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        running = [pool.submit(work, index) for index in range(count)]
        return [one.exception() or one.result() for one in running]


def test_the_sum_is_the_same_to_the_last_bit_on_all_workers():
    values = np.random.default_rng(0).normal(size=(3, 5, 2)).astype(np.float32)
    found = together(lambda workers: [workers.sum(values[workers.index]) for _ in range(2)], 3)
    expected = (values[0] + values[1]) + values[2]
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (3, 2, 5, 2)))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimizer_takes_the_mean_gradient_and_clips_it(compiled):
    rows = tf.constant([[1.0, 2.0], [3.0, 4.0]])

    def step(workers):
        table, bias, unused = (tf.Variable(x) for x in (tf.zeros([3, 2]), [0.0], [7.0]))
        optimizer = keras.optimizers.SGD(1.0, clipvalue=0.9)
        optimizer.build([table, bias, unused])
        workers.in_step(optimizer)

        def apply():
            sparse = tf.IndexedSlices(rows * (workers.index + 1.0), [2, workers.index], [3, 2])
            gradients = [sparse, tf.constant([-0.5 * workers.index]), None]
            optimizer.apply_gradients(zip(gradients, [table, bias, unused], strict=True))

        (tf.function(apply) if compiled else apply)()
        assert optimizer.iterations == 1
        return [x.numpy().tolist() for x in (table, bias, unused)]

    # the means are [[1.5, 2], [3, 4], [1.5, 3]] and [-0.25]
    expected = [[-0.9] * 2] * 3, [0.25], [7.0]
    for found in together(step):
        for mine, one in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, one)


def test_gradients_of_two_types_keep_their_types():
    def mean(workers):
        gradients = tf.constant([1.0 + workers.index]), tf.constant([4.0], tf.float64)
        means = workers._mean([(gradient, tf.Variable([0.0])) for gradient in gradients])
        return [(x.dtype.name, x.numpy().item()) for x, _ in means]

    assert together(mean) == [[("float32", 1.5), ("float64", 4.0)]] * 2


def test_logs_are_means_over_the_workers():
    def logged(workers):
        logs = {"loss": 1.0 + workers.index, "ndcg": np.float32(0.5)}
        MeanLogs(workers).on_epoch_end(0, logs)
        return logs

    assert together(logged) == [{"loss": 1.5, "ndcg": 0.5}] * 2


def test_a_lost_worker_is_named_and_ends_the_block():
    def ends(workers):
        if workers.index == 0:
            workers.sum(np.zeros(3))
        if workers.index == 1:
            zeros = tf.zeros(3, tf.float64)
            tf.function(lambda: tf.numpy_function(workers.sum, [zeros], zeros.dtype))()

    chief, first, second = together(ends, 3)
    assert isinstance(chief, LostWorkerError)
    assert "worker 2 ended" in str(chief)
    assert isinstance(first, LostWorkerError)
    assert "the chief ended" in str(first)
    assert second is None


def test_workers_of_other_models_are_refused():
    chief, other = together(lambda workers: workers.sum(np.zeros(3 + workers.index)))
    assert isinstance(chief, ValueError)
    assert "worker 1 must send 24 bytes. Received: 32" in str(chief)
    assert isinstance(other, LostWorkerError)


def test_a_stranger_does_not_take_part():
    address = free_address()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:

        def chief():
            with Cluster([address, address], 0).join() as workers:
                return workers.sum(np.ones(1))

        running = pool.submit(chief)
        host, port = address.split(":")
        for greeting in (b"GET ", b""):
            with contextlib.closing(connected(host, int(port))) as stranger:
                stranger.sendall(greeting)
        with Cluster([address, address], 1).join() as workers:
            assert workers.sum(np.ones(1)) == 2.0
        assert running.result() == 2.0


def connected(host, port):
    while True:
        with contextlib.suppress(ConnectionError):
            return socket.create_connection((host, port))


def test_a_worker_beside_the_chief_trains_waits_and_gives_up(monkeypatch):
    other = Cluster([free_address(), free_address()], 1)
    chief = Cluster(other.addresses, 0)
    assert assist(other, lambda: True, None) is None  # nothing to train
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(assist, other, lambda: False, lambda found: found.sum(np.ones(1)))
        with chief.join() as workers:
            assert workers.sum(np.ones(1)) == 2.0
        assert running.result() is None
        running = pool.submit(assist, other, lambda: False, Workers.wait)
        with chief.join():
            pass  # the chief ends
        with pytest.raises(InputError, match=r"the chief ended .* Start this worker again"):
            running.result()
    monkeypatch.setattr("tfrank_sel.pipelines.learning.workers.SECONDS", 0.0)
    with pytest.raises(InputError, match="the chief did not start training within 0 s"):
        assist(other, lambda: False, None)


def test_the_chief_is_the_first_worker_where_no_task_has_its_name(monkeypatch):
    workers = ["a:1", "b:2"]
    named = ["c:3"]
    tasks = [("worker", 1, [], 1), ("chief", 0, named, 0), ("worker", 1, named, 2)]
    for kind, index, chief, expected in tasks:
        jobs = {"worker": workers, **({"chief": chief} if chief else {})}
        value = {"cluster": jobs, "task": {"type": kind, "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(value))
        assert Cluster.of_environment() == Cluster([*chief, *workers], expected)
    monkeypatch.delenv("TF_CONFIG")
    with Cluster.of_environment().join() as alone:
        assert (alone.index, alone.count, alone.is_chief) == (0, 1, True)


@pytest.mark.parametrize(("cluster", "task", "reason"), refusals.of("tf_config"))
def test_a_malformed_cluster_is_refused(monkeypatch, cluster, task, reason):
    value = {"task": task, **({"cluster": cluster} if cluster else {})}
    monkeypatch.setenv("TF_CONFIG", json.dumps(value))
    with pytest.raises(ValueError, match=f"`TF_CONFIG` must be .*Received: .*{reason}"):
        Cluster.of_environment()
