import io
import re
import time

from rich.console import Console

from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.run.steps import durations
from tfrank_sel.training.callbacks import Epoch


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


def test_one_number_says_what_is_left_from_the_first_epoch_on():
    shown = io.StringIO()
    progress = Progress(Console(file=shown, width=200), interval=0.05)
    epoch = Epoch("loss", 1, 60, 0.5, 1, 2, seconds_left=300.0)
    line = "loss: epoch 1/60, validation NDCG@10 0.5000, 0 s so far"
    with progress.step("training") as step:  # alone
        step.epoch(epoch)
        until(shown, f"training: {line}, about 300 s left\n")
    progress.expect({"start": 2.0, "training": 9000.0, "report": 10.0})
    del progress.seconds["training"]
    with progress.step("training") as step:
        step.epoch(epoch)
        until(shown, f"training: {line}, about 310 s left in all\n")


def test_a_baseline_that_is_left_out_takes_no_time():
    names = ("train", "push")
    both, one = (durations(names, 10**6, has_baseline) for has_baseline in (True, False))
    assert sum(both.values()) == sum(one.values())  # its network is one of the model's
    assert [*both] == ["start", "training baseline", "training ours", "push", "report"]
    assert [*one] == ["start", "training ours", "push", "report"]
