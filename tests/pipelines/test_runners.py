import functools
import importlib.util
import pathlib
import re
import sys

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    StandardOptions,
)
from apache_beam.utils import interactive_utils
from tensorflow_metadata.proto.v0 import schema_pb2

import tfrank_sel
from tests.data import sets
from tests.pipelines.test_statistics import assert_alike
from tfrank_sel import data, models
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.rejections import InputError
from tfrank_sel.features import Vector
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import schema, statistics
from tfrank_sel.pipelines.configuration import Configuration, ConfigurationError
from tfrank_sel.pipelines.evaluation import evaluation, slices
from tfrank_sel.pipelines.ingestion import ingest, ingest_counts, parallel, reading, stored_lists
from tfrank_sel.pipelines.ingestion.inputs import Source
from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists
from tfrank_sel.pipelines.runners import beams

SPEC = data.FeatureSpec(6)
NUMBERS = {"features": Vector(size=6)}


def test_options_reach_the_runner_of_their_kind():
    flink = beams.pipeline_options("Flink", ["--flink_master=host:8081", "--parallelism=4"])
    assert flink.view_as(StandardOptions).runner == "FlinkRunner"
    assert flink.view_as(FlinkRunnerOptions).flink_master == "host:8081"
    assert type(beam.Pipeline(options=flink).runner).__name__ == "FlinkRunner"
    spark = beams.pipeline_options("SparkRunner", ["--spark_rest_url=http://host:6066"])
    assert type(beam.Pipeline(options=spark).runner).__name__ == "SparkRunner"
    cloud = beams.pipeline_options("Dataflow", ["--project=p", "--region=r"])
    assert cloud.view_as(GoogleCloudOptions).region == "r"
    assert beams.pipeline_options().view_as(StandardOptions).runner == "DirectRunner"


@pytest.mark.parametrize(
    ("runner", "arguments", "reason"),
    [
        ("Dask", [], "SparkRunner, DataflowRunner, PortableRunner. Received: 'Dask'"),
        ("Flink", ["--flink_mastr=h"], "options of Beam. Received: --flink_mastr"),
    ],
)
def test_what_beam_would_pass_over_is_refused(runner, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        beams.pipeline_options(runner, arguments)


@pytest.mark.parametrize(
    ("runner", "arguments", "reason"),
    [
        ("Portable", [], "must be HOST:PORT of a running job server. Received: None"),
        ("Flink", ["--job_endpoint=127.0.0.1:1"], "Received: '127.0.0.1:1': .* refused"),
    ],
)
def test_a_job_server_must_listen_once_a_pipeline_is_made(runner, arguments, reason):
    options = beams.pipeline_options(runner, arguments)
    with pytest.raises(ConfigurationError, match=reason):
        beams.pipeline(options)


def test_a_pipeline_runs_in_a_notebook_whose_labels_fail(monkeypatch):
    monkeypatch.setattr(interactive_utils, "is_in_ipython", lambda: True)
    name = "apache_beam.runners.interactive.interactive_environment"
    monkeypatch.setitem(sys.modules, name, None)
    with beams.pipeline() as pipeline:
        assert pipeline | beam.Create([1])


def test_only_what_runs_on_beam_imports_it():
    own = {"beams", "parallel"}
    for path in pathlib.Path(tfrank_sel.__file__).parent.rglob("*.py"):
        if path.stem not in own and path.parent.name != "tfx":
            found = re.findall(
                r"^(?:from|import) .*\b(apache_beam|beams|parallel)\b", path.read_text(), re.M
            )
            assert not found, path


@pytest.mark.parametrize(
    ("section", "key"), [({"runner": "Flink"}, "runner"), ({"options": ["--x=1"]}, "options")]
)
def test_a_runner_without_beam_names_the_extra(monkeypatch, section, key):
    find = importlib.util.find_spec
    absent = lambda name, *rest: None if name == "apache_beam" else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(ConfigurationError) as error:
        runners.beam_options(Configuration(beam=section))
    reason = "needs apache_beam: pip install 'tfrank_sel[beam]'. Received: no apache_beam"
    assert str(error.value) == f"beam.{key} {reason}"


@pytest.mark.long
def test_workers_and_this_process_find_the_same(tmp_path):
    options = beams.pipeline_options(
        "Direct", ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    )
    assert options.view_as(DirectOptions).direct_num_workers == 2
    lists = sets.made()
    sets.write_letor(tmp_path, lists)
    names = ("1.txt.gz", "2.txt")
    inputs = ingest.Inputs([Source(str(tmp_path / name), "train") for name in names])
    rule = schema_pb2.Feature(name="features[1]", float_domain={"min": 0.0, "max": 0.1})
    rules = schema_pb2.Schema(feature=[rule])
    found = []
    for place, how in ((tmp_path / "here", None), (tmp_path / "there", options)):
        done = ingest.ingest(inputs, Schema(NUMBERS), place, options=how)
        one = statistics.summarise(done.shards, SPEC, place, options=how)["train"]
        broken = schema.validate(done.shards, rules, SPEC, place, options=how)
        records = sorted(x.numpy() for x in tf.data.TFRecordDataset(done.shards["train"]))
        found.append((done.report, records, broken))
        assert done.report["splits"]["train"]["lists"] == one.lists == len(lists)
        found.append(one)
    assert found[0] == found[2]
    assert found[0][2]["train"][0].rule == "range"
    assert_alike(found[1], found[3])


def test_what_a_step_does_can_be_sent_to_a_worker():
    model = models.ListScorer([0.0] * 6, [1.0] * 6, [4])
    model.build((None, None, 6))
    rules = schema._Rules.of(schema_pb2.Schema(), SPEC, NUMBERS)
    inputs = ingest.Inputs([Source("a.csv", "train")])
    store = functools.partial(reading.Store, SPEC, sets.SHARES)
    lists = StoredLists(["lists"], SPEC, {"age": True})
    for step in (
        reading.PartReader(inputs.reader, Schema(NUMBERS), False),
        parallel._Store(store),
        parallel.WriteFiles("folder", 1),
        beams.Combine(ingest_counts.Repeated()),
        beams.Combine(
            statistics.Summary(functools.partial(stored_lists.items, spec=SPEC), NUMBERS)
        ),
        beams.Combine(schema._Outside(SPEC, NUMBERS, rules)),
        beams.Combine(slices.Surveyor(lists)),
        beams.Combine(runners.Combiner()),
        beams.Apply(evaluation.Scored(model, model, lists, 0, "linear", True, [])),
    ):
        assert type(pickler.loads(pickler.dumps(step))) is type(step)


def test_an_error_of_input_names_no_step_of_beam():
    def refuse(path):
        raise InputError(path, "must be whole. Received: a half")

    told = pytest.raises(InputError, match=r"^x\.txt: must be whole\. Received: a half$")
    with told, beams.pipeline() as pipeline:
        pipeline | beam.Create(["x.txt"]) | beam.Map(refuse)
