"""What touches no model runs where TensorFlow cannot be imported; all in one process."""

import contextlib
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from importlib.machinery import PathFinder
from typing import Any

import pytest

from tfrank_sel import launch

for extra in ("libcst", "lightgbm", "numba", "pyarrow", "tensorflow_serving", "typer"):
    pytest.importorskip(extra)

ROOT = pathlib.Path(__file__).parents[1]
FRAMEWORKS = {"jax", "keras", "tensorflow"}
NEEDED = "This needs TensorFlow and Keras: pip install tensorflow keras"


def uninstall(*packages: str) -> None:
    """Lets this process find none of these packages."""
    find = PathFinder.find_spec

    def of_others(name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in packages else find(name, path, target)

    PathFinder.find_spec = of_others  # type: ignore[method-assign,assignment]


def ran(command: str) -> tuple[int, str]:
    """The status of a command, and what it printed."""
    sys.argv = command.split()
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            getattr(launch, sys.argv[0].removeprefix("tfrank-sel-"))()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue()


def prepared() -> None:
    pathlib.Path("saved").mkdir()
    pathlib.Path("saved/saved_model.pb").touch()
    pathlib.Path("run.txt").write_text("q Q0 b 1 2.0 x\nq Q0 a 2 1.0 x\n", encoding="utf-8")
    pathlib.Path("other.txt").write_text("q Q0 b 1 2.0 x\nr Q0 c 1 1.0 x\n", encoding="utf-8")
    pathlib.Path("qrels.txt").write_text("q 0 a 1\nr 0 c 2\nr 0 d 1\n", encoding="utf-8")
    pathlib.Path("code.py").write_text("import tensorflow_ranking as tfr\n", encoding="utf-8")
    rows = ["q,a,1,1", "q,b,2,0", "q,b,1,0", "q,a,2,1"] * 9
    pathlib.Path("log.csv").write_text(
        "\n".join(["query,item,position,click", *rows]), encoding="utf-8"
    )


# computed by NumPy where nothing else is installed
VALUES = [
    "tfrank-sel-metrics evaluate --qrels qrels.txt --run run.txt -q -m ndcg_cut.5 -m P.1",
    "tfrank-sel-metrics compare run.txt other.txt --qrels qrels.txt -m recip_rank",
]
SERVING = "tfrank-sel-serving {} --folder models"
RIGHT = [
    SERVING.format("publish saved"),
    SERVING.format("publish saved") + " --canary",
    SERVING.format("promote"),
    SERVING.format("roll-back"),
    SERVING.format("remove-old --keep 1"),
    "tfrank-sel-clicks correct log.csv --output labels.parquet",
    "tfrank-sel-metrics --help",
    *VALUES,
    "tfrank-sel-metrics fuse run.txt run.txt",
    "tfrank-sel-migrate code.py",
    "tfrank-sel-pipelines --help",
    "tfrank-sel-pipelines ingest --output run --set data.synthetic=true",
    "tfrank-sel-pipelines analyze --output run --set data.synthetic=true",
]

RANK = 'tfrank-sel-serving rank --items [{"price":2.5},{"price":3}] --address 127.0.0.1:'
MODELS = [("", "presets"), ("", "Ranker"), (".models", "Scorer"), (".data", "batches")]


@contextlib.contextmanager
def served() -> Iterator[int]:
    """The port of a server of a model of prices, which ranks the items of a list as they come."""
    import grpc
    import numpy as np

    from tfrank_sel.serving import protos
    from tfrank_sel.serving.engine import tensor_protos

    def described(request: Any, _: Any) -> Any:
        signatures, answer = protos.Signatures(), protos.MetadataResponse()
        price = signatures.signature_def["predict"].inputs["price"]
        price.dtype = protos.DataType.DT_FLOAT
        for _ in range(2):
            price.tensor_shape.dim.add(size=-1)
        answer.metadata["signature_def"].value = signatures.SerializeToString()
        return answer

    def predicted(request: Any, _: Any) -> Any:
        answer = protos.PredictResponse()
        names, size = [b"a", b"b"], tensor_protos.to_array("k", request.inputs["k"])
        values = {
            "mask": np.ones([1, 2], np.bool_),
            "ranks": np.array([[1, *size]], np.int32),
            "doc_ids": np.array([names], np.object_),
            "scores": np.array([[0.5, 0.25]], np.float32),
        }
        for name, array in values.items():
            tensor_protos.to_proto(array, answer.outputs[name])
        return answer

    asked = {
        "GetModelMetadata": (described, protos.MetadataRequest),
        "Predict": (predicted, protos.PredictRequest),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            answer, kind.FromString, lambda x: x.SerializeToString()
        )
        for name, (answer, kind) in asked.items()
    }
    server = grpc.server(futures.ThreadPoolExecutor(1))
    service = "tensorflow.serving.PredictionService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None)


def factorised() -> list[int]:
    """The shape of recommendations of a factorisation that was saved and loaded."""
    from scipy import sparse

    from tfrank_sel.models import als

    model = als.RGFactorizer(als.RGCross(), num_factors=4, sweeps=2, regularization=0.5)
    model.fit(sparse.random(20, 10, 0.3, format="csr", random_state=0)).save("factors")
    items, _ = als.RGFactorizer.load("factors").recommend([0, 1], 3)
    return list(items.shape)


def recommended() -> list[list[str]]:
    """The first item of a recommender that was saved and loaded."""
    from tfrank_sel import recommend

    columns = {"user": [], "item": [], "time": []}
    for user, time in ((user, time) for user in range(40) for time in range(5)):
        for name, value in zip(columns, (user, (user + time) % 9, time), strict=True):
            columns[name].append(value)
    sources = recommend.Factors(num_factors=4), recommend.Successors()
    model = recommend.Recommender(sources, num_trees=5, num_threads=1).fit(columns)
    model.evaluate({"user": [0], "item": [5], "time": [5]})
    model.save("recommender")
    return recommend.Recommender.load("recommender").recommend(["0"], 1)[0].tolist()


def refused() -> Iterator[str]:
    for package, name in MODELS:
        try:
            getattr(importlib.import_module(f"tfrank_sel{package}"), name)
        except ImportError as error:
            yield str(error)


def probe() -> None:
    uninstall(*FRAMEWORKS)
    prepared()
    told = {command: ran(command) for command in RIGHT}
    with served() as port:
        told[RANK] = ran(f"{RANK}{port}")
    shape = factorised(), recommended()
    imported = sorted(sys.modules.keys() & FRAMEWORKS)
    wrong = ran("tfrank-sel-serving serve --model-base-path models")
    print(json.dumps([told, shape, imported, wrong, [*refused()]]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("without")


@pytest.fixture(scope="module")
def results(folder: pathlib.Path) -> Any:
    call = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests import {{}} as t; t.probe()"
    done = subprocess.run(
        [sys.executable, "-c", call.format(pathlib.Path(__file__).stem)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_commands_and_the_factorisation_import_no_tensorflow(results: Any) -> None:
    told, shape, imported, *_ = results
    assert {command: text for command, (status, text) in told.items() if status} == {}
    assert [row.split()[1::2] for row in told[RANK][1].splitlines() if "0." in row] == [
        ["1", "a", "0.5"],
        ["2", "b", "0.25"],
    ]
    assert shape == [[2, 3], [["5"]]]
    assert imported == []


@pytest.mark.parametrize("command", VALUES)
def test_numpy_gives_the_numbers_of_tensorflow(
    results: Any, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", sys.argv)  # `ran` sets it
    expected = ran(command)
    assert tuple(results[0][command]) == expected
    assert "0." in expected[1]


def test_losses_metrics_and_links_compute_on_numpy() -> None:
    """All contracts of backends, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/backends"],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": "numpy"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_what_needs_tensorflow_says_what_to_install(results: Any) -> None:
    *_, (status, text), errors = results
    assert (status, text.strip()) == (2, NEEDED)
    assert errors == [f"tfrank_sel{package}.{name}: {NEEDED}" for package, name in MODELS]
