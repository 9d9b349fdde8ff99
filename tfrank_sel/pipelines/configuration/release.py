"""Sections of the configuration on releases: `blessing` and `serving`."""

import math
from typing import Literal

from pydantic import Field

from tfrank_sel.pipelines.configuration.section import Section


class Blessing(Section):
    """Rules that a model must meet to be published."""

    metric: Literal["NDCG@1", "NDCG@5", "NDCG@10", "MRR"] = Field(
        default="NDCG@10", description="Metric for the comparison."
    )
    margin: float = Field(
        default=0.02,
        ge=0.0,
        allow_inf_nan=True,
        description="Maximum allowed drop below the baseline.",
    )
    slice_margin: float = Field(
        default=0.1,
        ge=0.0,
        allow_inf_nan=True,
        description="Maximum allowed drop below the baseline on a slice.",
    )
    min_slice_queries: int = Field(
        default=30, ge=1, description="Minimum number of queries for a slice to be checked."
    )
    min_value: float = Field(default=0.0, description="Minimum value of the metric.")
    max_equal_scores: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="Maximum share of lists to all items of which the model gives the same score.",
    )
    min_queries: int = Field(
        default=1, ge=1, description="Minimum number of queries to evaluate on."
    )
    max_milliseconds: float = Field(
        default=math.inf,
        gt=0.0,
        allow_inf_nan=True,
        description="Maximum time to score a list, at the 99th percentile.",
    )
    champion: str | Literal[False] | None = Field(
        default=None,
        examples=["models/ranker/3"],
        description="SavedModel, by folder or URL, that must not be better by more than the "
        "margins; if unset, the version that is served; false for none.",
    )


class Export(Section):
    """The exported model."""

    onnx: bool = Field(
        default=False, description="Write `model.onnx`, too; needs the extra `onnx`."
    )


class Serving(Section):
    """The published model."""

    model_name: str = Field(
        default="ranker",
        pattern=r"^[A-Za-z0-9][\w.-]*$",
        description="Name to serve the model under; letters, digits and `._-`.",
    )
    folder: str | None = Field(
        default=None,
        examples=["models"],
        description=(
            "Folder or URL of all served models; if unset, `serving` in the folder of the run."
        ),
    )
    version: int | None = Field(
        default=None,
        ge=0,
        examples=[7],
        description="Version of the model; if unset, one more than the latest.",
    )
    canary: bool = Field(
        default=False,
        description="Publish with the label `canary`; the champion keeps the label `stable`.",
    )
    recalibration: Literal["isotonic", "platt"] | None = Field(
        default=None,
        examples=["isotonic"],
        description="Function that turns scores into expected labels, fitted on the validation "
        'split: "isotonic" or "platt"; the order of items stays the same. None if unset.',
    )
    description: str | None = Field(
        default=None,
        examples=["Ranks the offers of a search page."],
        description="Intended use of the model, for its model card.",
    )
