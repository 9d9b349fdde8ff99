"""Fuzz targets: properties of the readers for any bytes.

Each target takes bytes and raises unless the reader does what it says: only the errors that it
documents, nothing lost without a word, the same by the fast path and the slow one, and what was
read reads back the same once written. `SEEDS` are good inputs to start from.
"""

import contextlib
import math
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message as protobuf, text_format
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.apis import input_pb2

from tfrank_sel import data
from tfrank_sel.data import elwc, packed, parsing
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.serving.deployment import config, model_config
from tfrank_sel.serving.deployment.config import (
    BatchingParameters,
    MonitoringConfig,
    SSLConfig,
)
from tfrank_sel.serving.rest import json_reader, json_writer
from tfrank_sel.serving.status import ServingError

Query = tuple[str, list[tuple[float, list[float], str]]]

NUM_FEATURES = 3
SPEC = data.FeatureSpec(num_features=2)
NAMED = data.ListFeatures(
    {
        "relevance": tf.io.FixedLenFeature([], tf.float32),
        "features": tf.io.FixedLenFeature([2], tf.float32, [0.0, 0.0]),
        "doc_id": tf.io.VarLenFeature(tf.string),
        "clicks": tf.io.RaggedFeature(tf.int64),
    },
    {"query_id": tf.io.FixedLenFeature([], tf.string, "")},
)
# TensorFlow quotes what it cannot parse, and fails to raise its error where that is not UTF-8.
_DOC_ID = re.compile(rb"docid\s*=\s*(\S+)")
REFUSED = (tf.errors.InvalidArgumentError, tf.errors.DataLossError, UnicodeDecodeError)
TYPES = (
    {"x": types_pb2.DT_FLOAT},
    {"x": types_pb2.DT_DOUBLE, "y": types_pb2.DT_INT64},
    {"x": types_pb2.DT_FLOAT, "y": types_pb2.DT_BOOL},
    {"x": types_pb2.DT_STRING},
)
MESSAGES: tuple[Callable[[], Any], ...] = (
    BatchingParameters,
    MonitoringConfig,
    SSLConfig,
    config_pb2.ConfigProto,
)


def letor_text(octets: bytes) -> None:
    """LETOR: each line is read or refused, as one who reads line by line would."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = pathlib.Path(folder, "lists.txt")
        path.write_bytes(octets)
        try:
            scanned = list(data.letor.scan(path, NUM_FEATURES))
        except data.InputError as error:
            if octets:
                raise AssertionError("only an empty file is refused as a whole") from error
            return
        wanted, refused = _by_line(octets)
        found = [one for some in scanned if isinstance(some, Lists) for one in some]
        bad = {one.number for one in scanned if isinstance(one, Rejected)} - {None}
        assert bad == refused, (bad, refused)
        assert repr([_plain(x) for x in found]) == repr(wanted), (found, wanted)
        try:
            data.letor.write(path, found)
        except ValueError:  # an identifier that would not read back
            assert any(name.split() != [name] for x in found for name in (x.query_id, *x.doc_ids))
        else:
            again = data.letor.read(path, NUM_FEATURES) if found else ()
            assert repr([_plain(x) for x in again]) == repr(wanted)


def elwc_message(octets: bytes) -> None:
    """ELWC: as many items as the message has, and what was read reads back."""
    message = _strictly(input_pb2.ExampleListWithContext, octets)
    parsed = _parsed(elwc.parse, octets) if message else None
    if parsed is not None:
        assert int(parsed["mask"].numpy().sum()) == len(message.examples)
        _reads_back(elwc.serialize, elwc.parse, parsed)


def packed_message(octets: bytes) -> None:
    """Packed lists: every float of the message is there, and what was read reads back."""
    message = _strictly(tf.train.Example, octets)
    parsed = _parsed(packed.parse, octets) if message else None
    if parsed is not None:
        feature = message.features.feature["features"]
        assert parsed["features"].numpy().tobytes() == feature.bytes_list.value[0]
        _reads_back(packed.serialize, packed.parse, parsed)


def named_message(octets: bytes) -> None:
    """Named features: the four formats read or refuse, and agree on the sizes of what they read."""
    readers = (
        parsing.parse_elwc,
        parsing.parse_example_in_example,
        parsing.parse_example,
        parsing.parse_sequence_example,
    )
    kinds = (
        input_pb2.ExampleListWithContext,
        tf.train.Example,
        tf.train.Example,
        tf.train.SequenceExample,
    )
    chosen = octets[0] % len(readers) if octets else 0
    reader = readers[chosen]
    if _strictly(kinds[chosen], octets[1:]) is None:
        return
    try:
        parsed = reader(tf.constant([octets[1:], octets[1:]]), NAMED)
    except REFUSED:
        return
    sizes = parsed["size"].numpy()
    assert parsed["mask"].numpy().sum(axis=1).tolist() == sizes.tolist()
    for name in ("relevance", "features"):
        assert parsed[name].shape[:2] == parsed["mask"].shape


def json_request(octets: bytes) -> None:
    """JSON: refused with a reason that can be sent, or read the same fast and slowly."""
    for types in TYPES:
        fast = _outcome(lambda types=types: json_reader.Document(octets).to_inputs(types))
        slow = _outcome(lambda types=types: _slowly(octets, types))
        assert fast == slow, (fast, slow)
        if isinstance(slow, dict):
            arrays = _slowly(octets, types)
            body = json_writer.to_body(arrays, rows=False)
            assert body


def config_file(octets: bytes) -> None:
    """Files of configuration: refused, or the same once written."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = pathlib.Path(folder, "server.config")
        for kind in MESSAGES:
            path.write_bytes(octets)
            try:
                message = config.read(path, kind)
            except ServingError as error:
                str(error).encode()
                continue
            path.write_text(text_format.MessageToString(message), encoding="utf-8")
            assert config.read(path, kind) == message
        path.write_bytes(octets)
        with contextlib.suppress(ServingError):
            model_config.read(path)


def _strictly(kind: Any, octets: bytes) -> Any:
    """The message, or None if it is none, to be passed over.

    TensorFlow 2.21 reads beyond the end of bytes that are said to be longer than they are, and may
    end the process: https://github.com/tensorflow/tensorflow/pull/120699.
    """
    try:
        message = kind.FromString(octets)
        for part in message.features.feature if kind is tf.train.Example else ():
            if part.startswith("serialized_"):
                for inner in message.features.feature[part].bytes_list.value:
                    tf.train.Example.FromString(inner)
    except protobuf.DecodeError:
        return None
    return message


def _by_line(octets: bytes) -> tuple[list[tuple[Any, ...]], set[int]]:
    """What a LETOR file holds, read one line and word at a time, and the lines to refuse."""
    refused: set[int] = set()
    blocks: list[tuple[bytes, list[tuple[int, float, list[bytes], bytes]]]] = []
    for number, line in enumerate(octets.split(b"\n"), start=1):
        content, _, comment = line.partition(b"#")
        words = content.split()
        if not words:
            continue
        label = _float(words[0])
        is_named = len(words) > 1 and re.fullmatch(rb"qid:.+", words[1], re.DOTALL)
        is_text = all(map(_is_utf8, words[1:2] + _DOC_ID.findall(comment)[:1]))
        if not is_named or not is_text or not label >= 0.0 or not math.isfinite(_single(label)):
            refused.add(number)
        else:
            if not blocks or blocks[-1][0] != words[1][4:]:
                blocks.append((words[1][4:], []))
            blocks[-1][1].append((number, label, words[2:], comment))
    lists: list[tuple[Any, ...]] = []
    seen: set[bytes] = set()
    for query, items in blocks:
        if query in seen:
            refused.add(items[0][0])
            continue
        seen.add(query)
        rows = [(label, _row(words), comment) for _, label, words, comment in items]
        refused |= {item[0] for item, row in zip(items, rows, strict=True) if row[1] is None}
        good = [row for row in rows if row[1] is not None]
        if good:
            lists.append(_listed(query, good))
    return lists, refused


def _listed(query: bytes, rows: list[tuple[float, Any, bytes]]) -> tuple[Any, ...]:
    name = query.decode()
    ids = [_DOC_ID.search(comment) for *_, comment in rows]
    return (
        name,
        [_single(label) for label, *_ in rows],
        [row for _, row, _ in rows],
        [found[1].decode() if found else f"{name}:{i}" for i, found in enumerate(ids, start=1)],
    )


def _row(words: list[bytes]) -> list[float] | None:
    row: dict[int, float] = {}
    for word in words:
        index, _, value = word.partition(b":")
        place = int(index[-20:]) if re.fullmatch(rb"0*[0-9]{1,20}", index) else 0
        number = _single(_float(value))
        if not 1 <= place <= NUM_FEATURES or place in row or not math.isfinite(number):
            return None
        row[place] = number
    return [row.get(place, 0.0) for place in range(1, NUM_FEATURES + 1)]


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def _float(word: bytes) -> float:
    try:
        return math.nan if b"_" in word else float(word)
    except ValueError:
        return math.nan


def _single(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _plain(found: data.ItemList) -> tuple[Any, ...]:
    return found.query_id, found.labels.tolist(), found.features.tolist(), list(found.doc_ids)


def _parsed(parse: Callable[..., Any], octets: bytes) -> dict[str, Any] | None:
    try:
        parsed: dict[str, Any] = parse(tf.constant([octets]), SPEC)
    except REFUSED:
        return None
    return parsed


def _reads_back(
    serialize: Callable[..., bytes], parse: Callable[..., Any], parsed: dict[str, Any]
) -> None:
    one = {name: value[0].numpy() for name, value in parsed.items()}
    written = serialize(
        one["features"],
        SPEC,
        labels=one["relevance"],
        doc_ids=one["doc_id"].tolist(),
    )
    for name, value in parse(tf.constant([written]), SPEC).items():
        assert repr(value[0].numpy().tolist()) == repr(one[name].tolist()), name


def _slowly(octets: bytes, types: dict[str, int]) -> dict[str, np.ndarray]:
    return json_reader.to_inputs(json_reader.read_object(octets), types)


def _outcome(read: Callable[[], dict[str, Any]]) -> dict[str, str] | str:
    try:
        return {name: repr(value) for name, value in read().items()}
    except ServingError as error:
        return str(error)


def _memory() -> str | None:
    """A folder that is not on disk, if there is one."""
    return "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None


def _messages() -> Iterator[tuple[str, bytes]]:
    features = np.array([[1.0, 2.0], [3.0, 4.0]])
    parts = {"labels": [1.0, 0.0], "doc_ids": [b"a", b"b"], "query_id": b"q"}
    yield "elwc", elwc.serialize(features, SPEC, **parts)
    yield "packed", packed.serialize(features, SPEC, **parts)
    example = input_pb2.ExampleListWithContext.FromString(
        elwc.serialize(features, SPEC, **parts)
    ).examples[0]
    example.features.feature["clicks"].int64_list.value.extend([1, 2])
    inner = example.SerializeToString()
    yield "example", inner
    outer = tf.train.Example()
    outer.features.feature["serialized_examples"].bytes_list.value.extend([inner, inner])
    yield "example in example", outer.SerializeToString()
    sequence = tf.train.SequenceExample()
    for name, feature in example.features.feature.items():
        sequence.feature_lists.feature_list[name].feature.extend([feature, feature])
    yield "sequence", sequence.SerializeToString()


_MESSAGES = dict(_messages())
TARGETS: dict[str, Callable[[bytes], None]] = {
    "letor": letor_text,
    "elwc": elwc_message,
    "packed": packed_message,
    "parsing": named_message,
    "json": json_request,
    "config": config_file,
}
SEEDS: dict[str, list[bytes]] = {
    "letor": [
        b"2 qid:1 1:0.5 2:-1e-05 3:7 # docid = a\n0 qid:1 2:3 #\n1 qid:2 1:12345678.25\n",
        b"# comment\n\n1\tqid:a 3:1 1:2\r\n0 qid:b\n1 qid:a 1:1\nx qid:c 1:1\n0 qid:b 1:nan\n",
    ],
    "elwc": [_MESSAGES["elwc"]],
    "packed": [_MESSAGES["packed"]],
    "parsing": [
        bytes([i]) + _MESSAGES[name]
        for i, name in enumerate(("elwc", "example in example", "example", "sequence"))
    ],
    "json": [
        b'{"instances": [[1, 2.5], [3, -4e5]]}',
        b'{"signature_name": "s", "inputs": {"x": [[1.0]], "y": [7]}}',
        b'{"instances": [{"x": [1.5], "y": true}, {"x": [NaN], "y": false}]} tail',
        b'{"inputs": {"x": {"b64": "YWI="}}, "inputs": "\xff\\ud800"}',
    ],
    "config": [
        b'model_config_list { config { name: "a" base_path: "/m" model_platform: "tensorflow" '
        b'model_version_policy { specific { versions: 1 versions: 2 } } version_labels { key: "s" '
        b"value: 1 } } }",
        b"max_batch_size { value: 32 } allowed_batch_sizes: 8 allowed_batch_sizes: 32",
        b'prometheus_config { enable: true path: "/metrics" }',
        b'server_key: "k" server_cert: "c" client_verify: false',
        b"intra_op_parallelism_threads: 2 gpu_options { allow_growth: true }",
    ],
}
