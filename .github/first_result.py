"""Runs the first ranker of the guides, and compares what it prints.

    python .github/first_result.py

For systems on which the tests do not run: it needs the installed package, and nothing else.
"""

import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "index.md"
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)

if __name__ == "__main__":
    [(code, printed)] = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.stdout.split() != printed.split():
        sys.exit(f"Expected {printed!r}. Received: {done.stdout!r}\n{done.stderr}")
    print(done.stdout)
