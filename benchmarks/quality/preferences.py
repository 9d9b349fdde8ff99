"""Held-out preferences that a small language model gets right, by the loss that aligned it.

    python -m benchmarks.quality.preferences

Language model, made preferences and losses are those of `examples/preferences.py`; 20 % of the
preferences are flipped, of those held out none. The share right is the mean over three seeds of the
preferences and of the training, on the same held-out pairs, with the 95 % interval of the
difference to DPO at the same beta, by paired bootstrap over pairs. The number of steps and the
learning rate are the same for all.
"""

import pathlib
import runpy
from typing import Any

import keras
import numpy as np

from benchmarks.quality.judging import interval

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "preferences.py"
BETAS = (0.001, 0.01, 0.05)
SEEDS = range(3)


def rights(example: dict[str, Any], name: str, beta: float, held_out: np.ndarray) -> np.ndarray:
    """Whether the model of each seed prefers the first text of each pair, `[seeds, pairs]`."""
    rows = []
    for seed in SEEDS:
        keras.utils.set_random_seed(seed)
        random = np.random.default_rng(seed)
        pairs = example["preferences"](example["tuning"], 1_500, random)
        pairs = example["with_flips"](pairs, example["FLIPPED"], random)
        model = example["aligned"](example["LOSSES"][name], pairs, beta)
        rows.append(example["are_right"](model, held_out))
    return np.array(rows)


def main() -> None:
    """Prints the table."""
    example = runpy.run_path(str(EXAMPLE), run_name="parts")
    held_out = example["preferences"](example["held_out"], 4_000, np.random.default_rng(len(SEEDS)))
    print("| beta | loss | pairs right | by seed | - DPO (95 %) |\n|---|---|---|---|---|")
    for beta in BETAS:
        base = None
        for name in example["LOSSES"]:
            by_seed = rights(example, name, beta, held_out)
            mean, gap = by_seed.mean(axis=0), ""
            if base is None:
                base = mean
            else:
                low, high = interval(mean - base)
                gap = f"{(mean - base).mean():+.3f} ({low:+.3f} to {high:+.3f})"
            seeds = ", ".join(f"{x:.3f}" for x in by_seed.mean(axis=1))
            print(f"| {beta} | {name} | {mean.mean():.3f} | {seeds} | {gap} |", flush=True)


if __name__ == "__main__":
    main()
