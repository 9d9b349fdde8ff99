"""Pictures of the recorded tables: every row is in them."""

import pytest
from matplotlib.figure import Figure

from benchmarks import evidence, recorded


@pytest.mark.parametrize("name", ["quality", "equal-mq2008"])
def test_each_row_of_a_table_of_quality_has_a_mark(name):
    gaps = recorded.gaps(name)
    [_, _, _, *others] = evidence.stored(name)[0]  # the first row is LightGBM itself
    assert len(gaps) == len(others)

    [axes] = recorded.quality.draw(gaps).axes

    marks = [line.get_xdata() for line in axes.lines if line.get_marker() in ("o", "<")]
    left, right = axes.get_xlim()
    assert len(gaps) == sum(bool(len(x)) and left <= x[0] <= right for x in marks)
    assert sorted(x.get_text() for x in axes.get_yticklabels()) == sorted(gaps)
    assert name != "quality" or "-0.099" in axes.texts[0].get_text()


def test_each_row_of_the_tables_of_speed_has_a_dot_of_the_page():
    found = recorded.times()
    assert sum(map(len, found.values())) == sum(len(x) - 2 for x in evidence.stored("speed"))

    drawn = recorded.speed.draw(found)

    dots = [dot for axes in drawn.axes for x in axes.collections for dot in x.get_offsets()]
    assert len(dots) == sum(map(len, found.values()))
    assert drawn.get_figwidth() < 8  # letters stay as large as those of the page


def points(figure: Figure) -> set[tuple[float, float]]:
    """The points of all lines of a picture."""
    lines = (line for axes in figure.axes for line in axes.lines)
    return {(float(x), float(y)) for line in lines for x, y in line.get_xydata()}


def test_each_accuracy_by_label_noise_is_a_point():
    head, rows = recorded.cells("label-noise")
    drawn = points(recorded.label_noise())
    for row in rows:
        for share, value in zip(head[3:], row[3:], strict=True):
            assert (float(share.split(" = ")[1]), float(value.split(" ± ")[0])) in drawn


def test_each_time_of_the_top_k_loss_is_a_point():
    _, rows = recorded.cells("topk")
    drawn = points(recorded.topk())
    for n, k, _, ms, ratio, *_ in rows:
        by_classes = (float(n.replace(",", "")), float(ms)) in drawn
        assert by_classes or (float(k), float(ratio)) in drawn


def test_each_ensemble_is_a_point():
    _, rows = recorded.cells("ensembles")
    drawn = points(recorded.ensembles())
    for _, _, seconds, _, gap, *_ in rows:
        assert (float(seconds), float(gap.split(" ")[0])) in drawn
