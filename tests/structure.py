"""The size and the shape of the package by room, beside those of the last release.

`make lint` prints the table. `--record VERSION` keeps today's as those of a release.
"""

import ast
import collections
import functools
import graphlib
import json
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "tfrank_sel"
RELEASE = pathlib.Path(__file__).with_suffix(".json")

# words in -ed that are no participles, and participles without -ed that are no verbs in the present
NO_PARTICIPLES = {"bed", "embed", "exceed", "feed", "need", "seed", "speed"}
IRREGULAR = re.compile(
    "begun|borne|bought|brought|built|caught|chosen|done|drawn|driven|fed|found|given|gone|grown|held"
    "|hidden|kept|known|laid|led|left|lost|made|meant|met|paid|said|seen|sent|shown|shut|spelt|spent"
    "|stood|swept|taken|told|torn|understood|won|worn|written"
)
# what holds the bounds of lists within an array of all their items
BOUNDS = re.compile(r"(?:_?offsets|_?row_splits|_?sizes|_?starts|_?ends|_?lengths)")


@functools.cache
def tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def lines_of_code(path: pathlib.Path) -> int:
    """Counts the lines that hold more than a comment or a part of a docstring."""
    docstrings: set[int] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.update(range(node.lineno, int(node.end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, path.read_text(encoding="utf-8").splitlines()), start=1)
    return sum(n not in docstrings and bool(x) and x[0] != "#" for n, x in lines)


def is_participle(name: str) -> bool:
    """Whether the name of a function is one past participle, such as `told` or `_named`."""
    word = name.strip("_")
    is_regular = word.endswith("ed") and "_" not in word and word not in NO_PARTICIPLES
    return is_regular or IRREGULAR.fullmatch(word) is not None


def participles(path: pathlib.Path) -> list[str]:
    """The functions and methods of a file that a lone participle names."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [x for x in ast.walk(tree(path)) if isinstance(x, kinds)]
    return [x.name for x in nodes if is_participle(x.name)]


def list_classes(path: pathlib.Path) -> list[str]:
    """The classes of a file that hold the bounds of lists in an array."""
    return [
        node.name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(x, ast.AnnAssign)
            and BOUNDS.fullmatch(ast.unparse(x.target).removeprefix("self."))
            and re.search("array|NDArray", ast.unparse(x.annotation))
            for x in ast.walk(node)
        )
    ]


@functools.cache
def files() -> dict[str, pathlib.Path]:
    """The files of the package, by their modules."""
    return {
        ".".join(x.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): x
        for x in sorted(PACKAGE.rglob("*.py"))
    }


@functools.cache
def imports(module: str) -> list[tuple[str, str]]:
    """The modules that one imports, late imports included, and the names that it takes."""
    return [*_imports(module)]


def _imports(module: str) -> Iterator[tuple[str, str]]:
    code = ast.parse(files()[module].read_text(encoding="utf-8"))
    for node in ast.walk(code):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []  # which only a checker of types reads
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from ((x.name, "") for x in node.names)
        elif isinstance(node, ast.ImportFrom):
            for x in node.names:
                whole = f"{node.module}.{x.name}"
                yield (whole, "") if whole in files() else (str(node.module), x.name)


def circle() -> list[str]:
    """Modules, faces of packages apart, of which each imports the next; or none."""
    modules = {x for x, path in files().items() if path.name != "__init__.py"}
    graph = {x: {y for y, _ in imports(x) if y in modules and y != x} for x in modules}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def measures() -> dict[str, dict[str, int]]:
    """The measures of each room and, under `all`, of the package."""
    rooms: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for path in files().values():
        parts = path.relative_to(PACKAGE).parts
        for room in ("all", parts[0] if len(parts) > 1 else "(files)"):
            rooms[room]["files"] += 1
            rooms[room]["code lines"] += lines_of_code(path)
            rooms[room]["AST nodes"] += sum(1 for _ in ast.walk(tree(path)))
            rooms[room]["list classes"] += len(list_classes(path))
            rooms[room]["participles"] += len(participles(path))
    return {room: dict(x) for room, x in rooms.items()}


COLUMNS = ("files", "code lines", "AST nodes", "list classes", "participles")


def table(now: dict[str, dict[str, int]], before: dict[str, dict[str, int]]) -> str:
    """A row a room, the largest first: each measure, and its change since the release."""
    rows = []
    for room in sorted({*now, *before}, key=lambda x: -now.get(x, {}).get("AST nodes", 0)):
        row = [f"{room:14}"]
        for column in COLUMNS:
            here, there = (x.get(room, {}).get(column, 0) for x in (now, before))
            row.append(f"{here:9,} {f'{here - there:+,}' if here != there else '':>8}")
        rows.append("".join(row))
    head = f"{'':14}" + "".join(f"{x:>9.9} {'':8}" if len(x) < 10 else f"{x:<18}" for x in COLUMNS)
    return "\n".join([head, *rows])


def main(arguments: list[str]) -> None:
    now = measures()
    if arguments[:1] == ["--record"]:
        content = {"version": arguments[1], "rooms": now}
        RELEASE.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        return
    release = json.loads(RELEASE.read_text())
    print(f"Beside version {release['version']}:")
    print(table(now, release["rooms"]))
    print("Modules that import each other:", ", ".join(circle()) or "none")


if __name__ == "__main__":
    main(sys.argv[1:])
