"""Shows that the tests find faults: `python tests/mutants.py [--all] [NAME ...]`.

Each row of `mutants.json` is a fault: a file of `tfrank_sel`, a class or function in it, what is
changed there, and the files of `make test` that should find it. What is changed is named by the
syntax tree: `<= 2 <` makes the second `<=` a `<`, and `- 1 left` leaves of the first difference
its left operand; `_symbols` and `_changed` list all kinds. Half of the faults are in pipelines,
data and serving. Each is tried alone, in a copy of the tree, by `pytest -x -m "not long"`. The
table names the test that caught it, or that none did. In the end, the tests that caught a fault
must pass in a copy without one. The status is 1 if a fault was missed, and 2 if the tree lacks what
a row changes, a file of tests does not exist, or a test fails without a fault.

`NAME` limits the faults to files whose path has it in it; `--all` runs the folders of these tests.
"""

import argparse
import ast
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "runs", "__pycache__")
FAILED_TESTS = ".pytest_cache/v/cache/lastfailed"
LIMIT = 1800.0  # seconds; a fault is caught that leaves the tests without an end
RAN = (0, 1, 2)  # pytest's statuses: the tests passed, one failed, one could not be collected
NO_END = "no end"

OPERATORS: dict[str, type[ast.AST]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "and": ast.And,
    "or": ast.Or,
    "not": ast.Not,
    "negative": ast.USub,
}
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
SYMBOLS = {operator: symbol for symbol, operator in OPERATORS.items()}


def main() -> int:
    """Tries the faults and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="run the folders of the tests")
    options = parser.parse_args()
    mutants = json.loads((ROOT / "tests" / "mutants.json").read_text())
    if stale := [x for mutant in mutants if (x := problem(*mutant))]:
        print(*stale, sep="\n", file=sys.stderr)
        return 2
    chosen = [x for x in mutants if not options.names or any(y in x[0] for y in options.names)]
    caught_by: set[str] = set()
    missed = 0
    for file, scope, change, tests in chosen:
        failed = _failed(_paths(tests, options.all), file, mutated(file, scope, change))
        caught_by.update(failed)
        missed += not failed
        print(f"{'; '.join(failed) or 'MISSED'}  {file}: {scope}: {change}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught, {missed} missed")
    if failed := _failed(caught_by - {NO_END}):
        print(f"Without a fault, expected no test that fails. Received: {failed}", file=sys.stderr)
        return 2
    return int(missed > 0)


def mutated(file: str, scope: str, change: str) -> str:
    """Returns the code of a file with a fault; LookupError if it has not what would be changed."""
    tree: ast.AST = ast.parse((ROOT / "tfrank_sel" / file).read_text())
    body, (symbol, place, new) = tree, change.split(" ")
    for name in scope.split("."):
        defined = [x for x in ast.walk(body) if isinstance(x, DEFINITIONS) and x.name == name]
        if not defined:
            raise LookupError(f"tfrank_sel/{file}: no {name} of {scope}")
        body = defined[0]
    nodes = [node for node in _inside(body) if symbol in _symbols(node)]
    if len(nodes) < int(place):
        raise LookupError(f"tfrank_sel/{file}: no {symbol} number {place} in {scope}")
    node = nodes[int(place) - 1]
    return ast.unparse(_Replaced(node, _changed(node, symbol, new)).visit(tree))


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below a node in the order of the code, a node before what it consists of."""
    for child in ast.iter_child_nodes(node):
        yield child
        yield from _inside(child)


def _symbols(node: ast.AST) -> list[str]:
    """The names by which a row means a node."""
    match node:
        case ast.Compare():
            return [SYMBOLS.get(type(x), "") for x in node.ops]
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() | ast.UnaryOp():
            return [SYMBOLS.get(type(node.op), "")]
        case ast.Constant():
            return [repr(node.value)]
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [name]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return [f"{name}()"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["if"]
        case ast.Set():
            return ["{}"]
        case ast.Subscript():
            return ["[]"]
        case ast.Slice(step=ast.expr()):
            return ["::"]
    return []


def _changed(node: Any, symbol: str, new: str) -> ast.AST:
    """Returns a node with another operator or name, fewer operands, or a literal in its place."""
    if new in OPERATORS and isinstance(node, ast.Compare):
        node.ops[_symbols(node).index(symbol)] = OPERATORS[new]()
    elif new in OPERATORS:
        node.op = OPERATORS[new]()
    elif new in ("left", "right"):
        operands = getattr(node, "args", None) or list(ast.iter_child_nodes(node))
        operands = [x for x in operands if isinstance(x, ast.expr)]
        return operands[0 if new == "left" else -1]
    elif new == "drop" and isinstance(node, ast.Slice):
        node.step = None
    elif new == "drop":
        (node.elts if isinstance(node, ast.Set) else node.args).pop()
    elif new == "swap" and isinstance(node, ast.BinOp):
        node.left, node.right = node.right, node.left
    elif new == "swap":
        node.args[:2] = node.args[1::-1]
    elif symbol == "if":
        node.test = ast.parse(new, mode="eval").body
    elif isinstance(node, ast.Attribute):
        node.attr = new
    else:
        return ast.parse(new, mode="eval").body
    return node


def _paths(tests: str, folders: bool) -> set[str]:
    paths = (pathlib.PurePosixPath("tests", x) for x in tests.split())
    return {str(x.parent if folders and len(x.parts) > 2 else x) for x in paths}


def problem(file: str, scope: str, change: str, tests: str) -> str:
    """What is wrong with a row of the table, empty if nothing is."""
    try:
        mutated(file, scope, change)
    except (LookupError, FileNotFoundError) as error:
        return str(error)
    lacking = [x for x in tests.split() if not (ROOT / "tests" / x).exists()]
    return f"tfrank_sel/{file}: no such tests: {lacking}" if lacking else ""


def _failed(tests: Collection[str], file: str = "", code: str = "") -> list[str]:
    """The tests that fail in a copy of the tree that has the fault; ends at the first."""
    if not tests:
        return []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        if file:
            (copy / "tfrank_sel" / file).write_text(code)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not long", *sorted(tests)]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            return [NO_END]
        if done.returncode not in RAN:
            raise RuntimeError(f"Pytest did not run {sorted(tests)}: {done.stdout[-2000:]}")
        failed = copy / FAILED_TESTS
        return list(json.loads(failed.read_text())) if done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
