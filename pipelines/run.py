"""A run of the pipeline: data, loss, model, baseline and rules, to copy and edit.

pip install 'tfrank_sel[pipelines]'
python pipelines/run.py
"""

from pathlib import Path

import keras
from rich.console import Console

from tfrank_sel import losses, models
from tfrank_sel.data.formats import Columns
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation.blessing import Rules
from tfrank_sel.pipelines.ingestion.inputs import Inputs, expand
from tfrank_sel.pipelines.run import Plan, run

DATA: list[str] = []  # files or globs, such as "clicks/*.parquet"; a synthetic set if empty
OUTPUT = Path("runs/definition")
COLUMNS = Columns(query="query_id", label="relevance", doc_id="doc_id")
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}  # of the queries
SETTINGS = Settings(epochs=20, hidden_units=(64, 32), dropout=0.3)
RULES = Rules(metric="NDCG@10", margin=0.02)  # the largest drop below the baseline


def model(preparation: models.Preparation, settings: Settings) -> keras.Model:
    """Makes the model, from the layer that prepares the features."""
    units, embeddings = settings.hidden_units, preparation.embeddings
    network = models.Perceptron(units, settings.dropout, embeddings=embeddings)
    return models.Prepared(preparation, network)


def main() -> None:
    """Trains, evaluates and publishes a ranker."""
    plan = Plan(
        inputs=Inputs(expand(DATA), COLUMNS, shares=SHARES) if DATA else None,
        rules=RULES,
        candidate=Candidate(losses.RGCrossLoss(), model),
        baseline=Candidate(losses.SoftmaxLoss(), model),
    )
    result = run(plan, OUTPUT, SETTINGS, Progress(Console()))
    print("Published" if result.blessing.blessed else f"Not published: {result.blessing.reasons}")


if __name__ == "__main__":
    main()
