"""Rewriting of the bytes of files: modules of Python, and notebooks of Jupyter."""

import ast
import io
import itertools
import json
import re
import tokenize
from collections.abc import Callable, Iterator
from typing import Any

from tfrank_sel.migration.rewriting import rewrite

_BORDER = "# tfrank-sel-migrate: cell border"
_MAGIC = re.compile(
    r"^([ \t]*)([%!?].*|[^#'\"\n]*=[ \t]*[%!].*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE
)
_HIDDEN = "tfrank_sel_migrate_magic_"


def rewritten(name: str, content: bytes) -> bytes:
    """Rewrites a file that uses tensorflow-ranking.

    Encoding, byte order mark and ends of lines stay as they are, and so does all of a notebook but
    its cells of Python code.

    Args:
        name: Its name; a notebook ends with `.ipynb`.
        content: Its bytes.

    Raises:
        SyntaxError: If its code is not valid Python, or it has an unknown encoding.
        ValueError: If it is not text in its encoding, or not a notebook.
    """
    if name.endswith(".ipynb"):
        return _notebook(content)
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return rewrite(content.decode(encoding)).encode(encoding)


def _notebook(content: bytes) -> bytes:
    text = content.decode("utf-8-sig")
    book = json.loads(text)
    if not isinstance(book, dict) or not isinstance(book.get("cells"), list):
        raise ValueError("a notebook must have a list of `cells`. Received: none")
    written = _as_written(book, text)
    cells = [x for x in book["cells"] if x.get("cell_type") == "code" and not _is_foreign(x)]
    sources = ["".join(cell["source"]) for cell in cells]
    changed = _in_cells(sources)
    if changed == sources:
        return content
    for cell, source in zip(cells, changed, strict=True):
        is_list = isinstance(cell["source"], list)
        cell["source"] = source.splitlines(keepends=True) if is_list else source
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    return mark + written(book).encode()


def _is_foreign(cell: dict[str, Any]) -> bool:
    """Returns whether a cell is in another language, or of a magic of the whole cell."""
    return "".join(cell["source"]).lstrip().startswith("%%")


def _in_cells(sources: list[str]) -> list[str]:
    """Rewrites the cells of a notebook as one module, since names hold in all of them."""
    magics: list[str] = []

    def hide(found: re.Match[str]) -> str:
        magics.append(found[2])
        return f"{found[1]}{_HIDDEN}{len(magics) - 1}_"

    hidden = [source if _is_python(source) else _MAGIC.sub(hide, source) for source in sources]
    code = rewrite("".join(f"{_BORDER}\n{source}\n" for source in hidden))
    parts = re.split(rf"^{_BORDER}\n", code, flags=re.MULTILINE)[1:]
    if len(parts) != len(sources):
        raise ValueError("a cell must hold whole statements. Received: a part of one")
    shown = (re.sub(rf"{_HIDDEN}(\d+)_", lambda x: magics[int(x[1])], part) for part in parts)
    return [part.removesuffix("\n") for part in shown]


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _as_written(book: Any, text: str) -> Callable[[Any], str]:
    """Returns the function that writes JSON as a text does."""
    for write in _writers(text):
        if write(book) == text:
            return write
    raise ValueError(
        "a notebook must be written as Jupyter does, so that the rest of it stays as it is. "
        "Received: another layout; save it in Jupyter first"
    )


def _writers(text: str) -> Iterator[Callable[[Any], str]]:
    end = text[len(text.rstrip()) :]
    is_windows = "\r\n" in text
    for indent, is_ascii in itertools.product((1, 2, 4, None), (False, True)):

        def write(book: Any, indent: int | None = indent, is_ascii: bool = is_ascii) -> str:
            lines = json.dumps(book, indent=indent, ensure_ascii=is_ascii)
            return (lines.replace("\n", "\r\n") if is_windows else lines) + end

        yield write
