"""The figures: they are drawn, legible in size, and show the numbers of the library."""

import importlib
import pathlib
import re
import subprocess
import sys

import matplotlib.figure
import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf

from examples.figures import FIGURES, save_figures, singles
from tfrank_sel import links, losses, metrics, plots

ALL = [
    "1",
    "2",
    "3",
    "4",
    "5",
    "E.1",
    "E.2",
    "F.1",
    *(f"H.{i}" for i in range(1, 7)),
    "I.1",
    "BUST",
]
SCRIPT = pathlib.Path(__file__).parent.parent.parent / "examples" / "figures"


@pytest.fixture
def axes() -> matplotlib.axes.Axes:
    return matplotlib.figure.Figure().subplots()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("figures") / "new"
    tf.config.run_functions_eagerly(True)  # `test_losses_are_those_of_the_library` compiles
    assert [*save_figures(folder, dpi=40)][-1] == folder / "index.html"
    tf.config.run_functions_eagerly(False)
    return folder


def test_every_figure_of_the_paper_is_there() -> None:
    assert list(FIGURES) == ALL


@pytest.mark.parametrize("name", ALL)
def test_a_figure_is_a_picture(folder: pathlib.Path, name: str) -> None:
    picture = matplotlib.image.imread(folder / f"figure_{name}.png")
    height, width, _ = picture.shape
    assert 100 <= height <= 1000
    assert 200 <= width <= 1000
    shares = [np.mean(np.all(picture[..., :3] == color, axis=-1)) for color in (0.0, 1.0)]
    assert 0.3 < shares[1] < 0.99  # neither empty nor full


def test_the_gallery_needs_no_other_file(folder: pathlib.Path) -> None:
    page = (folder / "index.html").read_text()
    assert re.findall(r"<h2>Figure (.*?)</h2>", page) == ALL
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(ALL)
    assert not re.search(r'src="(?!data:)|<script|<link', page)


def test_a_figure_that_is_none_is_named(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, SCRIPT, "--output", str(tmp_path), "--only", "H.7"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "invalid choice: 'H.7' (choose from '1', '2'" in done.stderr


def test_what_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in [x for x in sys.modules if x.startswith(("matplotlib", "tfrank_sel.plots"))]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ImportError, match=r"needs matplotlib.*tfrank_sel\[plots\]"):
            importlib.import_module("tfrank_sel.plots")


def test_a_link_is_drawn_on_its_domain(axes: matplotlib.axes.Axes) -> None:
    plots.draw_link(axes, links.Logit(scale=0.5))
    value, slope = axes.lines
    s = value.get_xdata()
    assert 0.0 < s[0] < s[-1] < 2.0
    np.testing.assert_array_equal(value.get_ydata(), links.Logit(scale=0.5)(s))
    np.testing.assert_array_equal(slope.get_ydata(), links.Logit(scale=0.5).slope(s))


@pytest.mark.parametrize(
    "loss",
    [
        losses.MatchingLoss(links.Sigmoid(), dtype="float64"),
        losses.SelectiveSoftmaxLoss(links.Exp(scale=0.5), dtype="float64"),
        losses.SoftmaxLoss(dtype="float64"),
    ],
    ids=lambda loss: loss.name,
)
def test_losses_are_those_of_the_library(
    axes: matplotlib.axes.Axes, loss: losses.ListwiseLoss
) -> None:
    labels, scores = [0.0, 1.0, 3.0], [0.5, 1.0, 2.0]
    plots.draw_loss(axes, loss, labels, scores)
    z, values = (axes.lines[1].get_xdata()[30], axes.lines[1].get_ydata()[30])
    if loss.compares_items:
        expected = loss(np.array([labels]), np.array([[0.5, z, 2.0]]))
    else:
        expected = loss(np.array([[1.0]]), np.array([[z]]))
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_the_area_of_the_first_figure_is_the_loss() -> None:
    [axes] = FIGURES["1"].draw().axes
    [label] = [x for x in axes.get_legend_handles_labels()[1] if "matching loss" in x]
    loss = losses.MatchingLoss(links.Sigmoid())([[-1.0]], [[2.0]])
    assert label == f"matching loss, {float(loss):.3f}"


def test_fits_and_biases_are_those_of_the_paper() -> None:
    x, s = singles.two_regimes()
    w = singles.linear_fit(links.Sigmoid(shift=10.0), x, s)
    np.testing.assert_allclose(w, [0.991662, 0.036902], atol=5e-7)
    np.testing.assert_allclose(singles.best_bias(20.0, 18), 0.852778, atol=5e-7)
    np.testing.assert_allclose(singles.lift_of_bias(0.5, 3.0), 1.710880, atol=5e-7)


def test_the_contours_of_a_fit_are_those_of_its_loss() -> None:
    x, s = singles.two_regimes()
    link = links.Sigmoid()
    w = singles.linear_fit(link, x, s)
    place, *_ = FIGURES["F.1"].draw().axes[6:]  # the second row: Sigmoid without a shift
    [contours] = [c for c in place.collections if c.get_paths()]
    [mark] = place.lines
    np.testing.assert_allclose(mark.get_xydata(), [w], rtol=1e-12)
    for level, path in zip(contours.levels, contours.get_paths(), strict=True):
        predicted = path.vertices[:1] @ x.T
        loss = losses.MatchingLoss(link, dtype="float64")(s[np.newaxis], predicted)
        np.testing.assert_allclose(loss, level, rtol=0.05)


def test_a_reliability_diagram_shows_each_bin_by_its_weight(axes: matplotlib.axes.Axes) -> None:
    ece = metrics.ECE([0.5], from_logits=False)
    ece.update_state([[0.0, 1.0, 1.0]], [[0.125, 0.375, 0.75]])
    plots.draw_reliability(axes, ece.reliability(), "ours")
    _, line = axes.lines
    np.testing.assert_allclose(line.get_xydata(), [[0.25, 0.5], [0.75, 1.0]])
    [dots] = axes.collections
    assert dots.get_sizes()[0] == pytest.approx(2.0 * dots.get_sizes()[1])
