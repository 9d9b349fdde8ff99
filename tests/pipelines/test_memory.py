import subprocess
import sys
from pathlib import Path

from benchmarks.speed import ingest_memory

ROOT = Path(__file__).parents[2]
STEPS = """
import sys
from pathlib import Path
from benchmarks.speed import ingest_memory
from tfrank_sel.pipelines.evaluation import evaluation
from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists
from tfrank_sel.pipelines.analysis import schema, statistics
from tfrank_sel.pipelines.files import folders
from tfrank_sel import data, models

for name in sys.argv[1:]:
    folder = Path(name).with_suffix("")
    ingest_memory.measure(Path(name), folder)
    spec = data.FeatureSpec(ingest_memory.FEATURES)
    shards = folders.shards(folder / "records" / "train")
    found = statistics.summarise({"train": shards}, spec, folder)["train"]
    inferred = schema.infer(found, spec, folder / "schema.pbtxt")
    schema.validate({"test": shards}, inferred, spec, folder)
    model = models.ListScorer([0.0] * spec.num_features, [1.0] * spec.num_features, [4])
    model.build((None, None, spec.num_features))
    evaluation.evaluate(model, model, StoredLists(shards, spec), str(folder), seed=0)
    print(ingest_memory.peak())
"""


def test_five_times_the_rows_take_no_more_memory(tmp_path):
    """The larger file has 20 MB of features, which Beam's local runner would hold several times."""
    paths = [tmp_path / f"{rows}.txt" for rows in (50_000, 250_000)]
    for path in paths:
        ingest_memory.make(path, int(path.stem))
    command = [sys.executable, "-c", STEPS, *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    small, all_small, large, all_large = (
        [float(word) for word in line.split()] for line in done.stdout.splitlines()
    )
    assert large[-1] == 2500
    before = max(small[1], all_small[0])
    assert large[1] - before < 20.0  # MiB, of ingest
    assert all_large[0] - before < 40.0  # of the other steps, whose batches are fuller too


def test_scoring_of_five_times_the_lists_takes_no_more_memory(tmp_path):
    command = [sys.executable, "-m", "benchmarks.speed.scoring", "--lists", "4000", "20000"]
    command += ["--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = done.stdout.replace(",", "").splitlines()[2:]
    small, large = (line.split(" | ") for line in rows)
    assert large[0] == "| 20000"
    assert int(large[2]) - int(small[2]) < 20  # MiB; the features have 32 MB
    assert large[-1] == "2 |"  # files
