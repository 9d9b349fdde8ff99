"""Writer of `tfrank_sel/exports.py`, for `make exports`; `--check` fails if it would change."""

import ast
import collections
import pathlib
import sys
import textwrap
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
TABLES = ROOT / "tfrank_sel" / "exports.py"
HEAD = '''"""Names that packages export and names that Keras loads, written by `make exports`.

The imports of a package, as in `from module import name as name`, are what it exports, and
`@register` marks what Keras loads.
"""
'''


def rendered() -> str:
    """Returns the tables of the sources as they are."""
    exports, registered = [], []
    for path in sorted((ROOT / "tfrank_sel").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        if "= lazy.exported(" in text:
            modules = collections.defaultdict[str, list[str]](list)
            for exporter, name in _exports(tree):
                modules[exporter].append(name)
            rows = [_row(*x, indent=8) for x in sorted(modules.items())]
            exports += [f'    "{module}": {{', *rows, "    },"]
        if names := [x.name for x in tree.body if _is_registered(x)]:
            registered.append(_row(module, names, indent=4))
    tables = ["EXPORTS = {", *exports, "}", "REGISTERED = {", *registered, "}"]
    return "\n".join([HEAD, *tables, ""])


def _exports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), x.name) for x in node.names if x.asname == x.name)


def _is_registered(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(x, ast.Name) and x.id == "register" for x in decorators)


def _row(module: str, names: list[str], indent: int) -> str:
    margin, text = " " * indent, " ".join(sorted(names))
    if len(line := f'{margin}"{module}": "{text}",') <= 100:
        return line
    lines = textwrap.wrap(text, 100 - indent - 7)
    parts = [f'{margin}    "{x} "' for x in lines[:-1]] + [f'{margin}    "{lines[-1]}"']
    return "\n".join([f'{margin}"{module}": (', *parts, f"{margin}),"])


if __name__ == "__main__":
    if sys.argv[1:] != ["--check"]:
        TABLES.write_text(rendered(), "utf-8")
    elif TABLES.read_text("utf-8") != rendered():
        sys.exit("tfrank_sel/exports.py is not up to date: make exports")
