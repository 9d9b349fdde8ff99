"""Writes the figures as PNG files, and a page with all of them, index.html.

python examples/figures --output figures [--only 4 H.6] [--dpi 100]
"""

import argparse
import pathlib
import sys

if __package__ == "":  # run as a folder
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from figures import FIGURES, save_figures


def main() -> None:
    """Prints the path of each file after it is written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--dpi", type=int, default=100, help="dots per inch")
    options = parser.parse_args()
    for path in save_figures(options.output, options.only, options.dpi):
        print(path, flush=True)


if __name__ == "__main__":
    main()
