import re
import subprocess
import sys


def test_what_is_killed_leaves_nothing_that_is_read_or_disturbs():
    steps = ["run ingest", "run train", "run push", "export", "publish"]
    command = [
        sys.executable,
        "-m",
        "benchmarks.robustness.kills",
        "--kills",
        "2",
        "--steps",
        *steps,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"\| ([\w ]+) \| 2 \| (\d) \| (\d) \| (\d) \|", done.stdout)
    assert [name for name, *_ in rows] == steps
    assert all(sum(map(int, counts)) == 2 for _, *counts in rows)
