import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfrank_sel.data import ListFeatures
from tfrank_sel.pipelines.tfx.sequences import list_features


def from_text(text):
    return text_format.Parse(text, schema_pb2.Schema())


@pytest.mark.parametrize("ragged", [False, True])
def test_a_schema_of_tensorflow_metadata_is_read(ragged):
    inferred = from_text(
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
    assert list_features(inferred) == ListFeatures(
        {"clicks": tf.io.FixedLenFeature([], tf.int64), "bag": kind(tf.float32)},
        {"query": kind(tf.string)},
    )
    with pytest.raises(ValueError, match=r"'##SEQUENCE##'. Received: \['a'\]"):
        list_features(from_text('feature { name: "a" type: INT }'))
