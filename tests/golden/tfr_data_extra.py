"""More cases in the form of the recorded ones, for which tensorflow-ranking is asked itself."""

import base64
import itertools
import json
import pathlib
from typing import Any

import tensorflow as tf

from tests.golden.vectors import Case
from tfrank_sel.data import writing

Values = dict[str, list[Any]]


def feature(values: list[Any]) -> tf.train.Feature:
    if not values:
        return tf.train.Feature()
    kind = {float: "float_list", int: "int64_list", bytes: "bytes_list"}[type(values[0])]
    made = tf.train.Feature()
    getattr(made, kind).value.extend(values)
    return made


def example(values: Values) -> bytes:
    features = tf.train.Features(feature={name: feature(v) for name, v in values.items()})
    return tf.train.Example(features=features).SerializeToString(deterministic=True)


def elwc(context: Values, items: list[Values]) -> bytes:
    parts = [writing.field(1, example(item)) for item in items]
    return b"".join([*parts, writing.field(2, example(context))])


def example_in_example(context: Values, items: list[Values]) -> bytes:
    serialized = [example(item) for item in items]
    return example({"serialized_context": [example(context)], "serialized_examples": serialized})


def sequence_example(context: Values, items: list[Values]) -> bytes:
    """Every feature list is as long as the last item that names it."""
    made = tf.train.SequenceExample()
    made.context.CopyFrom(tf.train.Example.FromString(example(context)).features)
    for name in {name for item in items for name in item}:
        last = max(i for i, item in enumerate(items) if name in item)
        features = [feature(item.get(name, [])) for item in items[: last + 1]]
        made.feature_lists.feature_list[name].feature.extend(features)
    return made.SerializeToString(deterministic=True)


def one_example(context: Values, items: list[Values]) -> bytes:
    [item] = items
    return example({**context, **item})


OF_LISTS = {"ELWC": elwc, "EIE": example_in_example, "SEQ": sequence_example}
WRITERS = {**OF_LISTS, "TF_EXAMPLE": one_example}

FULL = [
    {"f": [0.1], "rel": [2], "vec": [1.0, 2.0], "tok": [b"a"], "id": [b"x"]},
    {"f": [-0.2], "rel": [0], "vec": [3.0, 4.0], "tok": [b"b", b"c"], "id": [b"y"]},
    {"f": [1e30], "rel": [1], "vec": [5.0, 6.0], "tok": [b"d", b"e", b"f"], "id": [b"z"]},
]
LISTS: dict[str, list[list[Values]]] = {
    "full": [FULL, FULL[:1], FULL[1:]],
    "one": [FULL[:1]],
    "lacking": [FULL, [{"vec": [7.0, 8.0]}, {"rel": [3], "f": [2.5]}]],
    "last_lacks": [[FULL[0], {"tok": [b"q"]}], FULL],
    "last_is_empty": [[FULL[0], {"tok": []}], FULL[:1]],
    "empty": [[], FULL[:2]],
}

# features, options of reading, and features of the query, in the form of the recorded cases
ASKED: dict[str, Case] = json.loads(
    (pathlib.Path(__file__).parent / "tfr_data_extra.json").read_text()
)
SPECS, OPTIONS = ASKED["specs"], ASKED["options"]


def case(kind: str, lists: str, spec: str, options: str) -> Case:
    contexts: list[Values] = [{"q": [0.5]}, {}, {"q": [1.5]}]
    records = [
        WRITERS[kind](context, items)
        for context, items in zip(contexts, LISTS[lists], strict=False)
    ]
    return {
        "id": f"{kind}/{lists}/{spec}/{options}",
        "format": kind,
        "records_b64": [base64.b64encode(x).decode() for x in records],
        "context_feature_spec": ASKED["context"],
        "example_feature_spec": SPECS[spec],
        "options": OPTIONS[options],
    }


CASES = [
    *(case(*names) for names in itertools.product(OF_LISTS, LISTS, SPECS, OPTIONS)),
    *(case("TF_EXAMPLE", "one", spec, "dynamic") for spec in SPECS),
]
