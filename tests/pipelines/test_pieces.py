import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel.pipelines.ingestion.shards import Piece, split_shards


@pytest.fixture
def shards(tmp_path):
    """Files of 7, 0, 1 and 12 records, of which one is empty."""
    random = np.random.default_rng(0)
    found, paths = [], []
    for place, count in enumerate((7, 0, 1, 12)):
        paths.append(str(tmp_path / f"{place}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                found.append(random.bytes(int(random.integers(0, 99))) if found else b"")
                writer.write(found[-1])
    return paths, found


@pytest.mark.parametrize("size", [1, 3, 7, 8, 20, 100])
def test_pieces_hold_all_records_in_their_order(shards, size):
    paths, expected = shards
    pieces = split_shards(paths, size)
    found = [list(piece.records()) for piece in pieces]
    assert [record for records in found for record in records] == expected
    sizes = [len(records) for records in found]
    assert all(count == size for count in sizes[:-1])
    assert 0 < sizes[-1] <= size


def test_no_record_is_no_piece(shards):
    assert split_shards(shards[0][1:2], 5) == []


def test_a_file_that_ends_within_a_record_is_told(shards, tmp_path):
    [path, *_], expected = shards
    [piece] = split_shards([path], 100)
    octets = (tmp_path / "0.tfrecord").read_bytes()
    (tmp_path / "0.tfrecord").write_bytes(octets[: len(octets) - len(expected[6]) - 2])
    with pytest.raises(EOFError, match=r"0.tfrecord must end with a whole record. Received: "):
        list(Piece(piece.spans).records())
