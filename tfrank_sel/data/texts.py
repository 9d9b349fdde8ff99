"""Text files, on disk and in object stores."""

import os
from pathlib import Path

from tfrank_sel.data import stores


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file atomically to a path or URL; creates its folder if needed."""
    if stores.is_remote(path):
        with stores.opened(path, "wb") as file:
            file.write(text.encode())
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
