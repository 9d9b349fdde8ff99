import sys

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    StandardOptions,
)
from apache_beam.utils import interactive_utils
from tensorflow_metadata.proto.v0 import schema_pb2

from tests.data import sets
from tfrank_sel import data, models
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.lists import InputError
from tfrank_sel.features import Vector
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import schema, statistics
from tfrank_sel.pipelines.configuration import ConfigurationError
from tfrank_sel.pipelines.evaluation import evaluation, slices
from tfrank_sel.pipelines.ingestion import ingest, shards, tally
from tfrank_sel.pipelines.ingestion.inputs import Source
from tfrank_sel.pipelines.ingestion.stored import PackedLists

SPEC = data.FeatureSpec(6)
NUMBERS = {"features": Vector(size=6)}


def test_options_reach_the_runner_of_their_kind():
    flink = runners.pipeline_options("Flink", ["--flink_master=host:8081", "--parallelism=4"])
    assert flink.view_as(StandardOptions).runner == "FlinkRunner"
    assert flink.view_as(FlinkRunnerOptions).flink_master == "host:8081"
    assert type(beam.Pipeline(options=flink).runner).__name__ == "FlinkRunner"
    spark = runners.pipeline_options("SparkRunner", ["--spark_rest_url=http://host:6066"])
    assert type(beam.Pipeline(options=spark).runner).__name__ == "SparkRunner"
    cloud = runners.pipeline_options("Dataflow", ["--project=p", "--region=r"])
    assert cloud.view_as(GoogleCloudOptions).region == "r"
    assert runners.pipeline_options().view_as(StandardOptions).runner == "DirectRunner"


@pytest.mark.parametrize(
    ("runner", "arguments", "reason"),
    [
        ("Dask", [], "SparkRunner, DataflowRunner, PortableRunner. Received: 'Dask'"),
        ("Flink", ["--flink_mastr=h"], "options of Beam. Received: --flink_mastr"),
    ],
)
def test_what_beam_would_pass_over_is_refused(runner, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        runners.pipeline_options(runner, arguments)


@pytest.mark.parametrize(
    ("runner", "arguments", "reason"),
    [
        ("Portable", [], "must be HOST:PORT of a running job server. Received: None"),
        ("Flink", ["--job_endpoint=127.0.0.1:1"], "Received: '127.0.0.1:1': .* refused"),
    ],
)
def test_a_job_server_must_listen_once_a_pipeline_is_made(runner, arguments, reason):
    options = runners.pipeline_options(runner, arguments)
    with pytest.raises(ConfigurationError, match=reason):
        runners.pipeline(options)


def test_a_pipeline_runs_in_a_notebook_whose_labels_fail(monkeypatch):
    monkeypatch.setattr(interactive_utils, "is_in_ipython", lambda: True)
    name = "apache_beam.runners.interactive.interactive_environment"
    monkeypatch.setitem(sys.modules, name, None)
    with runners.pipeline() as pipeline:
        assert pipeline | beam.Create([1])


def test_a_step_runs_with_the_workers_that_it_is_told(tmp_path):
    options = runners.pipeline_options(
        "Direct", ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    )
    assert options.view_as(DirectOptions).direct_num_workers == 2
    lists = sets.made()
    sets.write_letor(tmp_path, lists)
    names = ("1.txt.gz", "2.txt")
    inputs = ingest.Inputs([Source(str(tmp_path / name), "train") for name in names])
    done = ingest.ingest(
        inputs, Schema({"features": Vector(size=6)}), tmp_path / "out", options=options
    )
    found = statistics.summarise(done.shards, SPEC, tmp_path, options=options)["train"]
    assert done.report["splits"]["train"]["lists"] == found.lists == len(lists)
    assert found.items == sum(len(one.labels) for one in lists)


def test_what_a_step_does_can_be_sent_to_a_worker():
    model = models.ListScorer([0.0] * 6, [1.0] * 6, [4])
    model.build((None, None, 6))
    rules = schema._Rules.of(schema_pb2.Schema(), SPEC, NUMBERS)
    lists = PackedLists(["lists"], SPEC, {"age": True})
    for step in (
        ingest._Store(SPEC, sets.SHARES),
        shards.WriteFiles("folder", 1),
        tally.Repeated(),
        statistics.Summary(lists.parse, NUMBERS),
        schema._Outside(SPEC, NUMBERS, rules),
        slices.Surveyor(lists),
        evaluation.Scored(model, model, lists, 0, "linear", True, []),
    ):
        assert type(pickler.loads(pickler.dumps(step))) is type(step)


def test_an_error_of_input_names_no_step_of_beam():
    def refuse(path):
        raise InputError(path, "must be whole. Received: a half")

    told = pytest.raises(InputError, match=r"^x\.txt: must be whole\. Received: a half$")
    with told, runners.pipeline() as pipeline:
        pipeline | beam.Create(["x.txt"]) | beam.Map(refuse)
