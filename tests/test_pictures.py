"""Pictures of the recorded tables: every row is in them."""

import pytest
from matplotlib.figure import Figure

from benchmarks import evidence, recorded
from benchmarks.quality import plot as quality
from benchmarks.speed import plot as speed


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are written."""
    found = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: found.append(figure))
    return found


@pytest.mark.parametrize("name", ["quality", "equal-mq2008"])
def test_each_row_of_a_table_of_quality_has_a_mark(drawn, tmp_path, name):
    gaps = recorded.gaps(name)
    [_, _, _, *others] = evidence.stored(name)[0]  # the first row is LightGBM itself
    assert len(gaps) == len(others)

    quality.draw(gaps, tmp_path / "quality.png")

    (axes,) = drawn[0].axes
    marks = [line.get_xdata() for line in axes.lines if line.get_marker() in ("o", "<")]
    left, right = axes.get_xlim()
    assert len(gaps) == sum(bool(len(x)) and left <= x[0] <= right for x in marks)
    assert sorted(x.get_text() for x in axes.get_yticklabels()) == sorted(gaps)
    assert name != "quality" or "-0.099" in axes.texts[0].get_text()


def test_each_row_of_the_tables_of_speed_has_a_dot_of_the_page(drawn, tmp_path):
    found = recorded.times()
    assert sum(map(len, found.values())) == sum(len(x) - 2 for x in evidence.stored("speed"))

    speed.draw(found, tmp_path / "speed.png")

    dots = [dot for axes in drawn[0].axes for x in axes.collections for dot in x.get_offsets()]
    assert len(dots) == sum(map(len, found.values()))
    assert drawn[0].get_figwidth() < 8  # letters stay as large as those of the page
