"""The client of a served ranker."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from tensorflow.core.framework import types_pb2

from tfrank_sel.arguments import Checked
from tfrank_sel.data import elwc
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.serving import transports
from tfrank_sel.serving.status import Code

_OUTPUTS = {
    "mask": types_pb2.DT_BOOL,
    "ranks": types_pb2.DT_INT32,
    "doc_ids": types_pb2.DT_STRING,
    "scores": types_pb2.DT_FLOAT,
}


@dataclasses.dataclass(frozen=True)
class Ranked:
    """An item in its place.

    Args:
        rank: Its place, from 1.
        doc_id: Its identifier.
        score: Its score.
    """

    rank: int
    doc_id: str
    score: float


class Ranker(Checked):
    """A ranker on a server: this package's endpoint, or TensorFlow Serving.

    A server that says UNAVAILABLE is asked up to three times more; no other error is tried again.

    Args:
        address: `HOST:PORT` of the gRPC service, or `http://HOST:PORT` of the REST API.
        model_name: Name of the model there.
        timeout: Seconds that a request may take.
        authority: PEM of the certificate authority of a server that encrypts gRPC, or that HTTPS
            is checked against.
    """

    def __init__(
        self,
        address: str,
        model_name: str = "ranker",
        *,
        timeout: float = 10.0,
        authority: bytes | None = None,
    ) -> None:
        self._transport = transports.connect(address, model_name, timeout, authority)

    def num_features(self) -> int:
        """Asks how many features describe an item.

        Raises:
            ServingError: If the server cannot be reached or the model is no ranker.
        """
        shapes = self._transport.input_shapes("predict")
        if len(shapes.get("features", [])) != 3:
            raise self._transport.error(
                Code.FAILED_PRECONDITION,
                f"Model {self._transport.model_name} must have a signature `predict` with "
                f"`features` of 3 axes. Received: {shapes or 'no such signature'}",
            )
        return shapes["features"][2]

    def rank(
        self, features: np.ndarray, doc_ids: Sequence[str], *, k: int | None = None
    ) -> list[Ranked]:
        """Ranks the items of one list.

        Args:
            features: Their features, of shape `[list_size, num_features]`.
            doc_ids: Their identifiers.
            k: How many of the first to return, or None for all; positive.

        Returns:
            The items, best first.

        Raises:
            ServingError: If the server cannot be reached or refuses the request.
            ValueError: If the sizes of `features` and `doc_ids` disagree.
        """
        spec = FeatureSpec(num_features=np.shape(features)[-1])
        names = [name.encode() for name in doc_ids]
        example = np.array([elwc.serialize(features, spec, doc_ids=names)], np.object_)
        size = np.array([max(len(names), 1) if k is None else k], np.int32)
        inputs = {"examples": example, "k": size}
        outputs = self._transport.predict("rank_top_k", inputs, _OUTPUTS)
        mask, ranks, ids, scores = (outputs[name][0] for name in _OUTPUTS)
        return [
            Ranked(int(rank), doc_id.decode("utf-8", "replace"), float(score))
            for rank, doc_id, score in zip(ranks[mask], ids[mask], scores[mask], strict=True)
        ]

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def __enter__(self) -> "Ranker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
