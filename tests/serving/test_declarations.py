"""Any tensor of any request: an answer, or a line that says why not; memory in proportion."""

import contextlib
import json
import pathlib
import random
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tfrank_sel import export
from tfrank_sel.models import SequenceEncoder
from tfrank_sel.models.als import RGFactorizer
from tfrank_sel.recommend import Factors, Popular, Recommender, Successors
from tfrank_sel.serving.admission import Admission
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.model import Model, _line
from tfrank_sel.serving.engine.predict import predict
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.rest.api import RestApi
from tfrank_sel.serving.status import Code, ServingError

SHAPES = (
    [(), (0,), (1,), (2,), (7,), (0, 0), (1, 0), (0, 1), (1, 1), (2, 3), (3, 2), (1, 1, 1)]
    + [(2, 3, 3), (2, 0, 3), (1, 1, 1, 1)]
)  # fmt: skip
KINDS = (np.object_, np.float32, np.int32, np.int64, np.bool_)
ITEMS = 9000


@pytest.fixture(scope="module")
def models(named_model, tmp_path_factory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("recommenders")
    users = np.append(np.repeat(0, ITEMS), [1, 1, 2])
    fitted = RGFactorizer(num_factors=4, sweeps=1, regularization=0.1, num_threads=1)
    fitted.fit((users, np.append(np.arange(ITEMS), [1, 2, 3])))
    export.factorization(fitted, folder / "factorization", k=3)
    encoder = SequenceEncoder(ITEMS, 4, num_blocks=1, max_length=5)
    export.next_items(encoder, [*map(str, range(ITEMS))], folder / "next_items", k=3)
    paths = {name: named_model / name / "1" for name in ("ranker", "packed", "odd")}
    taken = [("0", x) for x in range(ITEMS)] + [(f"{x // 4}", x % 7) for x in range(8, 400)]
    rows = {"user": [x for x, _ in taken], "item": [x for _, x in taken], "time": range(len(taken))}
    sources = Factors(9, num_factors=4, sweeps=1), Successors(count=9), Popular(count=3)
    recommender = Recommender(sources, num_trees=3, num_threads=1).fit(rows)
    recommender.export(folder / "recommender", k=3)
    paths |= {name: folder / name for name in ("factorization", "next_items", "recommender")}
    return {name: Model(path, 1) for name, path in paths.items()}


def tensor(chance: random.Random, shape: tuple[int, ...], kind: type) -> np.ndarray:
    values = [b"", b"0", b"x"] if kind is np.object_ else [0, 1, 2]
    made = np.empty(shape, kind)
    made.ravel()[:] = [chance.choice(values) for _ in range(made.size)]
    return made


def kind_of(info) -> type:
    return np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype).type


def by_grpc(model, signature, sent):
    request = predict_pb2.PredictRequest()
    for name, array in sent.items():
        tensor_protos.to_proto(array, request.inputs[name])
    arrays = tensor_protos.to_arrays(request.inputs, Limits())
    return predict(model, model.signatures[signature], arrays, timeout=20.0)


class Only:
    """A core of one model."""

    def __init__(self, model):
        self.model = model

    @contextlib.contextmanager
    def acquire(self, *_):
        yield self.model


def by_rest(model, signature, sent):
    def plain(value):
        if isinstance(value, list):
            return [plain(x) for x in value]
        return value.decode() if isinstance(value, bytes) else value

    inputs = {name: plain(array.tolist()) for name, array in sent.items()}
    body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
    limits = Limits()
    return RestApi(Only(model), Admission(limits))._predict(("m", None, None), body, limits)


def fault(ask, *arguments):
    """The line by which a request is refused; empty if it is answered."""
    try:
        ask(*arguments)
    except ServingError as error:
        return f"{error.code.name}: {error}"
    return ""


NAMES = ["ranker", "packed", "odd", "factorization", "next_items", "recommender"]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_any_tensor_is_answered_or_refused(models, name):
    """Each input in turn has any shape and type; the others fit, or are any, too."""
    model, chance = models[name], random.Random(name)
    known = {"factorization": "user", "next_items": "history", "recommender": "user"}.get(name)
    good = {known: np.array([b"1"] if known == "user" else [[b"1"]], np.object_)} if known else {}
    first = by_grpc(model, "serving_default", good) if good else {}
    lines = []
    for signature, called in model.signatures.items():
        infos = called.definition.inputs
        for asked in infos:
            for shape in SHAPES if len(infos) < 4 else chance.sample(SHAPES, 4):
                kind = kind_of(infos[asked]) if chance.random() < 0.8 else chance.choice(KINDS)
                sent = {}
                for other, info in infos.items():
                    sizes = [x.size if x.size >= 0 else 2 for x in info.tensor_shape.dim]
                    fits = tuple(sizes) if chance.random() < 0.9 else chance.choice(SHAPES)
                    sent[other] = tensor(chance, fits, kind_of(info))
                sent[asked] = tensor(chance, shape, kind)
                if "explain" not in signature or chance.random() < 0.1:  # which takes long
                    lines += [fault(ask, model, signature, sent) for ask in (by_grpc, by_rest)]
    assert "" in lines
    for line in lines:
        assert not line or re.fullmatch(r"INVALID_ARGUMENT: [^\n]+", line), line
        assert "{{" not in line
    if good:  # no rows are answered by none
        none = by_grpc(model, "serving_default", {known: good[known][:0]})
        assert {x: y.shape for x, y in none.items()} == {
            x: (0, *y.shape[1:]) for x, y in first.items()
        }
    for output, value in first.items():
        again = by_grpc(model, "serving_default", good)[output]
        np.testing.assert_array_equal(again, value)


def test_a_graph_alone_refuses_what_it_does_not_declare(models):
    """As in a server that does not compare a request with the signature."""
    chance = random.Random(0)
    for name, model in models.items():
        for signature, called in model.signatures.items():
            for asked, info in called.definition.inputs.items():
                rank = len(info.tensor_shape.dim)
                if info.dtype != tf.string.as_datatype_enum or info.tensor_shape.unknown_rank:
                    continue
                for shape in [x for x in SHAPES if len(x) != rank]:
                    sent = {
                        other: tensor(chance, (1,) * len(of.tensor_shape.dim), kind_of(of))
                        for other, of in called.definition.inputs.items()
                    }
                    sent[asked] = np.full(shape, b"0", np.object_)
                    with pytest.raises(ServingError) as error:
                        model.run(called, sent, list(called.fetches))
                    assert error.value.code is Code.INVALID_ARGUMENT, (name, signature, shape)


def test_an_error_names_the_input_what_it_must_be_and_what_it_is(models):
    with pytest.raises(ServingError) as error:
        by_rest(models["factorization"], "serving_default", {"user": np.array(b"0", np.object_)})
    expected = "Input user of signature serving_default must be string of shape (None,)"
    assert str(error.value) == f"{expected}. Received: string of shape ()"


def test_a_mask_that_is_longer_than_the_lists_is_told(models):
    values = np.zeros([1, 2, 3], np.float32)
    for ask in (by_grpc, by_rest):
        with pytest.raises(ServingError, match=r"`mask` must be broadcast to the lists.*\[1 3\]"):
            ask(models["packed"], "predict", {"features": values, "mask": np.ones([1, 3], bool)})


def test_a_mask_is_broadcast_to_the_lists(models):
    values = np.random.default_rng(0).normal(size=[3, 2, 3]).astype(np.float32)
    pair = np.array([[0, 1]] * 3, np.int32)
    for name, others in (("predict", {}), ("explain", {"pair": pair})):
        for shape in [(), (1,), (2,), (1, 1), (3, 1), (1, 2)]:
            answers = [
                by_grpc(models["packed"], name, {"features": values, "mask": mask, **others})
                for mask in (np.ones([3, 2], bool), np.ones(shape, bool))
            ]
            for output, value in answers[0].items():
                np.testing.assert_array_equal(answers[1][output], value, f"{output} {shape}")
            sent = {"features": values, "mask": np.ones(shape, bool), **others}
            assert fault(by_rest, models["packed"], name, sent) == ""


def test_an_unknown_input_beside_a_default_is_told(models):
    sent = {"features": np.zeros([1, 2, 3], np.float32), "other": np.ones([1, 1], bool)}
    expected = "Inputs of signature predict must be in the set {features,mask}. Received: {other}"
    assert fault(by_grpc, models["packed"], "predict", sent) == f"INVALID_ARGUMENT: {expected}"


@pytest.mark.parametrize("value", ["[1 2]", "[[1 2]\n [3 4]]", "[[[1]]]"])
def test_an_error_keeps_its_values_and_no_nodes(value):
    nodes = "\n\t [[{{node Assert}}]]\n\t [[StatefulPartitionedCall]]"
    assert _line(f"{{{{function_node f}}}} must be 0. Received: {value}{nodes}") == (
        f"must be 0. Received: {value}"
    )


def peak() -> int:
    """Bytes that this process took at most since it was asked."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@pytest.mark.parametrize("name", NAMES[3:])
def test_memory_is_in_proportion_to_the_items_of_a_request(models, name):
    """Of a user who took all items beside others, and of a long history."""
    found = {}
    for size in (ITEMS // 2, ITEMS):
        if name != "next_items":
            sent = {"user": np.array([b"0"] + [b"1"] * (size // 9), np.object_)}
        else:
            sent = {"history": np.array([[b"%d" % x for x in range(size)]], np.object_)}
        peak()
        before = peak()
        by_grpc(models[name], "serving_default", sent)
        found[size] = peak() - before
    print({size: f"{taken / size:.0f} bytes an item" for size, taken in found.items()})
    small, large = found.values()
    assert large <= 2.2 * small + 2**24
    assert large < 2**27
