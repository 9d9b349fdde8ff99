"""The code of README and guides runs, and prints what they say."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent

# Each block has names of its own, and what it prints ends with a 0.
RUN_BLOCKS = """
import json, sys
for number, code in enumerate(json.load(sys.stdin), start=1):
    exec(compile(code, f"block {number}", "exec"), {"__name__": "__main__"})
    print(end=chr(0))
"""


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.stem
)
def test_the_code_of_a_page_runs(page: pathlib.Path, tmp_path: pathlib.Path) -> None:
    output = r"(?:\s+```text\n(.*?)```)?"
    blocks = re.findall(
        r"^```python\n(.*?)^```" + output,
        page.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    # others are excerpts; tests/pipelines/test_requests.py runs what asks a server, and
    # tests/backends/test_jax.py what needs JAX
    elsewhere = re.compile("http://localhost|^import jax$", re.MULTILINE)
    blocks = [x for x in blocks if "import " in x[0] and not elsewhere.search(x[0])]
    done = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKS],
        input=json.dumps([code for code, _ in blocks]),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [printed.split() for printed in done.stdout.split("\0")[:-1]]
    assert found == [printed.split() for _, printed in blocks]
