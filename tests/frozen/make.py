"""Makes the artefacts that a version of the library keeps on disk, for the test of upgrades.

    PYTHONPATH=CHECKOUT python tests/frozen/make.py tests/frozen/COMMIT.tar.xz

The package is that of the checkout, such as one of an earlier version. The archive has a run, and
what the classes of the library save, beside the numbers that they gave: `values.npz`.
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import tensorflow as tf

from tfrank_sel.clicks.propensities import Propensities
from tfrank_sel.data.cache import Cache
from tfrank_sel.models.als import RGFactorizer

ROOT = "@ROOT@"  # stands for the folder in files of a run that hold paths
HOLDERS = ("config.toml", "manifest.json", "fit.json")
RUN = (
    *("--epochs", "9", "--batch-size", "8", "--split", "70,15,15"),
    *("--set", "model.hidden_units=[4]", "--set", "model.trees=false"),
    *("--set", "training.loss.class='SoftmaxLoss'"),
)
PAIRS = np.arange(200) % 20, np.arange(200) ** 2 % 37 % 12


def lists(random: np.random.Generator) -> str:
    """Lists of a file of LETOR: labels that grow with a feature."""
    lines = []
    for query in range(60):
        for x, y in random.normal(size=(8, 2)):
            lines.append(f"{int(np.clip(x + 1.0, 0.0, 3.0))} qid:{query} 1:{x:.3f} 2:{y:.3f}")
    return "\n".join(lines) + "\n"


def scores(saved_model: pathlib.Path) -> np.ndarray:
    """The scores of a few items by an exported ranker."""
    signatures = tf.saved_model.load(str(saved_model)).signatures.values()
    taken = [(x, x.structured_input_signature[1]) for x in signatures]
    given = {
        "features": tf.reshape(tf.linspace(-1.0, 1.0, 12), [2, 3, 2]),
        "mask": tf.ones([2, 3], tf.bool),
    }
    signature, inputs = next(x for x in taken if set(x[1]) <= set(given))
    return signature(**{name: given[name] for name in inputs})["scores"].numpy()


def make(folder: pathlib.Path) -> None:
    """Writes the artefacts to a folder."""
    (folder / "lists.txt").write_text(lists(np.random.default_rng(0)))
    data = ["--data", str(folder / "lists.txt"), "--output", str(folder / "run")]
    command = [sys.executable, "-m", "tfrank_sel.pipelines", "run", *data, *RUN]
    done = subprocess.run(command)
    if done.returncode not in (0, 3):  # 3: the model is not better, and not published
        raise SystemExit(done.returncode)
    factorizer = RGFactorizer(num_factors=3, sweeps=2, regularization=0.1, num_threads=1, seed=0)
    factorizer.fit(PAIRS)
    factorizer.save(folder / "factorizer")
    ends = np.linspace(1.0, 0.2, 8)
    made = Propensities(np.arange(1, 9), ends, 0.9 * ends, 1.1 * ends, "pbm")
    made.save(folder / "propensities")
    inputs = {"features": np.ones([2, 3, 2], np.float32), "mask": np.ones([2, 3], bool)}
    Cache.write([(inputs, np.ones([2, 3], np.float32))], folder / "cache")
    np.savez(
        folder / "values.npz",
        scores=scores(folder / "run" / "export" / "saved_model"),
        products=factorizer.user_factors_ @ factorizer.item_factors_.T,
        propensities=ends,
    )


def main() -> None:
    (archive,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve() / "frozen"
        folder.mkdir()
        make(folder)
        for path in folder.rglob("*"):
            if path.name in HOLDERS:
                path.write_text(path.read_text().replace(str(folder), ROOT))
        with tarfile.open(archive, "w:xz") as file:
            file.add(folder, "")


if __name__ == "__main__":
    main()
