"""Models published to stores, and served from there."""

import pytest
import s3fs

from tests.serving.half_plus import save
from tests.stores.conftest import forget
from tfrank_sel import export
from tfrank_sel.data import leases, stores
from tfrank_sel.data.lists import InputError


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """Folder of SavedModels, by bias."""
    folder = tmp_path_factory.mktemp("half")
    for bias in (2, 3):
        save(folder, bias, bias=bias)
    return folder


def files(url):
    return {path.removeprefix(f"{url}/") for path in stores.find(url)}


def test_versions_of_a_store_are_published_taken_back_and_removed(folder, half, tmp_path):
    base = f"{folder}/ranker"
    assert export.versions(base) == {}
    for version in (1, 2, 3, 4):
        assert export.publish(half / "2", base) == f"{base}/{version}"
    on_disk = export.publish(half / "2", tmp_path / "ranker")
    names = {str(x.relative_to(on_disk)) for x in on_disk.rglob("*") if x.is_file()}
    assert files(f"{base}/4") == names
    with pytest.raises(FileExistsError, match=r"must be new in .*Received: 4"):
        export.publish(half / "3", base, 4)
    assert export.roll_back(base) == 3
    assert files(f"{base}/rolled-back-4") == names
    assert export.versions(base) == {i: f"{base}/{i}" for i in (1, 2, 3)}
    assert export.remove_old(base, keep=2) == [1]
    assert export.versions(base).keys() == {2, 3}
    assert export.publish(f"{base}/3", base) == f"{base}/4"
    assert not [name for name in files(base) if name.startswith(("1/", ".lease"))]
    with pytest.raises(FileNotFoundError, match=r"must hold saved_model\.pb"):
        export.publish(f"{base}/none", base)


def fail_at(monkeypatch, operation, name):
    """Lets a store fail before a file is sent or removed."""
    genuine = getattr(s3fs.S3FileSystem, operation)

    async def failing(self, *paths, **options):
        if any(str(path).endswith(name) for path in paths):
            raise OSError("the line is cut")
        return await genuine(self, *paths, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, operation, failing)
    forget()


@pytest.mark.parametrize("name", ["variables.index", "saved_model.pb"])
def test_a_version_that_is_half_sent_is_none_and_is_sent_again(bucket, half, monkeypatch, name):
    base = f"{bucket}/ranker"
    export.publish(half / "2", base)
    with monkeypatch.context() as patch:
        fail_at(patch, "_put_file", name)
        with pytest.raises(InputError, match="the line is cut"):
            export.publish(half / "3", base)
    assert export.versions(base).keys() == {1}
    assert export.publish(half / "3", base) == f"{base}/2"
    assert files(f"{base}/2") == files(f"{base}/1")


def test_a_version_that_is_half_removed_is_none(bucket, half, monkeypatch):
    base = f"{bucket}/ranker"
    for _ in range(2):
        export.publish(half / "2", base)
    with monkeypatch.context() as patch:
        fail_at(patch, "_rm_file", "variables.index")
        with pytest.raises(InputError, match="the line is cut"):
            export.remove_old(base, keep=1)
    assert any(name.startswith("1/") for name in files(base))
    assert export.versions(base).keys() == {2}


def test_one_process_at_a_time_publishes(bucket, half):
    base = f"{bucket}/ranker"
    with leases.held(base, renewed=0.2), pytest.raises(FileExistsError, match="another process"):
        export.publish(half / "2", base)
