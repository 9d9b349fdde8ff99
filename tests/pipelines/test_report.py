import re
import shutil
import subprocess
import types

import keras
import numpy as np
import pytest

from tests.references import metrics as references
from tfrank_sel import data, losses, models
from tfrank_sel.data import synthetic
from tfrank_sel.data.formats import Layout
from tfrank_sel.features import Number
from tfrank_sel.pipelines import folders
from tfrank_sel.pipelines.analysis import schema, statistics
from tfrank_sel.pipelines.analysis.gates import Anomaly
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.evaluation import curves
from tfrank_sel.pipelines.reporting import report
from tfrank_sel.pipelines.splits import Split
from tfrank_sel.pipelines.training import Fit, Trained, each_once

SPEC = data.FeatureSpec(num_features=4)
NAMES = ["first", "<b>second</b>", "third & last", "0"]
FEATURES = {name: Number() for name in NAMES}
COMPARED = {"baseline": 0.5, "ours": 0.75, "low": 0.125, "high": 0.375, "queries": 9}
HISTORY = {
    name: [3.0, 2.0, 2.5] for name in ("loss", "val_loss", "ndcg", "val_ndcg", "mrr", "val_mrr")
}


@pytest.fixture(scope="module")
def lists():
    return list(synthetic.lists(9, num_features=4, max_list_size=12, seed=2))


@pytest.fixture(scope="module")
def scorers():
    keras.utils.set_random_seed(0)  # and no two items of a list have equal scores
    return {name: models.ListScorer([0.0] * 4, [1.0] * 4, [16]) for name in ("baseline", "ours")}


@pytest.fixture(scope="module")
def page(tmp_path_factory, shards, scorers):
    folder = tmp_path_factory.mktemp("run")
    split = Split(
        shards, statistics.summarise({"test": shards}, SPEC, folder, features=FEATURES)["test"]
    )
    candidates = {
        "baseline": Candidate(losses.SoftmaxLoss()),
        "ours": Candidate(losses.RGCrossLoss()),
    }
    trained = {
        name: Trained(
            candidates[name],
            model,
            [model],
            [Fit(candidates[name].losses[0].name, 3, 3.0, 0.01, 100.0, 1000.0, HISTORY)],
        )
        for name, model in scorers.items()
    }
    compared = dict.fromkeys(("NDCG@1", "NDCG@10", "MRR"), COMPARED)
    metrics = {
        "metrics": compared,
        "against": "baseline",
        "chance": compared,
        "slices": {"country <i>": compared},
    }
    check = {"rule": "at least 10 queries", "received": "9", "passed": False}
    folders.write_json(folder / "evaluate" / "metrics.json", metrics)
    champion = {**metrics, "against": "champion"}
    judged = {"blessed": False, "checks": [check], "champion": champion}
    folders.write_json(folder / "push" / "blessing.json", judged)
    found = [Anomaly("third & last", "range", "values from 0 to 1", "7 of 9 outside", 7, 7 / 9)]
    (folder / "analyze" / "anomalies").mkdir(parents=True)
    schema.write(found, folder / "analyze" / "anomalies" / "test.json")
    run = types.SimpleNamespace(
        output=folder,
        spec=SPEC,
        layout=Layout(FEATURES),
        splits=dict.fromkeys(("train", "validation", "test"), split),
        trained=trained,
        settings=Settings(epochs=3),
        seconds={"ingest": 1.0},
        pushed=None,
    )
    return report.write(run)


@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_curves_equal_the_metrics_of_each_query(lists, shards, scorers, gain):
    found = curves.ndcg(scorers, SPEC, shards, longest=12, seed=0, gain=gain)
    of_label = {"exponential": references.exponential, "linear": float}[gain]
    for name, model in scorers.items():
        values = [
            [
                references.ndcg(one.labels, scores, np.ones_like(scores), k, of_label)
                for k in range(1, 13)
            ]
            for one in lists
            for scores in [model(one.features[None]).numpy()[0]]
        ]
        curve = found[name]
        np.testing.assert_allclose(curve.mean, np.mean(values, axis=0), rtol=1e-5)
        assert np.all(curve.low <= curve.mean)
        assert np.all(curve.mean <= curve.high)


def test_the_page_shows_everything_and_asks_for_nothing(page):
    text = page.read_text()
    assert text.count("<figure>") == text.count("<figcaption>") == 7
    assert text.count('role="img" aria-label="') == 12 + len(NAMES)
    for name in (
        "quality",
        "champion",
        "importance",
        "calibration",
        "slices",
        "training",
        "loss",
        "samples",
        "data",
        "anomalies",
    ):
        assert f'<section id="{name}">' in text
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text) == []
    assert "http" not in text
    assert len(text) < 300_000


def test_the_page_names_losses_and_models(page):
    text = page.read_text()
    assert "<tr><td>baseline<td>softmax_loss<td>list_scorer<td" in text
    assert "<tr><td>ours<td>rg_cross_loss<td>list_scorer<td" in text


def test_a_training_that_two_models_share_is_drawn_once():
    fits = [Fit("softmax_loss", 3, 3.0, 0.01, 100.0, 1000.0, HISTORY) for _ in range(2)]
    candidate = Candidate(losses.SoftmaxLoss())
    found = {
        name: Trained(candidate, None, [], [fit])
        for name, fit in zip(("baseline", "ours"), fits, strict=True)
    }
    assert [(name, fit) for name, fit, _ in each_once(found)] == [("baseline", fits[0])]


def test_names_from_the_data_are_text(page):
    text = page.read_text()
    assert "<td>&lt;b&gt;second&lt;/b&gt;<td>" in text
    assert "<td>country &lt;i&gt;<td>" in text
    assert "<b>second" not in text
    assert "<i>" not in text


def test_the_page_tells_what_went_wrong(page):
    text = page.read_text()
    assert "Not blessed: not published." in text
    assert "at least 10 queries: 9" in text
    cells = ["warn", "test", "third &amp; last", "range"]
    row = "".join(f"<td>{cell}" for cell in cells) + '<td class="text">values from 0 to 1'
    assert row + '<td class="text">7 of 9 outside<td class="n">0.778' in text


of_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")


def dom(path):
    """What a browser makes of a file."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    found = [f"--user-data-dir={path.parent}", "--virtual-time-budget=5000", "--dump-dom"]
    command = ["chromium", *options, *found, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


PHONE = """<iframe src="page.html" width="390" height="800"></iframe>
<script>addEventListener("message", event => document.body.append(event.data));</script>"""
TELL = """<script>
const head = document.querySelector("#quality thead");
const cell = document.querySelector("#slices td.n");
parent.postMessage(`width ${document.documentElement.scrollWidth}, cell ${cell.dataset.label},
  head ${getComputedStyle(head).display}`, "*");
</script>"""


@of_chromium
def test_the_page_fits_a_phone(page, tmp_path):
    (tmp_path / "page.html").write_text(page.read_text() + TELL)
    (tmp_path / "phone.html").write_text(PHONE)
    width, *others = re.search(
        r"width (\d+), cell (\w+),\s+head (\w+)", dom(tmp_path / "phone.html")
    ).groups()
    assert (int(width) <= 390, others) == (True, ["queries", "none"])


@of_chromium
def test_a_browser_sorts_a_table(page, tmp_path):
    text = page.read_text()
    click = "<script>document.querySelectorAll('#data .sortable button')[0].click();"
    (tmp_path / "page.html").write_text(f"{text}{2 * (click + '</script>')}")

    found = dom(tmp_path / "page.html")

    assert 'aria-sort="descending"' in found
    table = found.split('<section id="data">')[1].split("</section>")[0].split("<tbody>")[-1]
    names = re.findall(r"<tr><td[^>]*>([^<]*)", table)
    assert names == ["third &amp; last", "first", "0", "&lt;b&gt;second&lt;/b&gt;"]
