"""Pictures of the recorded tables: every row is in them."""

import pathlib

import pytest
from matplotlib.figure import Figure

from benchmarks.quality import plot as quality
from benchmarks.speed import plot as speed, rows

DOCS = pathlib.Path(__file__).parent.parent / "docs"


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are written."""
    found = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: found.append(figure))
    return found


def test_each_row_of_the_table_of_quality_has_a_mark(drawn, tmp_path):
    text = (DOCS / "quality.md").read_text()
    gaps = quality.recorded(text)
    compared, *_ = text.split("\n## By equal rules")  # the tables after it have other columns
    assert len(gaps) == compared.count(" to +0.") + compared.count(" to -0.")
    assert min(mean for mean, _, _ in gaps.values()) < quality.LOWEST

    quality.draw(gaps, tmp_path / "quality.png")

    (axes,) = drawn[0].axes
    marks = [line.get_xdata() for line in axes.lines if line.get_marker() in ("o", "<")]
    left, right = axes.get_xlim()
    assert len(gaps) == sum(bool(len(x)) and left <= x[0] <= right for x in marks)
    assert sorted(x.get_text() for x in axes.get_yticklabels()) == sorted(gaps)
    assert "-0.099" in axes.texts[0].get_text()


def test_each_row_of_the_tables_of_speed_has_a_dot_of_the_page(drawn, tmp_path):
    text = (DOCS / "speed.md").read_text()
    found = rows.from_markdown(text)
    assert list(found) == ["losses", "metrics", "data", "training", "als", "topk", "serving"]

    speed.draw(found, tmp_path / "speed.png")

    dots = [dot for axes in drawn[0].axes for x in axes.collections for dot in x.get_offsets()]
    assert len(dots) == sum(map(len, found.values()))
    assert drawn[0].get_figwidth() < 8  # letters stay as large as those of the page
