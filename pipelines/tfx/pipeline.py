"""A TFX pipeline on this machine: data, loss, model and rules, to copy and edit.

    pipelines/tfx/environment.sh .venv-tfx python3.11 'tfrank_sel[tfx,serving]'
    .venv-tfx/bin/python pipelines/tfx/pipeline.py

To run it on Kubeflow Pipelines or Vertex AI, see "TFX" in docs/scale.md: there the loss and
the function that makes the model must be of a module in the image.
"""

from pathlib import Path

from rich.console import Console

from tfrank_sel import losses
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation.blessing import Rules
from tfrank_sel.pipelines.tfx import local
from tfrank_sel.pipelines.tfx.pipeline import pipeline

DATA = Path("lists")  # TFRecord files of SequenceExample
OUTPUT = Path("runs/tfx")
SETTINGS = Settings(epochs=20)
RULES = Rules(metric="NDCG@10", margin=0.02)  # the largest drop below the last blessed model
CANDIDATE = Candidate(losses.RGCrossLoss())


def main() -> None:
    """Trains a ranker, evaluates it, and pushes it if it is blessed."""
    output = OUTPUT.absolute()
    output.mkdir(parents=True, exist_ok=True)
    composed = pipeline(
        str(DATA.absolute()),
        str(output / "artefacts"),
        str(output / "serving" / "ranker"),
        SETTINGS,
        RULES,
        CANDIDATE,
        metadata=str(output / "metadata.sqlite"),
    )
    outcome = local.run(composed, output / "metadata.sqlite", Progress(Console()))
    print(f"Pushed {outcome.version}" if outcome.version else f"Not pushed: {outcome.objections}")


if __name__ == "__main__":
    main()
