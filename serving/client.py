"""The client of a served ranker."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving import tensor_protos
from serving.status import Code, ServingError
from tfrank_sel.data import elwc
from tfrank_sel.data.spec import FeatureSpec

_ANY_SIZE = -1


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


class Ranker:
    """A ranker behind gRPC: this package's endpoint, or a TensorFlow Serving server.

    Args:
        address: `HOST:PORT` of the gRPC service.
        model_name: Name of the model there.
        timeout: Seconds that a request may take.
    """

    def __init__(self, address: str, model_name: str = "ranker", *, timeout: float = 10.0) -> None:
        self.address = address
        self.model_name = model_name
        self.timeout = timeout
        options = [
            ("grpc.max_receive_message_length", _ANY_SIZE),
            ("grpc.max_send_message_length", _ANY_SIZE),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def num_features(self) -> int:
        """Asks how many features describe an item.

        Raises:
            ServingError: If the server cannot be reached or the model is no ranker.
        """
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = self.model_name
        response = self._call(self._stub.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        inputs = signatures.signature_def["predict"].inputs
        if "features" not in inputs or len(inputs["features"].tensor_shape.dim) != 3:
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"Model {self.model_name} at {self.address} must have a signature `predict` with "
                f"`features` of 3 axes. Received: {', '.join(signatures.signature_def)}",
            )
        return int(inputs["features"].tensor_shape.dim[2].size)

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
        size = np.array(max(len(names), 1) if k is None else k, np.int32)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model_name
        request.model_spec.signature_name = "rank_top_k"
        tensor_protos.to_proto(example, request.inputs["examples"])
        tensor_protos.to_proto(size, request.inputs["k"])
        response = self._call(self._stub.Predict, request)
        mask, ranks, ids, scores = (
            tensor_protos.to_array(name, response.outputs[name])[0]
            for name in ("mask", "ranks", "doc_ids", "scores")
        )
        return [
            Ranked(int(rank), doc_id.decode("utf-8", "replace"), float(score))
            for rank, doc_id, score in zip(ranks[mask], ids[mask], scores[mask], strict=True)
        ]

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __enter__(self) -> "Ranker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self.timeout)
        except grpc.RpcError as error:
            code, details = Code(error.code().value[0]), error.details()
            raise ServingError(code, f"{self.address}: {code.name}: {details}") from error
