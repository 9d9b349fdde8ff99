"""Artefacts of pipelines in stores, and fingerprints of files there."""

import apache_beam as beam
import pytest

from tests.stores.conftest import forget
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError
from tfrank_sel.pipelines.files.manifests import Fingerprint
from tfrank_sel.pipelines.runners import beams


def put(url, content):
    with stores.open_file(url, "wb") as file:
        file.write(content)
    return url


@pytest.mark.sample(2)
def test_what_a_pipeline_tells_is_read_in_any_place(folder, tmp_path):
    values = [{"name": "a", "count": 1}, ["é", None], 2.5]
    for place in (folder, tmp_path / "new" / "folder"):
        with beam.Pipeline() as pipeline:
            beams.gather(pipeline | "All" >> beam.Create(values), f"{place}/all")
            beams.gather(pipeline | "None" >> beam.Create([]), f"{place}/none")
        assert sorted(beams.read_gathered(f"{place}/all"), key=str) == sorted(values, key=str)
        assert list(beams.read_gathered(f"{place}/none")) == []


@pytest.mark.sample(2)
def test_a_bundle_that_fails_and_is_done_again_counts_once(folder):
    prefix = f"{folder}/told"
    write = beams._Gather(prefix)
    write.start_bundle()
    write.process("lost")
    write.stack.close()  # its file is there, but it ends with an error
    write.start_bundle()
    write.process("kept")
    [found] = [one.value for one in write.finish_bundle()]
    with beam.Pipeline() as pipeline:
        told = pipeline | beam.Create([found]) | beam.GroupByKey()
        told | beam.MapTuple(beams._list_files)
    assert list(beams.read_gathered(prefix)) == ["kept"]


def test_a_file_of_a_store_is_known_by_its_tag_and_not_read(folder, monkeypatch):
    url = put(f"{folder}/a.txt", b"one")
    first = Fingerprint.of(url)
    with monkeypatch.context() as patch:
        patch.setattr(stores, "open_file", None)
        assert Fingerprint.of(url) == Fingerprint.of(url, first) == first
    put(url, b"two")
    assert Fingerprint.of(url, first).digest != first.digest
    with pytest.raises(InputError, match=r"none\.txt: expected a file"):
        Fingerprint.of(f"{folder}/none.txt")


@pytest.mark.sample(2)
def test_a_copy_of_a_folder_is_kept_until_the_folder_changes(folder, tmp_path):
    for name in ("a.txt", "more/b.txt"):
        put(f"{folder}/model/{name}", b"one")
    first = stores.near_folder(f"{folder}/model")
    names = {path.removeprefix(f"{first}/") for path in stores.find(first)}
    assert names == {"a.txt", "more/b.txt"}
    assert stores.near_folder(f"{folder}/model/") == first
    put(f"{folder}/model/more/b.txt", b"two")
    assert stores.read_text(f"{stores.near_folder(f'{folder}/model')}/more/b.txt") == "two"
    with pytest.raises(FileNotFoundError):
        stores.near_folder(f"{folder}/none")


def test_a_folder_that_changes_while_it_is_copied_is_refused(bucket, tmp_path, monkeypatch):
    url = put(f"{bucket}/model/a.txt", b"one")
    genuine = stores.fetch

    def changing(*arguments):
        genuine(*arguments)
        put(url, b"two")

    monkeypatch.setattr(stores, "fetch", changing)
    with pytest.raises(InputError, match="must stay as it is while it is copied"):
        stores.near_folder(f"{bucket}/model")
    assert stores.find(tmp_path / "cache") == []


def test_urls_keep_the_name_of_the_scheme_that_was_given(bucket):
    url = put(f"{bucket}/a/b.txt", b"one").replace("s3://", "s3a://")
    forget()
    base = bucket.replace("s3://", "s3a://")
    assert stores.find(f"{base}/a") == stores.glob(f"{base}/a/*") == [url]
    assert stores.near_folder(f"{base}/a").endswith("/a")
