"""A run of the pipeline: data, loss, model, baseline and rules, to copy and edit.

pip install '.[pipelines]'
python pipelines/run.py
"""

from pathlib import Path

import keras
from rich.console import Console

from tfrank_sel import models
from tfrank_sel.pipelines.candidates import Settings
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.run import run

OUTPUT = Path("runs/definition")
CONFIGURATION = {
    "data": {
        "synthetic": True,  # replace by "data": files or globs, such as ["clicks/*.parquet"]
        "query": "query_id",
        "label": "relevance",
        "split": [80.0, 10.0, 10.0],  # shares of train, validation and test
    },
    "model": {"class": f"{__name__}:model", "hidden_units": [64, 32], "dropout": 0.3},
    "training": {"loss": "RGCrossLoss", "epochs": 20},
    "evaluation": {"baseline": "SoftmaxLoss"},
    "blessing": {"metric": "NDCG@10", "margin": 0.02},  # the largest drop below the baseline
}


def model(preparation: models.Preparation, settings: Settings) -> keras.Model:
    """Makes the model, from the layer that prepares the features."""
    units, embeddings = settings.hidden_units, preparation.embeddings
    network = models.Perceptron(units, settings.dropout, embeddings=embeddings)
    return models.Prepared(preparation, network)


def main() -> None:
    """Trains, evaluates and publishes a ranker; what is done already is not done again."""
    result = run(Configuration.model_validate(CONFIGURATION), OUTPUT, Progress(Console()))
    assert result.push_outcome is not None
    print(result.push_outcome.saved_model or f"Not published: {result.push_outcome.reasons}")


if __name__ == "__main__":
    main()
