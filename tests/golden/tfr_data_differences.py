"""Intended differences from tensorflow-ranking in reading lists, with reasons.

`python -m tests.golden.tfr_data_differences` prints the table of `docs/migration.md`.
"""

import base64

from tests.golden import differences
from tests.golden.differences import Difference
from tests.golden.vectors import Case
from tests.references import parsing

NAMES = {
    "ELWC": "ELWC",
    "EIE": "EIE",
    "SEQ": "SequenceExample",
    "TF_EXAMPLE": "tf.Example",
}


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


def of_kind(case: Case, kind: str) -> dict[str, Case]:
    """The features of items of a kind."""
    return {n: f for n, f in case["example_feature_spec"].items() if f["kind"] == kind}


def is_truncated(case: Case) -> bool:
    return max(sizes(case)) > case["options"].get("list_size", max(sizes(case)))


def ends_without_fixed(case: Case) -> bool:
    """Whether a list has more items than values of its fixed-length features, if it has such."""
    fixed = of_kind(case, "FixedLen")
    return bool(fixed) and any(x.items and not fixed.keys() & x.items[-1] for x in stored(case))


def ends_without_values(case: Case) -> bool:
    """Whether all features are sparse, and a list is empty or ends with an item without values."""
    is_sparse = len(of_kind(case, "VarLen")) == len(case["example_feature_spec"])
    return is_sparse and any(not x.items or not any(x.items[-1].values()) for x in stored(case))


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
        "an item without values amid the list of a `FixedLenFeature` with a default",
        "It is an error. Here it is the default, as in the other formats.",
        lambda case: any(
            item.get(name) == []
            for x in stored(case)
            for item in x.items
            for name in of_kind(case, "FixedLen")
        ),
    ),
    Difference(
        ("SEQ",),
        "a default of several values, or of a string in a list",
        "It is an error. Here it is the default.",
        lambda case: any(
            isinstance(f["default"], list) and (len(f["default"]) > 1 or f["dtype"] == "string")
            for f in of_kind(case, "FixedLen").values()
        ),
    ),
    Difference(
        ("SEQ",),
        "no features but `RaggedFeature`",
        "It is an error. Here they are read.",
        lambda case: len(of_kind(case, "Ragged")) == len(case["example_feature_spec"]),
    ),
    Difference(
        ("SEQ",),
        "a `RaggedFeature`, and lists longer and shorter than `list_size`",
        "The rows of padding are left out. Here they are empty, as in the other formats.",
        lambda case: bool(of_kind(case, "Ragged")) and is_truncated(case) and has_padding(case),
    ),
    Difference(
        ("SEQ",),
        "a `VarLenFeature` and a list longer than `list_size`",
        "Its width counts the items that are truncated. Here it does not, as in the other formats.",
        lambda case: bool(of_kind(case, "VarLen")) and is_truncated(case),
    ),
    Difference(
        ("SEQ",),
        "feature lists of several lengths",
        "If there is a `FixedLenFeature`, the others do not count for mask and sizes. Here all do.",
        ends_without_fixed,
        of=("mask", "size"),
    ),
    Difference(
        ("SEQ",),
        "no features but `VarLenFeature`, and a list without items or with a last item without "
        "values",
        "The mask leaves out the last item, and has one item for the empty list. Here it has the "
        "items of the list.",
        ends_without_values,
        of=("mask", "size"),
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
        ("TF_EXAMPLE",),
        "no features of the items",
        "They are read, as items without features. Here it is an error, as in the other formats.",
        lambda case: not case["example_feature_spec"],
    ),
    Difference(
        ("SEQ", "TF_EXAMPLE"),
        "the sizes",
        "They are int64 or float32. Here they are int32 in all formats.",
        lambda case: "size_feature_name" in case["options"],
        of=("size",),
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


def of(case: Case) -> list[Difference]:
    """The intended differences of a case."""
    return [d for d in DIFFERENCES if case["format"] in d.about and d.where(case)]


def table() -> str:
    """The table of all differences in markdown."""

    def named(formats: tuple[str, ...]) -> str:
        return ", ".join(NAMES[name] for name in formats)

    return differences.table("format", DIFFERENCES, named)


if __name__ == "__main__":
    print(table())
