import re
import subprocess
import sys


def test_what_is_killed_leaves_nothing_that_is_read_or_disturbs():
    steps = ["ingest", "export", "publish"]  # a run is longer, and made of these
    command = [
        sys.executable,
        "-m",
        "benchmarks.robustness.kills",
        "--kills",
        "2",
        "--steps",
        *steps,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"\| (\w+) \| 2 \| (\d) \| \d \| (\d) \|", done.stdout)
    assert [name for name, *_ in rows] == steps
    assert all(int(nothing) + int(whole) == 2 for _, nothing, whole in rows)
