"""Quality of the members of the softmax family, compared with their plain counterparts.

Lists are scored by a linear model that sees a part of what grades depend on, multi-label rows
by one that sees all; every value is the mean over seeds on fresh data.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfrank_sel import losses, metrics

SEEDS = range(4)
EPOCHS = 30


def lists(seed: int, num_lists: int) -> tuple[Any, Any]:
    """Lists of 40 items, of which few are relevant, with features of heavy tails."""
    rng = np.random.default_rng(seed)
    features = rng.standard_t(3, size=(num_lists, 40, 6)).astype(np.float32)
    utility = features @ [1.0, 1.0, -1.0, 0.5, 0.0, 0.0] + features[..., 4] * features[..., 5]
    return features, (utility > np.quantile(utility, 0.9)).astype(np.float32)


def rows(seed: int, num_rows: int) -> tuple[Any, Any]:
    """Rows of 50 labels, of which each holds for about one row in thirty."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_rows, 20)).astype(np.float32)
    directions = np.random.default_rng(99).normal(size=(20, 50)) / np.sqrt(20.0)
    return features, (features @ directions + 0.5 * rng.normal(size=(num_rows, 50)) > 2.0).astype(
        np.float32
    )


def linear(width: int | None) -> keras.Model:
    """One score an item, or one score a label."""
    if width is not None:
        return keras.Sequential([keras.layers.Dense(width)])
    return keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape([-1])])


def trained(loss: Any, data: Callable[[int, int], Any], width: int | None, seed: int) -> Any:
    """Labels and scores of fresh data, by a model that was trained with the loss."""
    keras.utils.set_random_seed(seed)
    model = linear(width)
    model.compile(keras.optimizers.Adam(0.01), loss=loss, jit_compile=True)
    model.fit(*data(seed, 512), batch_size=32, epochs=EPOCHS, verbose=0)
    features, labels = data(1000 + seed, 512)
    return labels, model.predict(features, batch_size=512, verbose=0)


def row(name: str, values: Any) -> str:
    mean, deviation = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
    cells = (f" {m:.3f}±{d:.3f} |" for m, d in zip(mean, deviation, strict=True))
    return f"| {name} |" + "".join(cells)


def rank(name: str, loss: Any) -> None:
    values = []
    for seed in SEEDS:
        labels, scores = trained(loss, lists, None, seed)
        measures = (metrics.NDCG(k=10), metrics.MAP(), metrics.MRR())
        values.append([float(measure(labels, scores)) for measure in measures])
    print(row(name, values), flush=True)


def label(name: str, loss: Any) -> None:
    values = []
    for seed in SEEDS:
        labels, scores = trained(loss, rows, 50, seed)
        holds = scores > 0.0
        hits = np.sum(holds * labels)
        values.append([hits / max(np.sum(holds), 1.0), hits / np.sum(labels)])
        values[-1].append(2.0 * hits / (np.sum(holds) + np.sum(labels)))
    print(row(name, values), flush=True)


def main() -> None:
    print("| lists | NDCG@10 | MAP | MRR |\n|---|---|---|---|")
    rank("SoftmaxLoss", losses.SoftmaxLoss())
    rank("InfoNCELoss", losses.InfoNCELoss())
    rank("SoftRankLoss", losses.SoftRankLoss())
    rank("DirectAPLoss, epsilon 1", losses.DirectAPLoss(1.0))
    rank("DirectAPLoss, epsilon -1", losses.DirectAPLoss(-1.0))
    print("\n| labels | precision | recall | F1 |\n|---|---|---|---|")
    label("sigmoid cross-entropy", keras.losses.BinaryCrossentropy(from_logits=True))
    label("ZLPRLoss", losses.ZLPRLoss())


if __name__ == "__main__":
    main()
