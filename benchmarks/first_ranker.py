"""Time from README to a served ranker on a Parquet file of foreign column names.

    python -m benchmarks.first_ranker [--rows 20000] [--limit 600]

Builds the wheel, installs it with pip in a fresh virtual environment, and runs the commands of
README's section "Search: a click log" as they stand there, then ranks a list; only the names of the
files and columns are replaced by those of a made click log. Prints the seconds of each step,
and those for reading README. Ends with status 1 if a command fails, or if the sum is more than the
limit, ten minutes.
"""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from pyarrow import parquet

from tfrank_sel.data import synthetic

ROOT = pathlib.Path(__file__).parent.parent
ROAD = "## Search: a click log"
RANK = "tfrank-sel-serving rank --file runs/1/export/one_query.jsonl"
WORDS_A_MINUTE = 200.0
LOG = "exports/2026-11.parquet"
# What README's commands name, and what a user replaces it by.
OWN = {
    "'logs/*.parquet'": f"'{LOG}'",
    "--query query": "--query search_id",
    "--label clicked": "--label bought",
    "--doc-id item": "--doc-id sku",
}
COLUMNS = {
    "session": "search_id",
    "clicked": "bought",
    "item": "sku",
    "price": "unit_price",
    "rating": "stars",
    "in_stock": "available",
    "brand": "maker",
    "device": "client",
    "tags": "labels",
    "embedding": "image vector",
    "published_at": "listed",
    "shown_at": "time",
}
# Folders that once hid packages of the same names.
HIDING = ("pipelines", "serving", "benchmarks")


def main() -> None:
    """Follows README, and prints the seconds of each step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="items in the click log, about")
    parser.add_argument("--limit", type=float, default=600.0, help="maximum seconds")
    arguments = parser.parse_args()
    text = (ROOT / "README.md").read_text()
    install, *commands = [*_commands(text), RANK]
    words = len(text.split())
    seconds = {f"read README.md ({words} words)": words * 60.0 / WORDS_A_MINUTE}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheel, home = _wheel(folder), folder / "home"
        _user(home, arguments.rows)
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        path = f"{folder}/env/bin{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        environment.pop("PYTHONPATH", None)
        steps = [install.replace("'.", f"'{wheel}"), *commands]
        with contextlib.ExitStack() as servers:
            for step, command in zip([install, *commands], steps, strict=True):
                start = time.perf_counter()
                if " serve " in command:
                    servers.enter_context(_serving(command, home, environment))
                else:
                    subprocess.run(command, shell=True, check=True, cwd=home, env=environment)
                seconds[step] = time.perf_counter() - start
    print()
    for step, found in (*seconds.items(), ("all", sum(seconds.values()))):
        print(f"{found:6.1f} s  {step}")
    if sum(seconds.values()) > arguments.limit:
        sys.exit(f"More than {arguments.limit:g} seconds.")


def _commands(text: str) -> list[str]:
    """The commands of README that install and that are on the road, with the user's names."""
    block = r"```sh\n(.*?)```"
    found = [re.search(block, part, re.DOTALL) for part in (text, text.partition(ROAD)[2])]
    lines = [line.partition(" #")[0].strip() for x in found if x for line in x[1].splitlines()]
    lines = [line for line in lines if not line.startswith("make ")]  # of a clone
    commands = "\n".join(lines)
    for example, own in OWN.items():
        if example not in commands:
            raise ValueError(f"README's commands lack {example!r}. Received: {commands}")
        commands = commands.replace(example, own)
    return commands.splitlines()


def _wheel(folder: pathlib.Path) -> pathlib.Path:
    # by a source archive: a wheel that is built in place holds what build/lib still has
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    [wheel] = folder.glob("*.whl")
    return wheel


def _user(home: pathlib.Path, rows: int) -> None:
    """Makes the folder of a user: a click log, and packages whose names are ours."""
    table = synthetic.clicks(rows).select(list(COLUMNS)).rename_columns(list(COLUMNS.values()))
    (home / LOG).parent.mkdir(parents=True)
    parquet.write_table(table, home / LOG)
    for hiding in HIDING:
        (home / hiding).mkdir()
        (home / hiding / "__init__.py").touch()
    print(f"{table.num_rows} items, columns {', '.join(table.column_names)}")


@contextlib.contextmanager
def _serving(command: str, home: pathlib.Path, environment: dict[str, str]) -> Iterator[None]:
    """Runs a server in the background, from when it is ready."""
    server = subprocess.Popen(
        f"exec {command}",
        shell=True,
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        ready = server.stdout.readline()
        if not ready.startswith("Serving "):
            raise RuntimeError(f"The server did not start. Received: {ready!r}")
        yield
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
