"""The README's picture of four choices of sensitivity.

python -m benchmarks.sensitivity --output docs/sensitivity.png
"""

import argparse
import pathlib

import matplotlib.pyplot as plt

from tfrank_sel import losses, plots
from tfrank_sel.plots.panels import legend_below

CHOICES = ("high_score", "low_score", "high_norm", "low_norm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the PNG file")
    output = parser.parse_args().output
    figure, axes = plt.subplots(1, len(CHOICES), figsize=(7.2, 1.9), layout="constrained")
    for place, sensitivity in zip(axes, CHOICES, strict=True):
        plots.draw_loss(place, losses.design(sensitivity).loss)
        place.set(title=sensitivity, xlabel="predicted score", ylabel="")
        place.set_ylim(0.0, 2.0 if sensitivity == "low_norm" else 5.0)
    axes[0].set_ylabel("loss")
    legend_below(figure, axes)
    figure.savefig(output, dpi=100)


if __name__ == "__main__":
    main()
