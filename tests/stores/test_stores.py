"""Files by path and by URL, alike."""

import contextlib
import errno
import os
import pathlib

import pytest
import s3fs

from tests.ports import free_port
from tests.stores.conftest import forget
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError


def put(url: str, content: bytes) -> str:
    with stores.open_file(url, "wb") as file:
        file.write(content)
    return url


@pytest.mark.sample(2)
def test_a_file_of_a_store_is_as_one_on_disk(folder, tmp_path):
    for base in (folder, str(tmp_path / "folder")):
        (tmp_path / "folder" / "more").mkdir(parents=True, exist_ok=True)
        a, b = put(stores.join(base, "a.txt"), b"one\ntwo"), stores.join(base, "more", "b.txt")
        assert not stores.is_file(b)
        put(b, b"")
        assert stores.is_file(a)
        assert [stores.is_dir(x) for x in (base, a)] == [True, False]
        assert stores.size(a) == 7
        assert stores.glob(stores.join(base, "*.txt")) == [a]
        assert stores.find(base) == [a, b]
        with stores.open_file(a) as file:
            file.seek(4)
            assert file.read() == b"two"
        stores.remove(b)
        stores.remove(b)
        assert stores.find(base) == [a]


def test_scratch_that_a_worker_still_writes_to_fails_no_run(tmp_path, monkeypatch):
    def is_filled(*_, **__):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    with stores.scratch(tmp_path) as folder:
        put(stores.join(folder, "a.txt"), b"one")
        monkeypatch.setattr(os, "rmdir", is_filled)
    assert stores.find(folder) == []


def test_a_copy_is_read_until_the_file_changes(folder):
    url = put(stores.join(folder, "a.txt"), b"one")
    first = stores.near(url)
    assert stores.near(url) == first
    put(url, b"two")
    assert pathlib.Path(stores.near(url)).read_text(encoding="utf-8") == "two"
    assert not os.path.exists(first)


def test_a_copy_of_a_file_to_itself_is_refused(folder, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    local = str(tmp_path / "a.txt")
    for path, place in (
        (local, str(tmp_path / "link" / ".." / tmp_path.name / "a.txt")),
        (local, tmp_path / "link" / "a.txt"),
        (str(tmp_path / "b.txt"), local),
        (f"{folder}/a.txt", f"{folder}/a.txt"),
    ):
        put(path, b"one")
        with pytest.raises(ValueError, match=r"another place. Received: .*a\.txt"):
            stores.copy(path, place)
        with stores.open_file(path) as file:
            assert file.read() == b"one"


def test_a_copy_that_fails_leaves_what_is_there(folder, tmp_path):
    local = put(str(tmp_path / "a.txt"), b"one")
    for missing in (str(tmp_path / "missing"), f"{folder}/missing"):
        with pytest.raises(FileNotFoundError):
            stores.copy(missing, local)
    with pytest.raises(ValueError, match="another place"):
        stores.copy(local, f"{local}/")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "other").mkdir()
    stores.copy(tmp_path / "link", tmp_path / "other" / "link/")
    for path in (local, tmp_path / "other" / "link"):
        assert pathlib.Path(path).read_bytes() == b"one"
    assert sorted(x.name for x in tmp_path.iterdir()) == ["a.txt", "link", "other"]


def test_a_name_with_brackets_is_a_name_before_it_is_a_pattern(tmp_path):
    one, other = str(tmp_path / "log[1].csv"), str(tmp_path / "log1.csv")
    put(other, b"")
    assert stores.expand([one]) == [other]
    put(one, b"")
    assert stores.expand([one]) == [one]


def test_a_store_without_an_operation_is_one_line():
    with pytest.raises(InputError, match=r"all operations of fsspec.* Received: http://"):
        stores.remove(f"http://127.0.0.1:{free_port()}/a.csv")


def test_a_file_whose_writing_fails_is_as_it_was(folder):
    url = put(stores.join(folder, "a.txt"), b"one")
    with contextlib.suppress(RuntimeError), stores.open_file(url, "wb") as file:
        file.write(b"two")
        raise RuntimeError
    with stores.open_file(url) as file:
        assert file.read() == b"one"


def test_what_is_missing_is_named_by_its_url(folder):
    with pytest.raises(FileNotFoundError) as told:
        stores.size(stores.join(folder, "none"))
    assert told.value.filename == stores.join(folder, "none")


def test_an_unknown_scheme_is_refused():
    with pytest.raises(
        InputError, match=r"^foo://a: expected a path .* the unknown scheme foo://$"
    ):
        stores.size("foo://a")


def test_missing_credentials_are_one_line(bucket, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    forget()
    with pytest.raises(InputError, match=r"expected credentials of the store.*Unable to locate"):
        stores.find(bucket)


def test_a_store_out_of_reach_is_one_line(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    forget()
    with pytest.raises(InputError) as told:
        stores.find(bucket)
    assert "the store must be within reach. Received: Could not connect" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("key", ["../../../../owned.txt", "/owned.txt", "a/../../owned.txt"])
def test_a_key_names_no_place_outside_of_the_cache(bucket, key, tmp_path):
    client, name = s3fs.S3FileSystem(), bucket.removeprefix("s3://")
    client.pipe(f"{name}/1/saved_model.pb", b"x")
    client.call_s3("put_object", Bucket=name, Key=f"1/{key}", Body=b"x")
    with pytest.raises(InputError, match=f"{bucket}/1: the name of a file must stay in its folder"):
        stores.near_folder(f"{bucket}/1")
    assert not [*tmp_path.rglob("owned*")]


def test_marks_of_folders_are_no_files(bucket):
    client, name = s3fs.S3FileSystem(), bucket.removeprefix("s3://")
    client.pipe(f"{name}/1/saved_model.pb", b"x")
    for key in ("1/", "1/variables/"):  # as consoles make them
        client.call_s3("put_object", Bucket=name, Key=key, Body=b"")
    assert os.listdir(stores.near_folder(f"{bucket}/1")) == ["saved_model.pb"]
    assert stores.find(f"{bucket}/1") == [f"{bucket}/1/saved_model.pb"]
    client.call_s3("put_object", Bucket=name, Key="2/", Body=b"")
    with pytest.raises(FileNotFoundError, match=f"{bucket}/2"):
        stores.near_folder(f"{bucket}/2")
