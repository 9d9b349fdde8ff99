"""Definition of the pipeline: TFX's components, and our own for ranking lists."""

import json
from collections.abc import Sequence

from tfx import v1 as tfx
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from tfrank_sel.data.formats import Columns
from tfrank_sel.pipelines import ConfigurationError, Gates, Rules
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.tfx.evaluation import Evaluator
from tfrank_sel.pipelines.tfx.infra_validation import InfraValidator
from tfrank_sel.pipelines.tfx.scaling import Scaling

# Hash buckets of queries, out of ten, for training, early stopping and evaluation.
SPLITS = {"train": 8, "eval": 1, "test": 1}


def pipeline(
    data: str | tfx.dsl.experimental.RuntimeParameter,
    root: str,
    serving: str,
    settings: Settings,
    rules: Rules,
    candidate: Candidate,
    *,
    columns: Columns | None = None,
    most_milliseconds: float = 1000.0,
    warm_start: bool = False,
    gates: Gates | None = None,
    name: str = "ranker",
    metadata: str | None = None,
    beam_options: Sequence[str] = (),
) -> tfx.dsl.Pipeline:
    """Composes the pipeline.

    ExampleGen splits the lists by a hash of the query. Statistics, schema and validation use the
    features by name. The scaling is part of the model, so there is no Transform to repeat at
    serving time.

    Args:
        data: Folder of TFRecord files of `SequenceExample`.
        root: Folder of the artefacts.
        serving: Folder to push to: each model that passes becomes a version there.
        settings: Settings of training.
        rules: Rules that a model must meet to be pushed. The champion is the latest blessed model.
        candidate: The candidate to train. Its loss and model must be importable in Trainer.
        columns: Names of the parts of a list, and types of its features; by default the features
            are all numbers.
        most_milliseconds: Maximum time for a server to rank a list, at the 99th percentile.
        warm_start: Whether training starts from the weights of the champion, if there is one.
        gates: Gates of the data, except `range` and `domain`, which ExampleValidator reports.
            `eval` and `test` are compared with `train`, and `train` with the training data of the
            champion.
        name: Name of the pipeline.
        metadata: File of the metadata store; None if the platform has its own.
        beam_options: Options of Beam, such as `--runner=DataflowRunner`.

    Returns:
        The pipeline, for one of TFX's runners.

    Raises:
        ValueError: If the loss or the function of the candidate cannot be imported by name, or the
            action of `range` or `domain` is "fail".
    """
    gates = gates or Gates()
    _check(gates)
    columns = columns or Columns()
    columns_config = json.dumps(columns.get_config())
    examples = tfx.components.ImportExampleGen(
        input_base=data,
        output_config=example_gen_pb2.Output(
            split_config=example_gen_pb2.SplitConfig(
                splits=[
                    example_gen_pb2.SplitConfig.Split(name=split, hash_buckets=buckets)
                    for split, buckets in SPLITS.items()
                ],
                partition_feature_name=columns.query,
            )
        ),
        payload_format=example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE,
    ).with_id("ExampleGen")
    lists = examples.outputs["examples"]
    statistics = tfx.components.StatisticsGen(examples=lists)
    inferred = tfx.components.SchemaGen(
        statistics=statistics.outputs["statistics"], exclude_splits=["eval", "test"]
    )
    schema = inferred.outputs["schema"]
    validator = tfx.components.ExampleValidator(
        statistics=statistics.outputs["statistics"], schema=schema, exclude_splits=["train"]
    )
    blessed = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=standard_artifacts.ModelBlessing),
    ).with_id("LatestBlessedModel")
    champion = blessed.outputs["model"]
    scaling = Scaling(
        examples=lists,
        schema=schema,
        columns=columns_config,
        champion=champion,
        warm_start=int(warm_start),
        gates=gates.model_dump_json(),
    )
    trainer = tfx.components.Trainer(
        run_fn="tfrank_sel.pipelines.tfx.training.run_fn",
        examples=lists,
        schema=schema,
        hyperparameters=scaling.outputs["scaling"],
        base_model=champion if warm_start else None,
        custom_config={
            "settings": settings.model_dump(),
            "candidate": candidate.get_config(),
            "columns": columns_config,  # not as a dict, whose keys TFX would sort
        },
    )
    model = trainer.outputs["model"]
    evaluator = Evaluator(
        examples=lists,
        schema=schema,
        model=model,
        baseline_model=champion,
        columns=columns_config,
        rules=json.dumps(rules.model_dump()),
        seed=settings.seed,
        gain=json.dumps(settings.gain),
    )
    infra_validator = InfraValidator(
        model=model,
        examples=lists,
        schema=schema,
        columns=columns_config,
        most_milliseconds=most_milliseconds,
    )
    pusher = tfx.components.Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=infra_validator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=serving)
        ),
    )
    connection = metadata and tfx.orchestration.metadata.sqlite_metadata_connection_config(metadata)
    return tfx.dsl.Pipeline(
        pipeline_name=name,
        pipeline_root=root,
        components=[
            examples,
            statistics,
            inferred,
            validator,
            blessed,
            scaling,
            trainer,
            evaluator,
            infra_validator,
            pusher,
        ],
        metadata_connection_config=connection,
        beam_pipeline_args=list(beam_options),
    )


def _check(gates: Gates) -> None:
    """Raises an error for a "fail" gate that no component of the pipeline checks."""
    for rule in ("range", "domain"):
        if any(gates.of(rule, name).action == "fail" for name in ("", *gates.features)):
            reason = "must not be 'fail': ExampleValidator only reports these anomalies"
            raise ConfigurationError(f"gates.{rule}", reason)
