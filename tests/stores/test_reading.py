"""Files of lists in a store, read as those on disk are, and by the part."""

import gzip
import pathlib

import numpy as np
import pytest

from tests.data import sets
from tests.stores.test_stores import put
from tfrank_sel import data
from tfrank_sel.data import InputError, formats, letor, lines, stores
from tfrank_sel.data.formats import Columns, Part
from tfrank_sel.pipelines.ingestion import ingest
from tfrank_sel.pipelines.ingestion.inputs import Source

NAMES = {
    f"all.{name}": None for name in ("txt", "txt.gz", "csv", "csv.gz", "tsv", "jsonl", "arrow")
}
NAMES |= {"a.parquet": None} | {f"{name}.tfrecord": name for name in sets.RECORDS}


@pytest.fixture
def files(folder, tmp_path):
    """A folder of this machine with all formats, and its copy in a store."""
    here = tmp_path / "here"
    here.mkdir()
    lists = sets.made(count=12)
    for write in (sets.write_tables, sets.write_records):
        write(here, lists)
    for name in ("all.txt", "all.txt.gz"):
        letor.write(here / name, lists)
    (here / "all.csv.gz").write_bytes(gzip.compress((here / "all.csv").read_bytes()))
    for path in sorted(here.iterdir()):
        put(stores.join(folder, path.name), path.read_bytes())
    return here


def plain(lists):
    return [(x.query_id, x.labels.tolist(), x.features.tolist(), x.doc_ids) for x in lists]


@pytest.mark.long
def test_every_format_is_read_from_a_store(folder, files):
    for name, format in NAMES.items():
        is_table = format is None and ".txt" not in name
        features = [f"x{i}" for i in range(6)] if is_table else ("x", "y", "z") if format else ()
        places = (files / name, stores.join(folder, name))
        found = [plain(data.read(x, format=format, features=features)) for x in places]
        assert found[0] == found[1], name
        with pytest.raises(InputError, match="none-"):
            next(data.read(stores.join(folder, f"none-{name}"), format=format, features=features))


@pytest.mark.sample(4)
def test_a_folder_of_parquet_in_a_store_is_a_table(folder, files):
    for name in (
        "day=1/part.parquet",
        "day=2/a/part.parquet",
        "_old/x.parquet",
        "day=1/.x.parquet",
    ):
        content = (files / "a.parquet").read_bytes() if name[0] == "d" else b"no table"
        put(stores.join(folder, "table", name), content if "/." not in name else b"no table")
    url = stores.join(folder, "table")
    reader = formats.reader([url])
    assert reader.parts(url) == [Part(url, 0, 1), Part(url, 1, 2)]
    found = list(data.read(url, features=["day"]))
    assert {tuple(np.unique(one.features)) for one in found} == {(1.0, 2.0)}


@pytest.mark.long
def test_a_part_fetches_what_it_needs_and_some_ahead(folder, monkeypatch):
    content = b"".join(b"1 qid:%07d 1:%07d\n" % (i // 10, i) for i in range(2_000_000))
    url = put(stores.join(folder, "big.txt"), content)
    store, path = stores.filesystem(url)
    kind, fetched = type(store.open(path)), []
    fetch = kind._fetch_range

    def counted(self, start, end):
        fetched.append(end - start)
        return fetch(self, start, end)

    monkeypatch.setattr(kind, "_fetch_range", counted)
    reader = formats.reader([url], Columns(num_features=1))
    part = Part(url, len(content) // 2, len(content) // 2 + 240_000)
    assert len(list(reader.lists(part, reader.infer([url])))) == 1000
    assert sum(fetched) < len(content) / 2


@pytest.mark.sample(6)
def test_files_of_a_store_are_ingested_by_part(folder, files, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PART", 2000)
    done = []
    for number, place in enumerate((str(files / "all.txt"), stores.join(folder, "all.txt"))):
        inputs = ingest.Inputs([Source(place)], shares=sets.SHARES)
        assert len(inputs.reader.parts(place)) > 3
        done.append(ingest.ingest(inputs, inputs.schema(), tmp_path / str(number)))
    for split, paths in done[0].shards.items():
        here, there = (
            [pathlib.Path(path).read_bytes() for path in found]
            for found in (paths, done[1].shards[split])
        )
        assert here == there
