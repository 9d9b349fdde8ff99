"""Top-1 and top-5 accuracy with label noise or few rows, of cross-entropy and losses of top 5.

    python -m benchmarks.quality.label_noise --results noise
    python -m benchmarks.quality.label_noise --results noise --shares  # of the training rows

Classes come in superclasses of five; with probability p a label of training or validation becomes a
random one of its superclass. So even with p = 1 the right class can be among five. The sets are
scikit-learn's digits, images of numbers of two digits, which are 100 classes in 20 superclasses,
and 100 overlapping Gaussian classes. A small network learns from each loss with five
seeds, at the learning rate of two that is best on the (noisy) validation rows by the accuracy in
question. Test labels are clean. What `--results` holds is not computed again.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn import datasets

from benchmarks.quality.stacked import Networks, Settings
from benchmarks.speed.interleaved import machine
from tfrank_sel import losses

NOISES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SHARES = (1.0, 0.5, 0.25, 0.125)
SEEDS = range(5)
LEARNING_RATES = (1e-3, 4e-3)
LOSSES = {
    "cross-entropy": losses.SoftmaxLoss(reduction="sum"),
    "smooth top-5": losses.SmoothTopKLoss(5, tau=1.0, reduction="sum"),
    "cross-entropy of top 1 and 5": losses.TopKCrossEntropyLoss([1, 5], reduction="sum"),
}
HIDDEN = (128,)
BATCH_SIZE = 100
STEPS = 1500
SUPERCLASS = 5

# features, classes, and the part (0 to learn from, 1 to choose by, 2 to test on) where it is fixed
Rows = tuple[np.ndarray, np.ndarray, np.ndarray | int]


def digits() -> Rows:
    """The 1,797 images of digits, as 64 grey values from 0 to 1."""
    features, classes = datasets.load_digits(return_X_y=True)
    return (features / 16.0).astype(np.float32), classes, 0


def numbers() -> Rows:
    """10,000 images of numbers of two digits, each from two images of `digits`.

    An image of a digit occurs in one part only. The numbers of a superclass have the same first
    digit, and second digits below or from 5 on.
    """
    random = np.random.default_rng(0)
    features, classes, _ = digits()
    of_digit = random.choice(3, len(classes), p=[0.6, 0.2, 0.2])
    part = np.repeat([0, 1, 2], [6000, 2000, 2000])
    number = random.permutation(len(part)) % 100
    images = []
    for digit in (number // 10, number % 10):
        chosen = np.empty(len(part), int)
        for key in np.unique(np.stack([part, digit]), axis=1).T:
            rows = np.flatnonzero((part == key[0]) & (digit == key[1]))
            own = np.flatnonzero((of_digit == key[0]) & (classes == key[1]))
            chosen[rows] = random.choice(own, len(rows))
        images.append(features[chosen])
    return np.concatenate(images, axis=1), number, part


def gaussians() -> Rows:
    """8,000 points of 100 classes in 32 dimensions; the classes of a superclass are neighbours."""
    random = np.random.default_rng(0)
    groups = np.repeat(0.6 * random.normal(size=(20, 32)), SUPERCLASS, axis=0)
    means = groups + 0.5 * random.normal(size=groups.shape)
    classes = random.permutation(np.repeat(np.arange(100), 80))
    features = means[classes] + 0.7 * random.normal(size=(len(classes), 32))
    return features.astype(np.float32), classes, 0


SETS = {"digits": digits, "numbers": numbers, "100 Gaussians": gaussians}


def noisy(classes: np.ndarray, noise: float, random: np.random.Generator) -> np.ndarray:
    """Draws each class anew within its superclass, with probability `noise`."""
    drawn = classes // SUPERCLASS * SUPERCLASS + random.integers(SUPERCLASS, size=len(classes))
    return np.where(random.random(len(classes)) < noise, drawn, classes)


def accuracy(outputs: np.ndarray, classes: np.ndarray, k: int) -> np.ndarray:
    """Share of the rows of each network whose class is among its `k` best outputs."""
    best = np.argpartition(-outputs, k - 1, axis=-1)[..., :k]
    return (best == classes[..., np.newaxis]).any(axis=-1).mean(axis=-1)


def experiment(
    name: str, loss: losses.ListwiseLoss, noises: Sequence[float], shares: Sequence[float]
) -> dict[int, np.ndarray]:
    """Test accuracy at 1 and 5 of each noise, share and seed, by the best learning rate.

    Of shape `[noises * shares, seeds]`. A share is that of the rows to learn from.
    """
    features, classes, part = SETS[name]()
    count = len(classes)
    runs = list(itertools.product(noises, shares, SEEDS, LEARNING_RATES))
    parts = np.broadcast_to(part, count)
    orders = (np.random.default_rng(s).permutation(count) for _, _, s, _ in runs)
    rows = np.stack([order[np.argsort(parts[order], kind="stable")] for order in orders])
    learned, held_out, test = np.split(rows, [6 * count // 10, 8 * count // 10], axis=1)
    sizes = np.array([[round(share * learned.shape[1])] for _, share, _, _ in runs])
    labels = np.stack(
        [noisy(classes, n, np.random.default_rng([s, int(10 * n)])) for n, _, s, _ in runs]
    )
    networks = Networks(
        (features.shape[1], *HIDDEN, classes.max() + 1),
        [Settings(s, r) for _, _, s, r in runs],
        lambda targets, outputs: loss(
            tf.one_hot(tf.reshape(targets, [-1]), outputs.shape[-1]),
            tf.reshape(outputs, [-1, outputs.shape[-1]]),
            1.0 / BATCH_SIZE,
        ),
    )
    random = np.random.default_rng(0)
    each = np.arange(len(runs))[:, np.newaxis]
    for step in range(STEPS):
        drawn = random.integers(learned.shape[1], size=BATCH_SIZE)
        batch = learned[each, drawn % sizes]
        networks.step(features[batch], labels[each, batch])
        if sys.stderr.isatty() and step % 50 == 0:
            print(f"\r{name}, {loss.name}: step {step}/{STEPS}", end="", file=sys.stderr)
    on_held_out = networks.predict(features[held_out]).numpy()
    on_test = networks.predict(features[test]).numpy()
    found = {}
    shape = len(noises) * len(shares), len(SEEDS), len(LEARNING_RATES)
    for k in (1, SUPERCLASS):
        validation = accuracy(on_held_out, labels[each, held_out], k).reshape(shape)
        best = validation.argmax(axis=-1)[..., np.newaxis]
        values = accuracy(on_test, classes[test], k).reshape(shape)
        found[k] = np.take_along_axis(values, best, axis=-1)[..., 0]
    return found


def stored(
    folder: pathlib.Path, name: str, label: str, shares: Sequence[float]
) -> dict[int, np.ndarray]:
    """The result of `experiment` by noise, or by share, computed unless it is stored."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}, {label}{', by share' if shares else ''}.json"
    if not path.exists():
        axes = ((0.0,), shares) if shares else (NOISES, (1.0,))
        found = experiment(name, LOSSES[label], *axes)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({k: values.tolist() for k, values in found.items()}))
        partial.rename(path)
    return {int(k): np.array(values) for k, values in json.loads(path.read_text()).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--results", type=pathlib.Path, required=True, help="folder to keep results in"
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--shares", action="store_true", help="by training rows, without noise")
    options = parser.parse_args()
    lines = [f"{machine()}; mean and deviation of five seeds, in %", ""]
    places, shares = (SHARES, SHARES) if options.shares else (NOISES, ())
    head = "{} of the rows" if options.shares else "p = {}"
    lines += ["| set | top | loss |" + "".join(f" {head.format(x)} |" for x in places)]
    lines += ["|---|---|---|" + "---|" * len(places)]
    for name in options.sets:
        found = {label: stored(options.results, name, label, shares) for label in options.losses}
        for k in (1, SUPERCLASS):
            for label, values in found.items():
                mean, spread = 100 * values[k].mean(axis=1), 100 * values[k].std(axis=1, ddof=1)
                cells = (f" {m:.1f} ± {s:.1f} |" for m, s in zip(mean, spread, strict=True))
                lines.append(f"| {name} | {k} | {label} |" + "".join(cells))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
