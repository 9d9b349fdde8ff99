"""Replays what tensorflow-ranking 0.5.5 reads from the bytes of lists.

Every case meets an independent reference, too; where we mean to differ, the reference alone.
"""

import base64
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import differences, vectors
from tests.golden.vectors import Case
from tests.references import parsing as reference
from tfrank_sel.data import ListFeatures, parsing

CASES = vectors.contents("tfr_data.json")["cases"]
READERS: dict[str, Any] = {
    "ELWC": parsing.parse_elwc,
    "EIE": parsing.parse_example_in_example,
    "SEQ": parsing.parse_sequence_example,
    "TF_EXAMPLE": parsing.parse_example,
    "DATASET": parsing.parse_elwc,
}
REJECTED = (ValueError, tf.errors.InvalidArgumentError, tf.errors.DataLossError)


def feature(spec: Case) -> Any:
    """A feature as `tf.io` takes it."""
    dtype = tf.dtypes.as_dtype(spec["dtype"])
    if spec["kind"] == "FixedLen":
        return tf.io.FixedLenFeature(spec["shape"], dtype, spec["default"])
    return {"VarLen": tf.io.VarLenFeature, "Ragged": tf.io.RaggedFeature}[spec["kind"]](dtype)


def specs(case: Case, which: str) -> dict[str, Any]:
    return {name: feature(spec) for name, spec in (case[which] or {}).items()}


def records(case: Case) -> list[bytes]:
    return [base64.b64decode(x) for x in case["records_b64"]]


def read(case: Case, serialized: Any) -> dict[str, Any]:
    """What we read."""
    options = case["options"]
    features = ListFeatures(
        specs(case, "example_feature_spec"), specs(case, "context_feature_spec")
    )
    arguments = {"list_size": options["list_size"]} if "list_size" in options else {}
    if options.get("shuffle_examples"):
        arguments |= {"shuffle": True, "seed": options.get("seed")}
    return READERS[case["format"]](serialized, features, **arguments)


def by_reference(case: Case) -> dict[str, Any]:
    """What the independent reference reads."""

    def kinds(which: str) -> dict[str, reference.Kind]:
        return {
            name: reference.Kind(spec["dtype"], spec.get("shape"), spec.get("default"))
            for name, spec in (case[which] or {}).items()
        }

    items, context = kinds("example_feature_spec"), kinds("context_feature_spec")
    kind = "ELWC" if case["format"] == "DATASET" else case["format"]
    lists = [reference.read(kind, x, list(case["example_feature_spec"])) for x in records(case)]
    parsed = reference.parse(lists, items, context, case["options"].get("list_size"))
    return {name: text(values) for name, values in parsed.items()}


def text(values: Any) -> Any:
    """Nested lists with strings for bytes."""
    if isinstance(values, list):
        return [text(x) for x in values]
    return values.decode() if isinstance(values, bytes) else values


def nested(values: Any) -> Any:
    """A tensor of any kind as nested lists."""
    if isinstance(values, tf.RaggedTensor):
        return text(values.to_list())
    if isinstance(values, tf.SparseTensor):
        rows = np.frompyfunc(lambda _: [], 1, 1)(np.empty(values.dense_shape[:-1], object))
        for index, value in zip(values.indices.numpy(), values.values.numpy(), strict=True):
            rows[tuple(index[:-1])].append(value)
        return text(rows.tolist())
    return text(values.numpy().tolist())


def recorded_form(values: Any) -> Case:
    """A tensor in the form of the recorded ones."""
    form: Case = {"dtype": values.dtype.name}
    if isinstance(values, tf.RaggedTensor):
        shape = values.bounding_shape().numpy().tolist()
        return {"kind": "ragged", **form, "values": nested(values), "bounding_shape": shape}
    if isinstance(values, tf.SparseTensor):
        form |= {"kind": "sparse", "indices": values.indices.numpy().tolist()}
        form["values"] = text(values.values.numpy().tolist())
        return {**form, "dense_shape": values.dense_shape.numpy().tolist()}
    return {"kind": "dense", **form, "shape": values.shape.as_list(), "values": nested(values)}


def recorded_names(case: Case) -> dict[str, str]:
    """The names of what the case asks for: ours, and those under which it is recorded."""
    features = [*case["example_feature_spec"], *(case["context_feature_spec"] or {})]
    own = {x: case["options"].get(f"{x}_feature_name") for x in ("mask", "size")}
    return {name: name for name in features} | {x: name for x, name in own.items() if name}


def asked(case: Case, found: dict[str, Any]) -> dict[str, Case]:
    """What we read, as far as the case asks for it, in the form of what is recorded."""
    names = recorded_names(case)
    return {recorded: recorded_form(found[ours]) for ours, recorded in names.items()}


def check(case: Case) -> None:
    """Whether we read a case as recorded, or as we mean to."""
    serialized = tf.constant(records(case))
    try:
        expected = by_reference(case)
    except ValueError:
        assert "error" in case or differences.of("data", case)
        with pytest.raises(REJECTED):
            read(case, serialized)
        return
    intended, found = differences.of("data", case), read(case, serialized)
    if case["options"].get("shuffle_examples"):
        check_shuffled(case, {name: nested(values) for name, values in found.items()})
        return
    assert {name: nested(values) for name, values in found.items()} == expected
    assert "error" not in case or intended
    if all("of" in d for d in intended):
        names, forms = recorded_names(case), asked(case, found)
        for name in names.keys() - {name for d in intended for name in d["of"]}:
            assert forms[names[name]] == case["expected"][names[name]], name


def check_shuffled(case: Case, found: dict[str, Any]) -> None:
    """Whether the lists hold as many different items as they should, each as a whole."""
    options = {k: v for k, v in case["options"].items() if k != "list_size"}
    unshuffled = by_reference({**case, "options": options})
    names = list(case["example_feature_spec"])
    for row, size in enumerate(unshuffled["size"]):
        items = [repr([unshuffled[n][row][i] for n in names]) for i in range(size)]
        kept = [repr([found[n][row][i] for n in names]) for i in range(sum(found["mask"][row]))]
        assert len(kept) == min(size, len(found["mask"][row]))
        for item in set(kept):
            assert kept.count(item) <= items.count(item)


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c["format"] not in ("DATASET", "SERVING")],  # `test_tfr_serving`
    ids=lambda case: case["id"],
)
def test_replay(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["format"] == "DATASET"], ids=lambda case: case["id"]
)
def test_replay_in_a_dataset(case: Case, tmp_path: pathlib.Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "lists")) as writer:
        for record in records(case):
            writer.write(record)
    options = case["options"]
    dataset = (
        tf.data.TFRecordDataset(str(tmp_path / "lists"))
        .batch(options["batch_size"], drop_remainder=options.get("drop_final_batch", False))
        .map(lambda serialized: read(case, serialized))
    )
    for ours, recorded in recorded_names(case).items():
        assert str(dataset.element_spec[ours]) == case["element_spec"][recorded]
    assert [asked(case, found) for found in dataset] == case["expected_batches"]
