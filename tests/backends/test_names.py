"""All backends have the same functions."""

import ast
import pathlib

import pytest

from tfrank_sel import numerics

FOLDER = pathlib.Path(numerics.__file__).parent
# what backends without graphs share among themselves
SHARED = {"TopK", "are_sizes", "places", "reduction"}


def names(module: str) -> set[str]:
    """What a module defines, or imports as in `from module import name as name`, or as `*`."""
    found = set[str]()
    for node in ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            found |= names(str(node.module).rpartition(".")[2])
        elif isinstance(node, ast.ImportFrom):
            found |= {x.asname for x in node.names if x.asname}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = [y for x in node.targets for y in ast.walk(x)]
            found |= {x.id for x in targets if isinstance(x, ast.Name)}
    return {name for name in found if name[0] != "_"} - {"F"}


@pytest.mark.parametrize("backend", numerics.BACKENDS[1:])
def test_all_backends_have_the_names_of_the_first(backend: str) -> None:
    assert names(backend) - SHARED == names(numerics.BACKENDS[0])
    assert len(names(backend)) > 100


def test_formulas_import_no_framework() -> None:
    package, frameworks = FOLDER.parent, {"tensorflow", "jax"}
    rooms = (package / room for room in ("links", "losses", "metrics", "ops"))
    files = [package / "listwise.py", *(path for room in rooms for path in room.glob("*.py"))]
    files.remove(package / "ops" / "catalogue.py")  # of served recommenders
    assert len(files) > 40
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not {x.name.partition(".")[0] for x in node.names} & frameworks, path
            elif isinstance(node, ast.ImportFrom):
                assert str(node.module).partition(".")[0] not in frameworks, path
