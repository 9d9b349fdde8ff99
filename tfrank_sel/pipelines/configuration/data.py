"""Section `data`: files and the roles of their columns."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from tfrank_sel.pipelines.configuration.section import Section

SPLITS = ("train", "validation", "test")

# a list, or a single item
Names = Annotated[list[str], BeforeValidator(lambda x: [x] if isinstance(x, str) else x)]
Share = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class Data(Section):
    """Files and the roles of their columns."""

    train: Names = Field(default=[], description="Files or globs for training.")
    validation: Names = Field(
        default=[], description="Files or globs for validation (early stopping)."
    )
    test: Names = Field(default=[], description="Files or globs for the evaluation.")
    data: Names = Field(
        default=[], description="Files or globs to divide by `split`, instead of the three above."
    )
    synthetic: bool = Field(
        default=False, description="Whether to use synthetic data, instead of files."
    )
    split: list[Share] = Field(
        default=[80.0, 10.0, 10.0],
        min_length=3,
        max_length=3,
        description="Percentages of train, validation and test, assigned by a hash of the query.",
    )
    format: str | None = Field(
        default=None,
        examples=["parquet"],
        description="Format of the files; inferred from their names if unset.",
    )
    query: str = Field(default="query_id", description="Name of the query identifier.")
    label: str = Field(default="relevance", description="Name of the relevance label.")
    doc_id: str = Field(default="doc_id", description="Name of the item identifier.")
    weight: str | None = Field(
        default=None, examples=["weight"], description="Name of the weight of an item."
    )
    list_weight: str | None = Field(
        default=None, examples=["list_weight"], description="Name of the weight of a list."
    )
    propensity: str | None = Field(
        default=None,
        examples=["propensity"],
        description="Name of the probability that the item was examined.",
    )
    slice_by: Names = Field(
        default=[],
        description="Names of columns to slice the evaluation by; they may also be features.",
    )
    adjacent: bool = Field(
        default=False,
        description="Whether the rows of a query are adjacent, so that no grouping is needed.",
    )
    num_features: int | None = Field(
        default=None,
        ge=1,
        examples=[136],
        description="Number of features of LETOR files; inferred by an extra pass if unset.",
    )
    allow_bad_lines: int = Field(
        default=0, ge=0, description="Maximum number of malformed lines, rows or records to skip."
    )
    reference: str | None = Field(
        default=None,
        examples=["runs/1"],
        description="Report drift relative to this earlier run (folder).",
    )
    continue_from: str | None = Field(
        default=None,
        examples=["runs/1"],
        description=(
            "Folder of an earlier run to continue, with its records, vocabularies and weights "
            "(warm start)."
        ),
    )
    memory: int | None = Field(
        default=None,
        ge=0,
        examples=[6],
        description="Number of earlier increments of data to keep; all if unset.",
    )
    schema_: str | None = Field(
        default=None,
        alias="schema",
        examples=["schema.pbtxt"],
        description=(
            "Schema to validate all splits against, such as an edited one of an earlier run; "
            "inferred from train if unset."
        ),
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = [x for x in SPLITS if getattr(self, x)]
        if self.data and given:
            raise ValueError(
                "must name either `data`, or `train`, `validation` and `test`. "
                f"Received: data, {', '.join(given)}"
            )
        if given and len(given) < 3:
            raise ValueError(
                "must name all of `train`, `validation` and `test`. "
                f"Received: only {', '.join(given)}"
            )
        return self

    @property
    def roles(self) -> dict[str, str]:
        """The column of each role, by its key."""
        named = ("query", "label", "doc_id", "weight", "list_weight", "propensity")
        found = {f"data.{x}": getattr(self, x) for x in named if getattr(self, x) is not None}
        return {**found, **{f"data.slice_by[{i}]": x for i, x in enumerate(self.slice_by)}}
