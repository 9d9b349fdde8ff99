"""Readers for TFRecord files of lists or items with named features."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfrank_sel.data.formats import rows, tables
from tfrank_sel.data.formats.reader import Part, Reader, RowReader, spaced
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.lists import Found, Rejected
from tfrank_sel.data.schema import Schema
from tfrank_sel.features import Feature

if TYPE_CHECKING:  # it imports TensorFlow, which takes seconds
    from tfrank_sel.data.formats import records


class RecordReader(Reader):
    """Reader of TFRecord files, compressed if their names end in `.gz`; a file is a single part.

    An absent number is a missing value if `columns` has types, else 0, as in LETOR.
    """

    @property
    def parser(self) -> "records.RecordParser":
        """Parser of the records."""
        from tfrank_sel.data.formats import records  # imports TensorFlow, which takes seconds

        return records.PARSERS[self.name]

    def infer(self, paths: Sequence[str]) -> Schema:
        """Returns the schema of the lists, from the first records of files."""
        from tfrank_sel.data.formats import records

        return records.infer(spaced(sorted(paths)), self.parser, self.columns)

    def propose(self, paths: Sequence[str]) -> tuple[dict[str, Feature], dict[str, str]]:
        from tfrank_sel.data.formats import records

        items, context = records.tables(spaced(sorted(paths)), self.parser)
        of_query, left_out = tables.propose(context.schema, context, self.columns)
        of_query = {x: dataclasses.replace(y, of="query") for x, y in of_query.items()}
        of_items, others = tables.propose(items.schema, items, self.columns)
        return {**of_query, **of_items}, {**left_out, **others}

    def lists(self, part: Part, schema: Schema) -> Iterator[Found | Rejected]:
        from tfrank_sel.data.formats import records

        for batch in records.batches(part.path, self.parser, schema):
            if isinstance(batch, Rejected):
                yield batch
                continue
            for number, query, items, context in batch.lists():
                fault = next((row for row in batch.rows.faults if row in items), None)
                if fault is not None:
                    reason = f"{batch.rows.faults[fault]} in item {fault - items.start + 1}"
                    yield Rejected(part.path, "record", number, reason)
                    continue
                found = batch.rows.take(slice(items.start, items.stop))
                yield rows.listed(query, found, context, schema)


class ElwcReader(RecordReader):
    """Reader of records of `ExampleListWithContext`."""

    name = "elwc"
    suffixes = (".tfrecord", ".tfrecord.gz")


class ExampleInExampleReader(RecordReader):
    """Reader of records of `tf.train.Example` that contain the serialized examples of a list."""

    name = "eie"


class SequenceExampleReader(RecordReader):
    """Reader of records of `tf.train.SequenceExample`."""

    name = "sequence-example"


class ExampleReader(RowReader, RecordReader):
    """Reader of records of `tf.train.Example`, each an item with its query."""

    name = "example"

    def rows(self, part: Part, schema: Schema) -> Iterator[Rows | Rejected]:
        from tfrank_sel.data.formats import records

        batches = records.batches(part.path, self.parser, schema)
        of_items = (x if isinstance(x, Rejected) else x.rows for x in batches)
        return rows.checked(of_items, "record")
