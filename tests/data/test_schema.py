import sys

import pytest
import tensorflow as tf

from tfrank_sel.data import FeatureSpec, ListFeatures, schema

FEATURES = ListFeatures(
    items={
        "price": tf.io.FixedLenFeature([], tf.float32),
        "pixels": tf.io.FixedLenFeature([2, 3], tf.float32),
        "clicks": tf.io.FixedLenFeature([2], tf.int64, [7, 7]),
        "words": tf.io.VarLenFeature(tf.string),
        "ids": tf.io.RaggedFeature(tf.int64),
        "bag": tf.io.RaggedFeature(tf.int64, "ids_of_bag", row_splits_dtype=tf.int64),
    },
    context={
        "query": tf.io.FixedLenFeature([], tf.string, b"none"),
        "user": tf.io.VarLenFeature(tf.float32),
    },
    padding={"price": -1.0},
)


@pytest.fixture
def text_format():
    pytest.importorskip("tensorflow_metadata")
    from google.protobuf import text_format

    return text_format


def from_text(text_format, text):
    from tensorflow_metadata.proto.v0 import schema_pb2

    return text_format.Parse(text, schema_pb2.Schema())


def test_features_come_back_from_their_schema(text_format):
    made = schema.to_schema(FEATURES)
    assert schema.from_schema(made) == FEATURES
    assert schema.from_schema(from_text(text_format, str(made))) == FEATURES


def test_the_items_stand_in_the_struct_of_a_sequence_example(text_format):
    made = schema.to_schema(FEATURES)
    [items] = [field for field in made.feature if field.name == "##SEQUENCE##"]

    assert [field.name for field in items.struct_domain.feature] == list(FEATURES.items)
    required = [f.name for f in items.struct_domain.feature if f.presence.min_fraction == 1.0]
    assert required == ["price", "pixels"]
    assert [dim.size for dim in items.struct_domain.feature[1].shape.dim] == [2, 3]


@pytest.mark.parametrize("names", [{"label": "y"}, {"label": "texts", "texts": "o"}])
def test_a_feature_spec_comes_back_from_its_schema(text_format, names):
    spec = FeatureSpec(5, features="x", doc_id="d", query_id="q", **names)
    made = schema.to_schema(spec)

    assert schema.feature_spec(made) == spec
    assert schema.from_schema(made).items["x"] == tf.io.FixedLenFeature([5], tf.float32)
    with pytest.raises(ValueError, match=r"one feature 'features'. Received: \[\]"):
        schema.feature_spec(schema.to_schema(FEATURES))


@pytest.mark.parametrize("ragged", [False, True])
def test_a_schema_of_another_s_making_is_read(text_format, ragged):
    inferred = from_text(
        text_format,
        """
        feature { name: "query" type: BYTES value_count { min: 1 } }
        feature { name: "##SEQUENCE##" type: STRUCT struct_domain {
            feature { name: "clicks" type: INT shape {} }
            feature { name: "bag" type: FLOAT value_count { min: 1 max: 9 } }
        } }
        """,
    )
    inferred.represent_variable_length_as_ragged = ragged
    kind = tf.io.RaggedFeature if ragged else tf.io.VarLenFeature
    assert schema.from_schema(inferred) == ListFeatures(
        {"clicks": tf.io.FixedLenFeature([], tf.int64), "bag": kind(tf.float32)},
        {"query": kind(tf.string)},
    )
    with pytest.raises(ValueError, match=r"'##SEQUENCE##'. Received: \['a'\]"):
        schema.from_schema(from_text(text_format, 'feature { name: "a" type: INT }'))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tf.io.FixedLenFeature([2], tf.int64, [7, 8]), r"'a' must have one value .*\[7, 8\]"),
        (
            tf.io.RaggedFeature(tf.int64, "b", [tf.io.RaggedFeature.RowLengths("c")]),
            "'a' must have no partitions",
        ),
    ],
)
def test_what_a_schema_cannot_say_is_refused(text_format, kind, message):
    with pytest.raises(ValueError, match=message):
        schema.to_schema(ListFeatures({"a": kind}))


def test_the_extra_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_metadata.proto.v0", None)
    with pytest.raises(ImportError, match=r"pip install 'tfrank_sel\[pipelines\]'"):
        schema.to_schema(FeatureSpec(1))
