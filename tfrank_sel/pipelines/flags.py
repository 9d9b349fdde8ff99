"""Options that the commands of the pipelines share."""

from typing import Annotated, TypeAlias

import typer

Epochs: TypeAlias = Annotated[int, typer.Option(min=1, help="Maximum number of epochs.")]
Patience: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Epochs without improvement before training stops.")
]
BatchSize: TypeAlias = Annotated[int, typer.Option(min=1, help="Lists in a batch.")]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
BlessMetric: TypeAlias = Annotated[str, typer.Option(help="The metric that decides.")]
BlessMargin: TypeAlias = Annotated[
    float, typer.Option(min=0.0, help="Maximum allowed drop below the baseline.")
]
BlessSliceMargin: TypeAlias = Annotated[
    float, typer.Option(min=0.0, help="The same on a slice of 30 queries or more.")
]
BlessMinValue: TypeAlias = Annotated[float, typer.Option(help="Minimum value of the metric.")]
BlessMinQueries: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Minimum number of queries to evaluate on.")
]
