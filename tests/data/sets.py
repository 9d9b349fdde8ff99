"""The same lists in every format of files."""

import json

import numpy as np
import pyarrow as pa
import tensorflow as tf
from pyarrow import csv, feather, parquet

from tfrank_sel.data import letor, synthetic, writing
from tfrank_sel.data.formats import Columns

SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}
COLUMNS = Columns(context=("device", "age"))
RECORDS = ("elwc", "eie", "sequence-example", "example")


def made(count=40, seed=2):
    """Lists of 6 features, whose 4th is a whole number."""
    lists = list(synthetic.lists(count, num_features=6, max_list_size=30, seed=seed))
    for one in lists:
        one.features[:, 3] = np.clip(np.trunc(one.features[:, 3]), 0, 1000)
    return lists


def context(number):
    """What is known of the query of a list beside its items."""
    return {"device": "phone" if number % 2 else "desk", "age": float(number)}


def table(lists):
    """The rows of lists, as an Arrow table."""
    rows = [
        {
            "query_id": one.query_id,
            "relevance": float(label),
            "doc_id": doc_id,
            **{f"x{i}": float(value) for i, value in enumerate(row)},
            **context(number),
        }
        for number, one in enumerate(lists)
        for label, doc_id, row in zip(one.labels, one.doc_ids, one.features, strict=True)
    ]
    return pa.Table.from_pylist(rows)


def write_tables(folder, lists, without=()):
    """Two Parquet files, one of several row groups, and a file of each other format of tables.

    Rows stand in a random order, without some of the columns.
    """
    rows = table(lists).drop_columns(list(without))
    rows = rows.take(np.random.default_rng(0).permutation(len(rows)))
    parquet.write_table(rows.slice(0, 300), folder / "a.parquet", row_group_size=70)
    parquet.write_table(rows.slice(300), folder / "b.parquet")
    csv.write_csv(rows, folder / "all.csv")
    csv.write_csv(rows, folder / "all.tsv", csv.WriteOptions(delimiter="\t"))
    feather.write_feather(rows, folder / "all.arrow", compression="uncompressed", chunksize=100)
    write_jsonl(folder / "all.jsonl", rows.to_pylist())


def write_jsonl(path, objects):
    """Writes a JSON object in each line."""
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))


def example(**features):
    """A `tf.train.Example` of bytes, whole numbers and lists of floats."""
    made = tf.train.Example()
    for name, value in features.items():
        feature = made.features.feature[name]
        if isinstance(value, str | bytes):
            feature.bytes_list.value.append(value.encode() if isinstance(value, str) else value)
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.float_list.value.extend(np.atleast_1d(value).tolist())
    return made


def items(one):
    """The items of a list: a packed feature, a whole number and two scalars."""
    return [
        example(relevance=label, doc_id=doc_id, e=row[:3], x=int(row[3]), y=row[4], z=row[5])
        for label, doc_id, row in zip(one.labels, one.doc_ids, one.features, strict=True)
    ]


def elwc(examples, query):
    """A serialized `ExampleListWithContext`."""
    parts = [writing.field(1, one.SerializeToString()) for one in examples]
    return b"".join([*parts, writing.field(2, query.SerializeToString())])


def write_records(folder, lists):
    """A TFRecord file of each format; the examples in a random order."""
    records = {format: [] for format in RECORDS}
    for number, one in enumerate(lists):
        found, query = items(one), example(query_id=one.query_id, **context(number))
        records["elwc"].append(elwc(found, query))
        outer = tf.train.Example()
        inner = {
            "serialized_context": [query.SerializeToString()],
            "serialized_examples": [item.SerializeToString() for item in found],
        }
        for name, values in inner.items():
            outer.features.feature[name].bytes_list.value.extend(values)
        records["eie"].append(outer.SerializeToString())
        sequence = tf.train.SequenceExample(context=query.features)
        for item in found:
            for name, feature in item.features.feature.items():
                sequence.feature_lists.feature_list[name].feature.append(feature)
            item.MergeFrom(query)
            records["example"].append(item.SerializeToString())
        records["sequence-example"].append(sequence.SerializeToString())
    np.random.default_rng(0).shuffle(records["example"])
    for format, found in records.items():
        write(folder / f"{format}.tfrecord", found)


def write(path, records):
    """Writes a TFRecord file."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def write_letor(folder, lists):
    """Two LETOR files, one of them compressed."""
    letor.write(folder / "1.txt.gz", lists[:25])
    letor.write(folder / "2.txt", lists[25:])
