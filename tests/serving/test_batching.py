import base64
import http.client
import json
import shutil
import threading
from concurrent import futures

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.serving.half_plus import Client
from tests.serving.test_ranker import SPEC, base, model  # noqa: F401
from tfrank_sel.data import elwc
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment import config
from tfrank_sel.serving.deployment.config_messages import BatchingParameters
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.engine import batching, warmup
from tfrank_sel.serving.engine.batching import BatchedModel
from tfrank_sel.serving.engine.model import LoadedModel
from tfrank_sel.serving.status import Code, ServingError


@pytest.fixture(scope="module")
def alone(half):
    loaded = LoadedModel(half / "1", 1)
    yield loaded
    loaded.close()


class Watched(LoadedModel):
    """Notes the inputs of each run, and waits until it may go on."""

    def __init__(self, path):
        super().__init__(path, 1)
        self.runs = []
        self.free = threading.Event()
        self.free.set()

    def run(self, signature, inputs, outputs, timeout=None):
        self.runs.append(inputs)
        self.free.wait(20)
        return super().run(signature, inputs, outputs, timeout)


@pytest.fixture
def watched(half):
    return Watched(half / "1")


def parameters(**given):
    # one thread: what is sent while it works waits for one batch
    return config.batching(num_batch_threads=1, **given)


def queued(batched):
    return sum(len(batch.tasks) for batch in list(batched._waiting))


def together(batched, requests, signature="serving_default", output="y", timeout=None):
    """Sends the first request alone, and the others while it runs; answers or errors."""

    def ask(inputs):
        try:
            return batched.run(batched.signatures[signature], inputs, [output], timeout)[0]
        except ServingError as error:
            return error

    watched = batched._model
    watched.runs.clear()
    watched.free.clear()
    with futures.ThreadPoolExecutor(len(requests)) as threads:
        asked = [threads.submit(ask, requests[0])]
        while not watched.runs:
            pass
        for number, inputs in enumerate(requests[1:], 2):
            asked.append(threads.submit(ask, inputs))
            while queued(batched) < number - 1 and not asked[-1].done():
                pass
        watched.free.set()
        return [x.result(20) for x in asked]


def x(*values):
    return {"x": np.array(values, np.float32)}


def test_requests_that_come_together_run_together(watched):
    batched = BatchedModel(watched, parameters())

    answers = together(batched, [x(0), x(2), x(4, 6), x()])

    assert [a.tolist() for a in answers] == [[2.0], [3.0], [4.0, 5.0], []]
    assert [run["x"].tolist() for run in watched.runs] == [[0.0], [2.0, 4.0, 6.0]]
    batched.close()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.sampled_from([[], [1, 3, 6]]),
    st.booleans(),
)
def test_answers_are_those_of_requests_alone(alone, sizes, allowed, splits):
    given = {"max_execution_batch_size": 3} if splits else {}
    allowed = [size for size in allowed if size <= 3 or not splits]
    batched = BatchedModel(
        Unclosed(alone), config.batching(max_batch_size=6, allowed_batch_sizes=allowed, **given)
    )
    signature = batched.signatures["multi"]
    rng = np.random.default_rng(0)
    requests = [
        {
            "a": rng.normal(size=[size, 2]).astype("f"),
            "b": np.array([b"%d" % n for n in range(size)], object),
        }
        for size in sizes
    ]
    outputs = list(signature.fetches)

    with futures.ThreadPoolExecutor(len(sizes)) as threads:
        answers = list(threads.map(lambda r: batched.run(signature, r, outputs, 20.0), requests))

    for request, answer in zip(requests, answers, strict=True):
        for wanted, got in zip(alone.run(signature, request, outputs), answer, strict=True):
            np.testing.assert_array_equal(got, wanted, strict=True)
    batched.close()


class Unclosed(LoadedModel):
    """A model that somebody else closes."""

    def __init__(self, other):
        self.__dict__.update(other.__dict__)

    def close(self):
        pass


def test_batches_are_filled_up_to_an_allowed_size(watched):
    batched = BatchedModel(watched, parameters(max_batch_size=8, allowed_batch_sizes=[1, 4, 8]))

    assert [a.tolist() for a in together(batched, [x(0), x(2, 4), x(6)])][1:] == [[3, 4], [5]]
    assert watched.runs[1]["x"].tolist() == [2.0, 4.0, 6.0, 6.0]
    batched.close()


def test_a_full_batch_does_not_wait_and_a_request_too_large_is_refused(watched):
    batched = BatchedModel(watched, parameters(max_batch_size=2, batch_timeout_micros=10**9))

    assert batched.run(batched.signatures["serving_default"], x(2, 4), ["y"])[0].tolist() == [3, 4]
    with pytest.raises(ServingError, match="Task size 3 is larger than maximum input batch size 2"):
        batched.run(batched.signatures["serving_default"], x(1, 2, 3), ["y"])
    batched.close()


def test_a_batch_waits_for_more_as_long_as_it_is_told(watched):
    batched = BatchedModel(watched, parameters(max_batch_size=2, batch_timeout_micros=10**7))

    with futures.ThreadPoolExecutor(2) as threads:
        asked = [
            threads.submit(batched.run, batched.signatures["serving_default"], x(value), ["y"])
            for value in (2, 4)
        ]
        assert [a.result(5)[0].tolist() for a in asked] == [[3.0], [4.0]]
    assert len(watched.runs) == 1
    batched.close()


def test_large_requests_may_be_split(watched):
    batched = BatchedModel(watched, parameters(max_execution_batch_size=2))

    signature = batched.signatures["serving_default"]
    assert batched.run(signature, x(*range(5)), ["y"])[0].tolist() == [2, 2.5, 3, 3.5, 4]
    assert [len(run["x"]) for run in watched.runs] == [2, 2, 1]
    batched.close()


def test_a_full_queue_is_unavailable(watched):
    batched = BatchedModel(watched, parameters(max_batch_size=1, max_enqueued_batches=2))

    answers = together(batched, [x(0), x(1), x(2), x(3)])

    assert [a.tolist() for a in answers[:3]] == [[2.0], [2.5], [3.0]]
    assert answers[3].code is Code.UNAVAILABLE
    assert "queue to which this task was submitted is full" in str(answers[3])
    batched.close()


def dense(*shape):
    return {"x": np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)}


def test_different_inner_shapes_fail_together_or_are_padded_with_their_first_element(watched):
    requests = [dense(1, 1), dense(1, 3, 2), dense(1, 5, 2)]
    batched = BatchedModel(watched, parameters())
    alone, *answers = together(batched, requests)
    assert alone.tolist() == [[2.5]]
    for answer in answers:
        assert answer.code is Code.FAILED_PRECONDITION
        assert "Tensors with name 'serving_default_x:0'" in str(answer)
        assert "different shapes and padding is turned off" in str(answer)

    batched = BatchedModel(watched, parameters(pad_variable_length_inputs=True))
    _, short, long = together(batched, requests)
    assert (short.shape, long.shape) == ((1, 5, 2), (1, 5, 2))
    np.testing.assert_array_equal(watched.runs[1]["x"][0, 3:], 1.0)
    np.testing.assert_array_equal(short[:, :3], 0.5 * requests[1]["x"] + 2)
    assert together(batched, [dense(1, 1), dense(1, 2), dense(1, 2, 2)])[2].code is (
        Code.INVALID_ARGUMENT
    )
    batched.close()


def test_what_cannot_be_batched_is_refused_and_a_wrong_type_reaches_no_neighbour(watched):
    batched = BatchedModel(watched, parameters())
    signature = batched.signatures["with_default"]
    for k, message in ((2.0, "at least one dimension"), ([1.0, 2.0], "equal 0th-dimension size")):
        with pytest.raises(ServingError, match=message):
            batched.run(signature, {**x(1), "k": np.array(k, np.float32)}, ["y"])
    with pytest.raises(ServingError, match="Batched output tensor has 0 dimensions"):
        batched.run(batched.signatures["scalar_out"], x(1), ["total"])
    with pytest.raises(ServingError, match="to be float but double is provided"):
        batched.run(batched.signatures["serving_default"], {"x": np.ones(1)}, ["y"])
    batched.close()


def test_a_part_of_the_outputs_is_not_batched(watched):
    batched = BatchedModel(watched, parameters(max_batch_size=1))
    inputs = {"a": np.ones([2, 2], "f"), "b": np.array([b"x", b"y"], object)}

    assert batched.run(batched.signatures["multi"], inputs, ["sum"])[0].tolist() == [2.0, 2.0]
    batched.close()


def test_who_waits_too_long_is_told(watched):
    batched = BatchedModel(watched, parameters(batch_timeout_micros=50_000))
    with pytest.raises(ServingError, match="exceeded while waiting in batching queue") as error:
        batched.run(batched.signatures["serving_default"], x(1), ["y"], 0.01)
    assert error.value.code is Code.DEADLINE_EXCEEDED
    batched.close()


def test_parameters_come_from_a_file_of_each_version_or_from_one(half, tmp_path):
    for version, file in (("1", None), ("2", "max_batch_size { value: 1 }")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").write_bytes(
            (half / "1" / "saved_model.pb").read_bytes()
        )
        (tmp_path / version / "variables").symlink_to(half / "1" / "variables")
        if file:
            config.write(tmp_path / version / batching.FILE, config.batching(max_batch_size=1))
    load = batching.opener(LoadedModel, BatchingParameters(), per_model=True)

    first, second = load(tmp_path / "1", 1), load(tmp_path / "2", 2)

    assert first.run(first.signatures["serving_default"], x(2, 2), ["y"])[0].tolist() == [3, 3]
    with pytest.raises(ServingError, match="Task size 2 is larger"):
        second.run(second.signatures["serving_default"], x(2, 2), ["y"])
    first.close(), second.close()


def test_a_server_batches_rankings_that_differ_in_length(base, model, tmp_path):  # noqa: F811
    lists = [np.random.default_rng(n).normal(size=[n + 1, 3]).astype("f") for n in range(8)]

    def by_grpc(port, features):
        examples = np.array([elwc.serialize(features, SPEC)], object)
        outputs = Client(port).predict("ranker", examples=examples).outputs
        return list(outputs["scores"].float_val), list(outputs["mask"].bool_val)

    def by_rest(port, features):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        examples = base64.b64encode(elwc.serialize(features, SPEC)).decode()
        body = json.dumps({"instances": [{"b64": examples}]})
        connection.request("POST", "/v1/models/ranker:predict", body)
        [row] = json.loads(connection.getresponse().read())["predictions"]
        return row["scores"], row["mask"]

    shutil.copytree(base, tmp_path / "ranker")
    (tmp_path / "ranker" / "3" / warmup.PATH).unlink()  # each request would wait
    wait = parameters(max_batch_size=len(lists), batch_timeout_micros=10**7)
    with (
        Endpoint([ModelConfig("ranker", tmp_path / "ranker")], batching=wait) as endpoint,
        futures.ThreadPoolExecutor(len(lists)) as threads,
    ):
        for ask, port in ((by_grpc, endpoint.grpc_port), (by_rest, endpoint.rest_port)):
            answers = threads.map(lambda features, ask=ask, port=port: ask(port, features), lists)
            for features, (scores, mask) in zip(lists, answers, strict=True):
                # every answer is as long as the longest of its batch; the mask tells
                assert (len(scores), sum(mask)) == (len(lists), len(features))
                assert mask[: len(features)] == [True] * len(features)
                np.testing.assert_allclose(
                    scores[: len(features)], model(features[None])[0], atol=1e-6
                )


def test_an_exported_ranker_brings_its_parameters_and_ranks_in_batches(base, model):  # noqa: F811
    features = np.random.default_rng(0).normal(size=[5, 3]).astype("f")
    names, scores = list("abcde"), model(features[None])[0].numpy()
    with (
        Endpoint(
            [ModelConfig("ranker", base)], batching=BatchingParameters(), per_model_batching=True
        ) as endpoint,
        Ranker(f"127.0.0.1:{endpoint.grpc_port}") as ranker,
        futures.ThreadPoolExecutor(8) as threads,
    ):
        [ranked, *others] = threads.map(lambda k: ranker.rank(features, names, k=k), [5, 1, 3] * 9)

    assert [x.doc_id for x in ranked] == [names[i] for i in np.argsort(-scores)]
    for k, found in zip([1, 3, *([5, 1, 3] * 8)], others, strict=True):
        assert found == ranked[:k]
