"""The command line: `tfrank-sel-migrate`, or `python -m tfrank_sel.migration`."""

import argparse
import difflib
import pathlib
import sys

from tfrank_sel.errors import require_extra
from tfrank_sel.locks import atomic_path

with require_extra("tfrank-sel-migrate", "migrate"):
    from tfrank_sel.migration.rewriting import MARK, rewrite_file

from tfrank_sel.version import __version__


def main() -> None:
    """Runs the command line; a file that cannot be rewritten ends with a line and status 2."""
    parser = argparse.ArgumentParser(
        "tfrank-sel-migrate",
        description="Rewrite code that uses tensorflow-ranking or TensorFlow Recommenders so that "
        "it uses tfrank_sel. "
        f"A comment `{MARK}...` is added above each statement that you must change by hand.",
    )
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="Python files or notebooks.")
    parser.add_argument(
        "--write", action="store_true", help="Write the files instead of printing a diff."
    )
    parser.add_argument("--version", action="version", version=f"tfrank_sel {__version__}")
    options = parser.parse_args()
    marks = 0
    for file in options.files:
        try:
            marks += _migrate(file, options.write)
        except (OSError, SyntaxError, ValueError) as error:
            parser.exit(2, f"Cannot rewrite {file}: {' '.join(str(error).split())}\n")
    if marks:
        print(f"Places to change by hand: {marks}. Search for: {MARK.strip()}", file=sys.stderr)


def _migrate(file: pathlib.Path, is_written: bool) -> int:
    """Rewrites a file, or prints the diff, and returns the number of marks that this adds."""
    old = file.read_bytes()
    new = rewrite_file(file.name, old)
    if is_written and new != old:
        with atomic_path(file, replaces=True) as written:
            written.write_bytes(new)
    elif not is_written:
        before, after = (_lines(text) for text in (old, new))
        print("".join(difflib.unified_diff(before, after, str(file), str(file))), end="")
    return new.count(MARK.encode()) - old.count(MARK.encode())


def _lines(content: bytes) -> list[str]:
    """Returns the lines of a text for people to read, whatever its encoding."""
    return [f"{line}\n" for line in content.decode(errors="replace").splitlines()]


if __name__ == "__main__":
    main()
