"""CPU ratios that a busy machine does not change, each beside its recorded value.

    python -m benchmarks.speed.ratios [--only run stream steps classes als suite] [--record]

Each ratio is the CPU time of ours over that of a measure from the same minutes: a default run over
the import of TensorFlow; training on a stream of 200 shapes over that of keras-rs; loss and
gradient as a plain graph, of known and of unknown sizes, over a fused softmax, and of an index
among many classes over TensorFlow's sparse cross-entropy; a sweep of conjugate gradients over that
of implicit; the last `make test` over the import. A ratio of more than 1.25
times the value in `ratios.json` is marked, and the status is 1. `--record` writes the values found.
A peer that is not installed is left out, and named.
"""

import argparse
import functools
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

LIMIT = 1.25
RECORDED = pathlib.Path(__file__).with_suffix(".json")
SUITE = pathlib.Path("build/default.times")  # what `times` of the shell tells of `make test`
ROUNDS = 3

Found = tuple[str, float | str]  # what is compared, and the ratio or why there is none


@functools.cache
def importing() -> float:
    """CPU seconds of `import tensorflow`."""
    code = "import time, tensorflow; print(time.process_time())"
    return min(float(_told([sys.executable, "-c", code])) for _ in range(ROUNDS))


def run() -> Iterator[Found]:
    lines = _told([sys.executable, "-m", "benchmarks.speed.phases", "--rounds", str(ROUNDS)])
    *_, together = lines.splitlines()
    yield "default run / import of TensorFlow", float(together.split()[3]) / importing()


def stream() -> Iterator[Found]:
    command = [sys.executable, "-m", "benchmarks.speed.compile"]
    # keras-rs is the peer here, and tensorflow-ranking needs another stack
    lines = _told([*command, "--tensorflow-ranking", sys.executable]).splitlines()
    cells = [[x.strip() for x in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    seconds = {(name, library): float(first) for name, library, _, first, _ in cells[2:]}
    peer = seconds.get(("pairwise logistic", "keras_rs"))
    for (name, library), first in seconds.items():
        if library == "tfrank_sel":
            case = f"stream of shapes, {name} / keras-rs' pairwise logistic"
            yield case, first / peer if peer else "keras-rs is not installed"


def steps() -> Iterator[Found]:
    from benchmarks.speed.interleaved import timings, use_one_core

    use_one_core()
    import numpy as np
    import tensorflow as tf

    from benchmarks.speed.losses import fused_softmax, step_of
    from tfrank_sel import links, losses

    rng = np.random.default_rng(0)
    shape = (64, 120)
    y_true = tf.constant(rng.integers(0, 3, shape), tf.float32)
    y_pred = tf.constant(rng.normal(size=shape), tf.float32)
    of_family = (
        losses.MeanSquaredLoss(),
        losses.SoftmaxLoss(),
        losses.InfoNCELoss(),
        losses.PolyOneSoftmaxLoss(),
        losses.ZLPRLoss(),
        losses.RG2Loss(),
        losses.RGCrossLoss(),
        losses.MatchingLoss(links.Exp(scale=0.5)),
        losses.SelectiveSoftmaxLoss(links.Exp(scale=0.5)),
        losses.TopKHingeLoss(5),
        losses.SmoothTopKLoss(5),
        losses.TopKCrossEntropyLoss([1, 5]),
        losses.ListMLELoss(),
        losses.UniqueSoftmaxLoss(),
        losses.PairwiseLogisticLoss(),
        losses.PairwiseHingeLoss(),
        losses.CircleLoss(),
        losses.LambdaLoss(),
        losses.YetiLogisticLoss(),
        losses.ApproxNDCGLoss(),
        losses.ApproxNDCGLoss(link=links.Laplace()),
        losses.NeuralSortNDCGLoss(),
        losses.SpearmanLoss(),
        losses.SoftRankLoss(),
    )
    floor = step_of(fused_softmax, y_true, y_pred, jit_compile=False)
    for loss in of_family:
        name = type(loss).__name__
        if getattr(loss, "link", None) is not None:
            name += f"({type(loss.link).__name__})"
        calls = {
            knows_sizes: step_of(loss, y_true, y_pred, False, knows_sizes)
            for knows_sizes in (True, False)
        }
        taken = timings({**calls, "floor": floor}, rounds=15)
        for knows_sizes, suffix in ((True, ""), (False, ", unknown sizes")):
            ratio = taken[knows_sizes].seconds / taken["floor"].seconds
            yield f"step, {name}{suffix} / fused softmax", ratio


def classes() -> Iterator[Found]:
    """One index among 100,000 classes, of a graph that knows their number or not."""
    from benchmarks.speed.interleaved import timings, use_one_core

    use_one_core()
    import numpy as np
    import tensorflow as tf

    from benchmarks.speed.losses import step_of
    from tfrank_sel import losses

    rng = np.random.default_rng(0)
    shape = (128, 100_000)
    y_true = tf.constant(rng.integers(0, shape[1], shape[:1]), tf.int32)
    y_pred = tf.constant(rng.normal(size=shape), tf.float32)

    def sparse(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred))

    floor = step_of(sparse, y_true, y_pred, jit_compile=False)
    for loss in (
        losses.SoftmaxLoss(),
        losses.InfoNCELoss(),
        losses.MarginSoftmaxLoss(),
        losses.RG2Loss(),
        losses.RGCrossLoss(),
        losses.ZLPRLoss(),
        losses.TopKHingeLoss(5),
        losses.SmoothTopKLoss(5),
        losses.TopKCrossEntropyLoss([1, 5]),
    ):
        calls = {
            suffix: step_of(loss, y_true, y_pred, False, not suffix)
            for suffix in ("", ", unknown sizes")
        }
        taken = timings({**calls, "floor": floor}, rounds=5)
        for suffix in calls:
            ratio = taken[suffix].seconds / taken["floor"].seconds
            yield f"index, {type(loss).__name__}{suffix} / sparse cross-entropy", ratio


def als() -> Iterator[Found]:
    from benchmarks.speed import rg
    from benchmarks.speed.interleaved import timings

    train = rg.random_interactions(10**6)
    for width in (64, 128):
        case = f"ALS by conjugate gradients, K = {width} / implicit"
        try:
            theirs = rg.implicit_sweep(train, True, 1, width)
        except ImportError as error:
            yield case, f"{error}"
            continue
        ours = rg.our_sweep(train, rg.als.RG2(0.1), 3, 1, width)
        taken = timings({"ours": ours, "theirs": theirs}, rounds=3)
        yield case, taken["ours"].seconds / taken["theirs"].seconds


def suite() -> Iterator[Found]:
    case = "make test / import of TensorFlow"
    if SUITE.exists():
        *_, children = SUITE.read_text(encoding="utf-8").splitlines()
        taken = sum(60 * int(m) + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", children))
        yield case, taken / importing()
    else:
        yield case, f"{SUITE} is missing: `make test` writes it"


PARTS: dict[str, Callable[[], Iterator[Found]]] = {
    x.__name__: x for x in (run, stream, steps, classes, als, suite)
}


def _told(command: list[str]) -> str:
    """What a command prints; what it tells of its work is shown where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def main() -> None:
    """Prints a row for each ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    recorded: dict[str, float] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    slower = False
    print("| ratio of CPU time | recorded | now | |\n|---|---|---|---|")
    for part in options.only:
        for case, ratio in PARTS[part]():
            if isinstance(ratio, str):
                print(f"| {case} | | | left out: {ratio} |", flush=True)
                continue
            before = recorded.get(case, ratio)
            verdict = "SLOWER" if ratio > LIMIT * before else ""
            slower |= bool(verdict)
            print(f"| {case} | {before:.3g} | {ratio:.3g} | {verdict} |", flush=True)
            if options.record:
                recorded[case] = round(ratio, 3)
    if options.record:
        RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
    sys.exit(slower and not options.record)


if __name__ == "__main__":
    main()
