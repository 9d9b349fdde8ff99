"""Compilation of the pipeline to the JSON of Kubeflow Pipelines and Vertex AI."""

from pathlib import Path

from tfx import v1 as tfx


def compile_to(path: Path, pipeline: tfx.dsl.Pipeline, *, image: str, data: str) -> None:
    """Writes the pipeline as a `PipelineJob` of schema 2.1.

    Args:
        path: JSON file to write.
        pipeline: The pipeline, whose folder of data is the parameter `data`.
        image: Container image for every component. It must contain TFX and this package.
        data: Default of the parameter `data`.
    """
    experimental = tfx.orchestration.experimental
    config = experimental.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=True)
    runner = experimental.KubeflowV2DagRunner(
        config, output_dir=str(path.parent), output_filename=path.name
    )
    runner.run(pipeline, parameter_values={"data": data})


def data_parameter() -> tfx.dsl.experimental.RuntimeParameter:
    """Returns the parameter `data`, which a run may set to another folder."""
    return tfx.dsl.experimental.RuntimeParameter(name="data", ptype=str)
