"""More cases in the form of the recorded ones: of differences that no recorded case has."""

from typing import Any

from tests.golden.vectors import Case


def case(loss: str, scenario: str, y_true: Any, y_pred: Any) -> Case:
    return {
        "id": f"{loss}/{scenario}",
        "loss": loss,
        "kwargs": {},
        "lambda_weight": None,
        "ragged": False,
        "scenario": scenario,
        "weight_kind": "w_none",
        "y_true": y_true,
        "y_pred": y_pred,
        "sample_weight": None,
        "deterministic": True,
    }


CASES = [
    case("losses_impl.CircleLoss", "overflow", [[1.0, 2.0, -1.0]], [[0.0, 0.9, 1.0]]),
    case("losses_impl.NeuralSortCrossEntropyLoss", "small_shares", [[1.0, 0.0]], [[-30.0, 30.0]]),
]
