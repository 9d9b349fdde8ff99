"""Intended differences from the metrics of tensorflow-ranking, with reasons.

`python -m tests.golden.tfr_metric_differences` prints the table of `docs/migration.md`.
"""

from typing import Any

import tensorflow as tf

from tests.golden import differences
from tests.golden.differences import Difference
from tests.golden.vectors import Case

OVER_LISTS = (
    "MRRMetric",
    "HitsMetric",
    "PrecisionMetric",
    "RecallMetric",
    "MeanAveragePrecisionMetric",
    "NDCGMetric",
    "DCGMetric",
    "PrecisionIAMetric",
    "AlphaDCGMetric",
    "metrics_impl.BPrefMetric",
    "metrics_impl.PWAMetric",
)
DIVERSITY = ("PrecisionIAMetric", "AlphaDCGMetric")


def labels_of_lists(case: Case) -> list[list[Any]]:
    return [labels for batch in case["batches"] for labels in batch["y_true"]]


def is_padding(label: Any) -> bool:
    return max(label, default=-1.0) < 0.0 if isinstance(label, list) else label < 0.0


def is_relevant(label: Any) -> bool:
    return max(label, default=0.0) >= 1.0 if isinstance(label, list) else label > 0.0


def is_weighted(case: Case) -> bool:
    return any(isinstance(batch["sample_weight"], list) for batch in case["batches"])


DIFFERENCES = [
    Difference(
        OVER_LISTS,
        "lists of padding only",
        "They are 0 and count in the mean. Here they do not count.",
        lambda case: any(all(is_padding(y) for y in row) for row in labels_of_lists(case)),
        of=("weights",),
    ),
    Difference(
        OVER_LISTS,
        "weighted lists without a relevant item",
        "Their weight is replaced by the mean over the batch, so that a result depends on the "
        "batch size. Here they keep their own: the mean weight of their items.",
        lambda case: (
            is_weighted(case)
            and any(not any(is_relevant(y) for y in row) for row in labels_of_lists(case))
        ),
        of=("weights",),
    ),
    Difference(
        ("AlphaDCGMetric",),
        "padding among the subtopics of an item",
        "The label -1 is taken for a gain of -1, and raises the gain of later items. Here the item "
        "does not cover the subtopic.",
        lambda case: any(
            min(y, default=0.0) < 0.0 and not is_padding(y)
            for row in labels_of_lists(case)
            for y in row
        ),
    ),
    Difference(
        ("NDCGMetric", "DCGMetric"),
        "a gain of label 0 that is not 0, beside padding or an item of weight 0",
        "Padding, and an item of weight 0, gain as an item of label 0 does. "
        "Here they gain nothing.",
        lambda case: (
            case["kwargs"].get("gain_fn") == "label+1"
            and (
                any(is_padding(y) for row in labels_of_lists(case) for y in row)
                or len({len(row) for row in labels_of_lists(case)}) > 1
                or any(0.0 in tf.nest.flatten(batch["sample_weight"]) for batch in case["batches"])
            )
        ),
    ),
]


def of(case: Case) -> list[Difference]:
    """The intended differences of a case."""
    return [d for d in DIFFERENCES if case["metric"] in d.about and d.where(case)]


def table() -> str:
    """The table of all differences in markdown."""

    def named(metrics: tuple[str, ...]) -> str:
        if metrics == OVER_LISTS:
            return "all but ARP and OPA"
        return ", ".join(name.removeprefix("metrics_impl.") for name in metrics)

    return differences.table("metric of tensorflow-ranking", DIFFERENCES, named)


if __name__ == "__main__":
    print(table())
