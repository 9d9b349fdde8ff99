import io
import re
import time

from rich.console import Console

from tfrank_sel.pipelines.console import Progress


def until(shown, line):
    """Waits until a line is shown; a test that hangs has failed."""
    for _ in range(1000):
        if re.search(line, shown.getvalue()):
            return
        time.sleep(0.02)
    raise AssertionError(shown.getvalue())


def test_a_step_off_a_terminal_says_what_is_left(tmp_path):
    path = tmp_path / "read"
    path.write_bytes(bytes(1_000_000))
    shown = io.StringIO()
    progress = Progress(Console(file=shown, width=200), interval=0.05)
    with progress.step("ingest") as step:
        step.show_activity("1 file")
        step.reads([str(path)])
        with path.open("rb") as file:
            file.read(500_000)
            until(shown, r"ingest: 1 file, \d\d%, about \d+ s left, \d+ s so far")
    assert shown.getvalue().splitlines()[-1].startswith("done ingest")


def test_a_step_that_reads_nothing_says_how_long_it_takes():
    shown = io.StringIO()
    with Progress(Console(file=shown), interval=0.05).step("export") as step:
        step.show_activity("signatures [0]")
        until(shown, r"export: signatures \[0\], \d+ s so far")


def test_the_time_left_is_that_of_the_steps_to_come_at_the_pace_of_those_before():
    shown = io.StringIO()
    progress = Progress(Console(file=shown, width=200))
    progress.seconds["start"] = 4.0
    progress.expect({"start": 2.0, "statistics": 0.5, "baseline": 90.0, "report": 10.0})
    with progress.step("statistics"):
        pass
    with progress.step("report"):  # without a baseline
        pass
    first, second, third = shown.getvalue().splitlines()
    assert first.strip() == "about 151 s left: statistics 1 s, baseline 135 s, report 15 s"
    assert re.fullmatch(r"done statistics +0\.\d s, about 150 s left in all", second)
    assert re.fullmatch(r"done report +0\.\d s", third)


def test_a_step_says_what_is_left_in_all():
    shown = io.StringIO()
    progress = Progress(Console(file=shown, width=200), interval=0.05)
    progress.seconds["start"] = 4.0
    progress.expect({"start": 2.0, "baseline": 90.0, "training": 50.0, "report": 10.0})
    with progress.step("training"):
        until(shown, r"training: 0 s so far, about (8\d|90) s left in all")
