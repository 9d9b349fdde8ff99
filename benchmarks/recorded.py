"""Pictures of recorded tables: `quality.png` and `speed.png`.

python -m benchmarks.recorded docs
"""

import argparse
import pathlib

from benchmarks.evidence import stored
from benchmarks.quality import plot as quality
from benchmarks.speed import plot as speed, rows

AREAS = ("losses", "metrics", "data", "training", "als", "topk", "serving")


def gaps(name: str) -> dict[str, quality.Gap]:
    """The differences to LightGBM in the table of a command."""
    return quality.recorded("\n".join(stored(name)[0]))


def times() -> dict[str, list[rows.Row]]:
    """The rows of `benchmarks.speed`, by area."""
    tables = zip(AREAS, stored("speed"), strict=True)
    return rows.from_markdown("".join(f"### {a}\n\n" + "\n".join(t) + "\n\n" for a, t in tables))


def main() -> None:
    """Draws the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="folder of the pictures")
    folder = parser.parse_args().folder
    quality.draw(gaps("equal-mq2008"), folder / "quality.png")
    speed.draw(times(), folder / "speed.png")


if __name__ == "__main__":
    main()
