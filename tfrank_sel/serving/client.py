"""The client of a served ranker."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.arguments import Checked, StrPath
from tfrank_sel.data import elwc, requests, typed, writing
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.errors import received
from tfrank_sel.export.inputs import ModelInputs
from tfrank_sel.export.saved_model import read_manifest
from tfrank_sel.serving import input_features, transports
from tfrank_sel.serving.protos import DataType
from tfrank_sel.serving.status import SESSION, Code, ServingError, check_session

_OUTPUTS = {
    "mask": DataType.DT_BOOL,
    "ranks": DataType.DT_INT32,
    "doc_ids": DataType.DT_STRING,
    "scores": DataType.DT_FLOAT,
}


@dataclasses.dataclass(frozen=True)
class Ranked:
    """An item and its rank.

    Args:
        rank: Its rank, from 1.
        doc_id: Its identifier.
        score: Its score.
    """

    rank: int
    doc_id: str
    score: float


class Ranker(Checked):
    """A ranker on a server: this package's endpoint, or TensorFlow Serving.

    A request that fails with UNAVAILABLE, or that the server cancels over gRPC, is repeated up to
    three times; other errors are not.

    The first request reads the inputs of the model from its signature `predict`, which
    distinguishes numbers, texts and integers. Booleans and timestamps need the manifest, too.

    Args:
        address: `HOST:PORT` of the gRPC service, or `http://HOST:PORT` of the REST API.
        model_name: Name of the model on the server.
        timeout: Maximum time of a request in seconds, with its repetitions.
        authority: PEM of the certificate authority of the server, for encrypted gRPC or for
            HTTPS.
        manifest: The manifest that `tfrank_sel.export.export` wrote, or the folder of its
            SavedModel.

    Raises:
        OSError: If the manifest cannot be read.
        ValueError: If it is not a manifest, or `address` is no address or has a password.
    """

    def __init__(
        self,
        address: str,
        model_name: str = "ranker",
        *,
        timeout: float = 10.0,
        authority: bytes | None = None,
        manifest: StrPath | None = None,
    ) -> None:
        self._manifest = {} if manifest is None else read_manifest(manifest)["features"]
        self._transport = transports.connect(address, model_name, timeout, authority)

    @functools.cached_property
    def takes(self) -> ModelInputs:
        """The inputs of the model, as the server and the manifest declare them."""
        signature = self._transport.signature("predict")
        try:
            inputs = input_features.of_model(signature, self._manifest)
        except ValueError as error:
            # The manifest belongs to another model.
            if self._manifest:
                raise
            raise self._error(f"must declare its inputs: {error}") from error
        if inputs is None:
            expected = "must have a signature `predict`, or be asked with its manifest"
            raise self._error(received(expected, "no such signature"))
        return inputs

    def num_features(self) -> int:
        """Returns the number of features of an item, as the server declares it.

        Raises:
            ServingError: If the server cannot be reached or the model takes no packed features.
        """
        return self._spec().num_features

    def rank(
        self,
        items: Any,
        doc_ids: Sequence[str] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        k: int | None = None,
        session: str | None = None,
    ) -> list[Ranked]:
        """Ranks the items of one list.

        Args:
            items: Inputs of the model. Packed features: an array `[list_size, num_features]`.
                Named ones: a dict for each item, a dict of columns, a pandas or polars DataFrame,
                or an Arrow table; see `tfrank_sel.data.requests.item_list`.
            doc_ids: Identifiers of the items; by default those among named features, or else the
                positions of the items, from 0.
            query: Named features of the query.
            k: Number of best items to return, positive; None for all.
            session: Name of the session, of 1 to 256 printable characters of ASCII, which a server
                that interleaves versions logs.

        Returns:
            The items, best first.

        Raises:
            ImportError: If features are named and pyarrow is not installed.
            ServingError: If the server cannot be reached or refuses the request, or the model takes
                packed features and not named ones, or the other way round.
            InputError: A ValueError, if the model does not take a named feature. The message
                names the item, the feature, the expected type and the received value.
            ValueError: If the sizes of `items` and `doc_ids` disagree, or for such a `session`.
        """
        if session is not None:
            check_session(session)
        if not isinstance(items, Mapping) and len(items) == 0:
            return []
        has_no_names = isinstance(items, np.ndarray) or (
            isinstance(items, Sequence) and not isinstance(items[0], Mapping)
        )
        serialized = self._pack if has_no_names else self._serialize_named
        example, size = serialized(items, doc_ids, query)
        inputs = {
            "examples": np.array([example], np.object_),
            "k": np.array([size if k is None else k], np.int32),
        }
        headers = {} if session is None else {SESSION: session}
        outputs = self._transport.predict("rank_top_k", inputs, _OUTPUTS, headers)
        shapes = {name: outputs[name].shape for name in _OUTPUTS}
        if {*shapes.values()} != {(1, outputs["mask"].size)}:
            expected = "An answer must have one list, of one size in all outputs"
            raise self._transport.error(Code.INTERNAL, received(expected, **shapes))
        mask, ranks, ids, scores = (outputs[name][0] for name in _OUTPUTS)
        if np.isnan(scores[mask]).any():
            expected = "An answer must have a score of each item"
            raise self._transport.error(Code.INTERNAL, received(expected, "NaN"))
        return [
            Ranked(int(rank), doc_id.decode("utf-8", "replace"), float(score))
            for rank, doc_id, score in zip(ranks[mask], ids[mask], scores[mask], strict=True)
        ]

    def _spec(self) -> FeatureSpec:
        inputs = self.takes
        if inputs.packed is None:
            expected = f"takes named features: {', '.join(inputs.types)}"
            raise self._error(received(expected, "packed features"))
        return inputs.packed

    def _pack(
        self, items: Any, doc_ids: Sequence[str] | None, query: Mapping[str, Any] | None
    ) -> tuple[bytes, int]:
        spec = self._spec()
        if query is not None:
            expected = f"takes {spec.num_features} packed features of items"
            raise self._error(received(expected, "also named features of the query"))
        spec = dataclasses.replace(spec, num_features=np.shape(items)[-1])
        names = range(len(items)) if doc_ids is None else doc_ids
        octets = [str(name).encode() for name in names]
        return elwc.serialize(items, spec, doc_ids=octets), len(items)

    def _serialize_named(
        self, items: Any, doc_ids: Sequence[str] | None, query: Mapping[str, Any] | None
    ) -> tuple[bytes, int]:
        types, doc_id, packed = self.takes.types, self.takes.doc_id, self.takes.packed
        if packed is not None:
            shape = f"[list_size, {packed.num_features}]"
            expected = f"takes packed features, an array of shape {shape}"
            raise self._error(received(expected, "named features"))
        one = requests.item_list(items, types, query=query, doc_ids=doc_ids, doc_id=doc_id)
        size, values = len(one.doc_ids), {doc_id: one.doc_ids, **typed.values(one, types)}
        context = {x: values.pop(x) for x, kind in types.items() if kind.of == "query"}
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        return writing.elwc(rows, context), size

    def _error(self, reason: str) -> ServingError:
        message = f"Model {self._transport.model_name} {reason}"
        return self._transport.error(Code.FAILED_PRECONDITION, message)

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def __enter__(self) -> "Ranker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
