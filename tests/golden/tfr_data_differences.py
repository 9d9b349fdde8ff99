"""Where our reading of lists means to differ from that of tensorflow-ranking, and why.

`python -m tests.golden.tfr_data_differences` prints the table for the README.
"""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.references import parsing

Case = dict[str, Any]

NAMES = {
    "ELWC": "ELWC",
    "EIE": "EIE",
    "SEQ": "SequenceExample",
    "TF_EXAMPLE": "tf.Example",
}


class Difference(NamedTuple):
    """An intended difference.

    Attributes:
        formats: The formats that it is about.
        scenario: Where they differ, in words.
        reason: What tensorflow-ranking does there, and what we do.
        where: Tells the cases of these formats that it is about.
        of: The name of what differs; None for all that a case asks for.
    """

    formats: tuple[str, ...]
    scenario: str
    reason: str
    where: Callable[[Case], bool]
    of: str | None = None


def stored(case: Case) -> list[parsing.StoredList]:
    """The lists of a case, as they stand in its records."""
    kind = "ELWC" if case["format"] == "DATASET" else case["format"]
    names = list(case["example_feature_spec"])
    return [parsing.read(kind, base64.b64decode(x), names) for x in case["records_b64"]]


def sizes(case: Case) -> list[int]:
    return [len(x.items) for x in stored(case)]


def has_padding(case: Case) -> bool:
    width = case["options"].get("list_size") or max(sizes(case))
    return any(size < width for size in sizes(case))


def required(case: Case) -> list[str]:
    """The features that an item must have."""
    spec = case["example_feature_spec"]
    return [n for n, f in spec.items() if f["kind"] == "FixedLen" and f["default"] is None]


def is_complete(case: Case) -> bool:
    """Whether every item has what it must have."""
    return all(item.get(name) for x in stored(case) for item in x.items for name in required(case))


def defaults(case: Case) -> list[Any]:
    """The defaults of the features of items."""
    return [f.get("default") for f in case["example_feature_spec"].values()]


DIFFERENCES = [
    Difference(
        ("ELWC", "EIE"),
        "a `FixedLenFeature` without default, and padding",
        "Padding is parsed as empty examples, so that it is an error. Here only items are parsed, "
        "and padding is 0 or what `padding` says.",
        lambda case: bool(required(case)) and has_padding(case) and is_complete(case),
    ),
    Difference(
        ("SEQ",),
        "an item that lacks a `FixedLenFeature` without default",
        "It is taken for 0. Here it is an error, as in the other formats.",
        lambda case: bool(required(case)) and not is_complete(case),
    ),
    Difference(
        ("SEQ",),
        "a default of several values",
        "It is an error. Here it is the default.",
        lambda case: any(isinstance(x, list) and len(x) > 1 and any(x) for x in defaults(case)),
    ),
    Difference(
        ("ELWC",),
        "a batch of empty lists only, without `list_size`",
        "Features have a list size of 1 and the mask one of 0. Here all have 0.",
        lambda case: not any(sizes(case)) and not case["options"].get("list_size"),
    ),
    Difference(
        ("EIE",),
        "an example without `serialized_context`",
        "It is an error. Here the query has no features, as in an ELWC without context.",
        lambda case: any(
            not parsing.example(base64.b64decode(x)).get("serialized_context")
            for x in case["records_b64"]
        ),
    ),
    Difference(
        ("TF_EXAMPLE",),
        "no features of the query",
        "It is an error. Here it is none, as in the other formats.",
        lambda case: not case["context_feature_spec"],
    ),
    Difference(
        ("SEQ", "TF_EXAMPLE"),
        "the sizes",
        "They are int64 or float32. Here they are int32 in all formats.",
        lambda case: "size_feature_name" in case["options"],
        of="size",
    ),
    Difference(
        ("SEQ",),
        "shuffling",
        "It is an error. Here it is done as in the other formats.",
        lambda case: case["options"].get("shuffle_examples", False),
    ),
    Difference(
        ("ELWC", "EIE", "SEQ"),
        "a `list_size` of 0 or less",
        "It is taken for None. Here it is an error.",
        lambda case: case["options"].get("list_size", 1) <= 0,
    ),
]


def of_case(case: Case) -> list[Difference]:
    """The intended differences of a case."""
    return [d for d in DIFFERENCES if case["format"] in d.formats and d.where(case)]


def table() -> str:
    """The table of all differences in markdown."""
    lines = ["| format | where | difference |", "|---|---|---|"]
    for difference in DIFFERENCES:
        names = ", ".join(NAMES[name] for name in difference.formats)
        lines.append(f"| {names} | {difference.scenario} | {difference.reason} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
