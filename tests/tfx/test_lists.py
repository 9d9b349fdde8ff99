import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from hypothesis import given, settings, strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from tests.tfx.conftest import layout_of
from tfrank_sel import data
from tfrank_sel.data import elwc
from tfrank_sel.data.formats import Columns
from tfrank_sel.pipelines.tfx import sequences

LAYOUT = layout_of({"feature_001": "float_list", "feature_002": "float_list"})


def made(sizes):
    random = np.random.default_rng(len(sizes))
    for query, size in enumerate(sizes):
        labels = random.integers(0, 5, size).astype(np.float32)
        features = random.normal(size=(size, 2)).astype(np.float32)
        yield data.ItemList(f"q{query}", labels, features, tuple(f"d{i}" for i in range(size)))


def gzipped(path, written):
    with tf.io.TFRecordWriter(str(path), options="GZIP") as writer:
        for one in tf.data.TFRecordDataset(str(written)):
            writer.write(one.numpy())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=5))
def test_what_is_written_is_read(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("written") / "lists.tfrecord"
    sequences.write(path, made(sizes))
    serialized = tf.stack(list(tf.data.TFRecordDataset(str(path))))
    inputs, labels = LAYOUT.inputs(serialized)
    features, labels = inputs["features"].numpy(), labels.numpy()
    assert inputs["mask"].numpy().sum(axis=1).tolist() == sizes
    for index, one in enumerate(made(sizes)):
        np.testing.assert_array_equal(features[index, : len(one.labels)], one.features)
        np.testing.assert_array_equal(labels[index, : len(one.labels)], one.labels)
        assert np.isnan(labels[index, len(one.labels) :]).all()


def test_a_thousand_names_sort_as_their_numbers(tmp_path):
    wide = data.ItemList("q", np.ones(1, np.float32), np.ones((1, 1000), np.float32), ("d",))
    sequences.write(tmp_path / "lists.tfrecord", [wide])
    [serialized] = tf.data.TFRecordDataset(str(tmp_path / "lists.tfrecord"))
    example = tf.train.SequenceExample.FromString(serialized.numpy())
    names = sorted(example.feature_lists.feature_list)
    numbered = [name for name in names if name.startswith("feature_")]
    assert (numbered[0], numbered[9], numbered[-1]) == tuple(
        f"feature_{index:04d}" for index in (1, 10, 1000)
    )


def test_a_failed_write_leaves_nothing(tmp_path):
    def failing():
        yield from made([2])
        raise RuntimeError

    with pytest.raises(RuntimeError):
        sequences.write(tmp_path / "lists.tfrecord", failing())
    assert list(tmp_path.iterdir()) == []


def test_requests_hold_the_same_features(tmp_path):
    sequences.write(tmp_path / "lists.tfrecord", made([0, 3, 2]))
    gzipped(tmp_path / "lists.gz", tmp_path / "lists.tfrecord")
    asked = sequences.requests([str(tmp_path / "*.gz")], LAYOUT, 9)
    assert len(asked) == 2
    parsed = elwc.parse(tf.constant(asked[:1]), LAYOUT.spec)
    np.testing.assert_array_equal(parsed["features"][0], list(made([0, 3, 2]))[1].features)


def test_without_files_the_error_names_the_pattern(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\*.gz. Received: no file"):
        sequences.records(str(tmp_path / "none*.gz"))


SCHEMA = """
feature { name: "query_id" type: BYTES }
feature {
  name: "##SEQUENCE##" type: STRUCT
  struct_domain {
    feature { name: "relevance" type: INT }
    feature { name: "price" type: FLOAT }
    feature { name: "clicks" type: INT }
    feature { name: "doc_id" type: BYTES }
  }
}
"""


def test_a_schema_takes_the_numbers_of_the_schema_in_the_order_of_their_names():
    layout = sequences.SequenceSchema.of(text_format.Parse(SCHEMA, schema_pb2.Schema()), Columns())
    assert list(layout.features) == ["clicks", "price"]
    example = text_format.Parse(
        """
        feature_lists {
          feature_list { key: "clicks" value { feature { int64_list { value: 7 } } } }
          feature_list { key: "price" value { feature { float_list { value: 0.5 } } } }
          feature_list { key: "relevance" value { feature { int64_list { value: 2 } } } }
        }
        """,
        tf.train.SequenceExample(),
    )
    inputs, labels = layout.inputs(tf.constant([example.SerializeToString()]))
    assert inputs["features"].numpy().tolist() == [[[7.0, 0.5]]]
    assert labels.numpy().tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("relevance", r"expected 'relevance' in the items.*clicks.*doc_id.*price"),
        ("price|clicks", "expected a feature of numbers.*relevance"),
    ],
)
def test_a_schema_without_label_or_features_is_refused(missing, said):
    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    domain = schema.feature[1].struct_domain
    kept = [field for field in domain.feature if field.name not in missing.split("|")]
    del domain.feature[:]
    domain.feature.extend(kept)
    with pytest.raises(data.InputError, match=said):
        sequences.SequenceSchema.of(schema, Columns())
