import io
import time

from rich.console import Console

from tfrank_sel.pipelines.console import Progress


def test_a_step_off_a_terminal_says_what_is_left(tmp_path):
    path = tmp_path / "read"
    path.write_bytes(bytes(1_000_000))
    shown = io.StringIO()
    progress = Progress(Console(file=shown, width=200), interval=0.05)
    with progress.step("ingest") as step:
        step.doing("1 file")
        step.reads([str(path)])
        with path.open("rb") as file:
            file.read(500_000)
            time.sleep(0.2)
    lines = [line.strip() for line in shown.getvalue().splitlines()]
    assert lines[0].startswith("ingest: 1 file, 5")
    assert "%, about 0 s left, 0 s so far" in lines[0]
    assert lines[-1].startswith("done ingest")


def test_a_step_that_reads_nothing_says_how_long_it_takes():
    shown = io.StringIO()
    with Progress(Console(file=shown), interval=0.05).step("export") as step:
        step.doing("signatures [0]")
        time.sleep(0.15)
    assert shown.getvalue().splitlines()[0].strip() == "export: signatures [0], 0 s so far"
