"""Gates: a curated schema, actions by rule and feature, and what they do to a run."""

import gzip
import json
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet
from rich.console import Console

from tests import refusals
from tests.pipelines.test_configuration import with_set
from tests.pipelines.test_main import invoke, small_set
from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.features import Category, Number, Set, Vector
from tfrank_sel.pipelines.analysis import schema, statistics
from tfrank_sel.pipelines.configuration import (
    Configuration,
    ConfigurationError,
    load,
    text,
)
from tfrank_sel.pipelines.configuration.data import Gate, Gates
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.run import run
from tfrank_sel.pipelines.run.results import Run

FEATURES = {
    "price": Number(),
    "shape": Vector(size=2),
    "brand": Category(),
    "tags": Set(max_values=2),
}
SPEC = data.FeatureSpec(3, num_texts=3)
ITEMS = 40


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Lists of two items: `price` is 1 to 40, and missing for the first four."""
    path = str(tmp_path_factory.mktemp("records") / "train")
    with tf.io.TFRecordWriter(path) as writer:
        for first in range(1, ITEMS, 2):
            price = np.array([first, first + 1.0])
            numbers = np.column_stack([np.where(price < 5, np.nan, price), price, -price])
            texts = [["a", "x", ""], ["b" if first > 20 else "", "x", "y"]]
            writer.write(packed.serialize(numbers, SPEC, labels=[0.0, 2.0], texts=texts))
    return [path]


@pytest.fixture(scope="module")
def inferred(tmp_path_factory, shards):
    """The schema that a run writes, as text; its own lists break nothing of it."""
    folder = tmp_path_factory.mktemp("schema")
    found = statistics.summarise({"train": shards}, SPEC, folder, features=FEATURES)["train"]
    schema.infer(found, SPEC, folder / "schema.pbtxt")
    text = (folder / "schema.pbtxt").read_text()
    assert validated(folder, shards, text) == []
    return text


def feature(name, more):
    return f'feature {{ name: "{name}" {more} }}\n'


def validated(folder, shards, text, **options):
    path = folder / "schema.pbtxt"
    path.write_text(text)
    return schema.validate(
        {"train": shards},
        schema.load(path),
        SPEC,
        folder,
        features=FEATURES,
        of="the schema",
        **options,
    )["train"]


def without(text, name):
    """A schema without a feature."""
    head, *parts = text.split("feature {")
    return "feature {".join([head, *(x for x in parts if f'name: "{name}"' not in x)])


@pytest.mark.parametrize(("edits", "rule", "name", "line"), refusals.of("schema"))
def test_a_schema_that_is_edited_names_what_breaks_it(
    tmp_path, shards, inferred, edits, rule, name, line
):
    known = 'string_domain { name: "known" value: "x" value: "z" }\n'
    for edited, more in edits.items():
        inferred = without(inferred, edited) + (feature(edited, more) if more else "")
    fails = Gates(features={name: {rule: "fail"}})
    [anomaly] = validated(tmp_path, shards, inferred + known, gates=fails)
    assert (anomaly.rule, anomaly.feature, anomaly.action) == (rule, name, "fail")
    assert str(anomaly).startswith(f"{name}: expected {line}")


def test_a_share_of_items_may_be_outside(tmp_path, shards, inferred):
    narrow = without(inferred, "price") + feature("price", "type: FLOAT float_domain { min: 9 }")
    assert validated(tmp_path, shards, narrow, gates=Gates(range="off")) == []
    at_most = [Gates(range={"threshold": share}) for share in (0.1, 0.09)]
    assert validated(tmp_path, shards, narrow, gates=at_most[0]) == []
    [anomaly] = validated(tmp_path, shards, narrow, gates=at_most[1])
    assert anomaly.distance == 4 / ITEMS
    assert anomaly.action == "warn"


def test_values_outside_of_the_range_of_like_lists_are_chance(tmp_path):
    rng, names = np.random.default_rng(0), [f"x{i}" for i in range(200)]
    spec, features = data.FeatureSpec(200), dict.fromkeys(names, Number())
    shards = {}
    for split, scale in (("train", 1.0), ("test", 1.0), ("wide", 2.0)):
        shards[split] = [str(tmp_path / split)]
        with tf.io.TFRecordWriter(*shards[split]) as writer:
            for query in rng.normal(size=[60, 1, 200]):  # the items of a list are alike
                items = scale * (query + 0.1 * rng.normal(size=[5, 200]))
                writer.write(packed.serialize(items, spec, labels=[0.0] * 4 + [1.0]))
    found = statistics.summarise({"train": shards["train"]}, spec, tmp_path, features=features)
    path = tmp_path / "schema.pbtxt"
    inferred = schema.infer(found["train"], spec, path)
    broken = schema.validate(
        shards, inferred, spec, tmp_path, features=features, inferred_from=found["train"]
    )
    assert broken["train"] == broken["test"] == []
    assert len(broken["wide"]) > 5


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("feature { nam: 1 }", 'Message type "tensorflow.metadata.v0.Feature" has no field'),
        ("", "no feature"),
        (feature("a", 'domain: "b"'), "no string_domain 'b', which 'a' names"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_schema_is_named(tmp_path, written, reason):
    path = tmp_path / "schema.pbtxt"
    if written is not None:
        path.write_text(written)
    with pytest.raises(data.InputError) as caught:
        schema.load(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: expected a schema of tensorflow-metadata as text. Received: ")
    assert reason in line
    with pytest.raises(data.InputError, match=r"schema\.pbtxt: expected a schema"):
        _ = Run(
            Job(with_set(f"data.schema={path}"), None, tmp_path), Progress(Console())
        ).curated_schema


def test_gates_of_a_feature_come_before_those_of_all():
    sets = ["gates.missing.threshold=0.3", "gates.zero=off", "gates.features.price.missing=fail"]
    sets += ["gates.features.shape={range = {threshold = 0.5}}", "gates.range=fail"]
    gates = with_set(*sets).gates
    assert gates.of("missing", "price") == Gate("fail", 0.3)
    assert gates.of("missing", "brand") == Gate("warn", 0.3)
    assert gates.of("zero", "price") == Gate("off")
    assert gates.of("range", "shape[2]") == Gate("fail", 0.5)  # a column of the vector
    assert gates.of("range", "price") == Gate("fail", 0.0)
    assert load().gates == Gates()


def test_gates_are_written_as_they_are_read(tmp_path):
    configuration = with_set("gates.zero=fail", "gates.features.'a b'={texts = 'off'}")
    path = tmp_path / "run.toml"
    path.write_text(text(configuration))
    assert load(path).model_dump() == configuration.model_dump()
    path.write_text("[gates]\nmissing = 'fail'\n[gates.features.price]\nzero = 'fail'\n")
    gates = load(path).gates
    assert gates.of("missing", "price") == Gate("fail", 0.1)
    assert gates.of("zero", "price") == Gate("fail")


def test_the_guide_shows_gates_and_a_schema(tmp_path, shards):
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "daily.md").read_text()
    told = guide.partition("## Data gates")[2]
    path = tmp_path / "run.toml"
    path.write_text(told.partition("```toml\n")[2].partition("```")[0])
    gates = load(path).gates
    assert gates.of("missing", "price") == Gate("fail", 0.3)
    for rule in {*Gates.model_fields} - {"features"}:
        gate = Gates().of(rule)
        [row] = [line for line in told.splitlines() if line.startswith("|") and f"`{rule}`" in line]
        shown = row.split("|")[3].strip()
        assert shown == ("" if gate.threshold is None else f"{gate.threshold:g}"), row
    found = validated(tmp_path, shards, told.partition("```text\n")[2].partition("```")[0])
    assert [(x.rule, x.feature) for x in found if x.feature in ("price", "device")] == [
        ("absent_feature", "device")
    ]


@pytest.mark.parametrize(("set", "line"), refusals.of("gates"))
def test_a_gate_that_is_not_allowed_is_one_line(set, line):
    with pytest.raises(ConfigurationError) as caught:
        with_set(set)
    assert str(caught.value) == f"--set {set}: {line}"


@pytest.fixture(scope="module")
def first_day(tmp_path_factory):
    """What a run leaves of its data."""
    folder = tmp_path_factory.mktemp("days")
    data = {split: str(path) for split, path in small_set(folder).items()}
    configuration = Configuration.model_validate({"data": data})
    for step in ("ingest", "analyze"):
        run(configuration, folder / "1", Progress(Console(quiet=True)), only=step)
    return folder


@pytest.fixture(scope="module")
def second_day(tmp_path_factory):
    """The folder of an ingest of the same lists, whose second feature has vanished."""
    folder = tmp_path_factory.mktemp("second")
    sources = small_set(folder)
    for path in sources.values():
        lines = [
            " ".join("2:0" if word.startswith("2:") else word for word in line.split(" "))
            for line in gzip.decompress(path.read_bytes()).decode().splitlines()
        ]
        path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    configuration = Configuration.model_validate(
        {"data": {split: str(path) for split, path in sources.items()}}
    )
    run(configuration, folder / "2", Progress(Console(quiet=True)), only="ingest")
    return folder / "2"


@pytest.fixture(autouse=True)
def untrained(monkeypatch):
    """Ends a run where training begins."""

    def stop(*args, **kwargs):
        raise data.InputError("training", "begins")

    monkeypatch.setattr("tfrank_sel.training.fitting.train", stop)


ENDS = "gates.zero: train: features[2]: expected values other than 0, as in the reference. "
VANISHED = "train: 1 anomaly; features[2]"
OF_SECOND = "gates.features.'features[2]'.zero"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("sets", "status", "told", "lines"),
    [
        ([], 2, VANISHED, ["training: begins"]),
        (
            [f"{OF_SECOND}=fail"],
            3,
            VANISHED,
            [f"{ENDS}Received: 0 throughout", "nothing is trained"],
        ),
        (["gates.zero=fail", f"{OF_SECOND}=off"], 2, "train: 0 anomalies", ["training: begins"]),
    ],
)
def test_a_feature_that_vanishes_ends_the_run_where_a_gate_says_so(
    first_day, second_day, tmp_path, sets, status, told, lines
):
    options = [x for y in sets for x in ("--set", y)]
    shutil.copytree(second_day, tmp_path / "out")
    done = invoke({}, tmp_path / "out", "--reference", str(first_day / "1"), *options)
    assert done.exit_code == status, (done.output, done.exception)
    assert told in done.stdout  # whatever ends the run
    assert done.stderr.splitlines() == lines


def test_a_curated_schema_holds_for_all_splits(first_day, tmp_path):
    path = tmp_path / "mine.pbtxt"
    kept = without((first_day / "1" / "analyze" / "schema.pbtxt").read_text(), "features[1]")
    narrow = "type: FLOAT float_domain { min: 0 max: 0.5 }"
    path.write_text(kept + feature("features[1]", narrow))
    shutil.copytree(first_day / "1", tmp_path / "out")
    options = [f"data.schema={path}", "gates.range={action = 'fail', threshold = 0.01}"]
    done = invoke({}, tmp_path / "out", *(x for y in options for x in ("--set", y)))
    assert done.exit_code == 3, (done.output, done.exception)
    lines = done.stderr.splitlines()[:-1]
    begin = "features[1]: expected values from 0 to 0.5, as in the schema. Received: "
    for split in ("train", "validation", "test"):
        assert any(x.startswith(f"gates.range: {split}: {begin}") for x in lines), lines


def test_a_feature_that_no_gate_can_hold_is_refused(first_day, tmp_path):
    shutil.copytree(first_day / "1", tmp_path / "out")
    done = invoke({}, tmp_path / "out", "--set", "gates.features.price.missing=fail")
    assert done.exit_code == 2
    assert done.stderr == (
        "gates.features: must be names of features: features, features[1], features[2], "
        "features[3], relevance. Received: 'price'\n"
    )


def examined(folder, files):
    """The leaks of each split, as rule and feature, of files of rows."""
    data = {"train": [str(files[0])], "validation": [str(files[1])], "test": [str(files[2])]}
    configuration = Configuration.model_validate({"data": data})
    for step in ("ingest", "analyze"):
        run(configuration, folder / "out", Progress(Console(quiet=True)), only=step)
    found = {}
    for path in (folder / "out" / "analyze" / "anomalies").iterdir():
        rules = [(x["rule"], x["feature"]) for x in json.loads(path.read_text())]
        found[path.stem] = [x for x in rules if x[0] in ("leak", "shared_queries")]
    return found


def written(path, number, first=0):
    """Rows of lists of five items, in which `after` is known only of the items of label 1."""
    random = np.random.default_rng(number)
    labels = random.integers(0, 2, [60, 5])
    rows = {
        "query_id": np.repeat(np.arange(first, first + 60), 5),
        "relevance": labels.ravel(),
        "copy": 3.0 - 2.0 * labels.ravel(),
        "after": np.where(labels.ravel() == 1, random.random(300), np.nan),
        # of one value, as of a cart, for some of the items of label 1
        "cart": labels.ravel() * (random.random(300) < 0.7),
        "sold_out": (1 - labels.ravel()) * (random.random(300) < 0.7),
        "noisy": labels.ravel() + random.normal(0.0, 0.5, 300),
    }
    parquet.write_table(pa.table(rows), path)
    return path


def test_a_feature_that_leaks_the_label_and_queries_of_two_splits_are_told(tmp_path):
    train, validation = written(tmp_path / "a.parquet", 0), written(tmp_path / "b.parquet", 1, 100)
    found = examined(tmp_path, [train, validation, train])
    assert found["train"] == [("leak", "copy"), ("leak", "after"), ("leak", "cart")]
    assert found["validation"] == []
    assert found["test"] == [("shared_queries", "query")]
