"""Pictures of the tables that guides hold: `quality.png` and `speed.png`.

python -m benchmarks.recorded docs
"""

import argparse
import pathlib

from benchmarks.quality import plot as quality
from benchmarks.speed import plot as speed, rows


def main() -> None:
    """Draws the tables of a folder of guides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="folder of quality.md and speed.md")
    folder = parser.parse_args().folder
    text = (folder / "quality.md").read_text()
    quality.draw(quality.recorded(text), folder / "quality.png")
    text = (folder / "speed.md").read_text()
    speed.draw(rows.from_markdown(text), folder / "speed.png")


if __name__ == "__main__":
    main()
