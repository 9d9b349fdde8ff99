import dataclasses
import html
import json
import re
import shlex
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

from tests.pipelines.test_main import invoke
from tfrank_sel import data
from tfrank_sel.data.schema import Schema
from tfrank_sel.pipelines.analysis import leakage
from tfrank_sel.pipelines.candidates import Candidate
from tfrank_sel.pipelines.configuration import Configuration, Override, load
from tfrank_sel.pipelines.configuration.files import with_overrides
from tfrank_sel.pipelines.configuration.sections import Rules
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation, MetricComparison
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.ingestion.stored_lists import Records
from tfrank_sel.pipelines.reporting import card, verdict
from tfrank_sel.pipelines.run.results import Run
from tfrank_sel.training.fitting import MemberFit, Trained, each_once

SPEC = data.FeatureSpec(num_features=4)
HISTORY = {
    name: [3.0, 2.0, 2.5] for name in ("loss", "val_loss", "ndcg", "val_ndcg", "mrr", "val_mrr")
}
NUMBERS = ["position", "after", "<b>second</b>", "third & last", "0"]
LISTS = 80  # of five items


def written(path, number, first, scale=1.0):
    """Rows in which `after` is known only of clicked items; half of the lists have none."""
    random, count = np.random.default_rng(number), 5 * LISTS
    clicked = (random.random([LISTS, 5]) < 0.3) & (np.arange(LISTS) % 2 == 0)[:, None]
    clicked[::4, 0] = True
    columns = {
        "query_id": np.repeat(np.arange(first, first + LISTS), 5),
        "doc_id": [f"d{i}" for i in random.integers(0, 20, count)],
        "clicked": clicked.ravel().astype(int),
        "country <i>": np.repeat(["here", *["there"] * (LISTS - 1)], 5),
        "position": np.tile(np.arange(1, 6), LISTS),
        "after": np.where(clicked.ravel(), random.random(count), np.nan),
        **{name: scale * random.normal(size=count) for name in NUMBERS[2:]},
    }
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run in which all that can be warned of is wrong, and which is not blessed."""
    folder = tmp_path_factory.mktemp("run")
    files = {
        "train": written(folder / "train.parquet", 0, 0),
        "validation": written(folder / "validation.parquet", 1, 200),
        "test": written(folder / "test.parquet", 2, 75, scale=3.0),  # 5 queries of train
    }
    sets = {
        "data": {"label": "clicked", "slice_by": "'country <i>'"},
        "features": {f"'{name}'": "number" for name in NUMBERS},  # `config` leaves out position
        "training": {"loss.class": "SoftmaxLoss", "epochs": 15, "learning_rate": 0.05},
        "evaluation": {"baseline.class": "SoftmaxLoss"},
        "blessing": {"min_queries": 99, "min_slice_queries": 1},
        "model": {"hidden_units": "[8]", "dropout": 0.0, "trees": "false"},
    }
    options = [f"{x}.{key}={y}" for x, own in sets.items() for key, y in own.items()]
    done = invoke(files, folder / "out", *(x for y in options for x in ("--set", y)))
    assert done.exit_code == 3, (done.output, done.exception)
    return folder / "out"


@pytest.fixture(scope="module")
def page(made):
    return made / "report.html"


def test_the_page_shows_everything_and_asks_for_nothing(page):
    text = page.read_text()
    assert text.count("<figure>") == text.count("<figcaption>") == 5
    assert text.count('role="img" aria-label="') == 8 + len(NUMBERS)
    sections = re.findall(r'<section id="(\w+)">', text)
    named = "quality slices importance calibration training samples data anomalies settings"
    assert sections == named.split()
    assert set(re.findall(r'<a href="#(\w+)">', text)) == {*sections}
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text) == []
    assert "http" not in text
    assert len(text) < 300_000


def test_the_card_has_the_anomalies_of_a_split_and_rule_as_one(made):
    manifest = made / "export" / "saved_model" / "assets.extra" / "manifest.json"
    card = json.loads(manifest.read_text())["card"]
    anomalies = json.loads((made / "analyze" / "anomalies" / "test.json").read_text())
    groups = [line for line in card["anomalies"] if line.startswith("test: ")]
    assert len(groups) == len({x["rule"] for x in anomalies}) < len(anomalies)
    for x in anomalies:
        assert any(x["feature"] in line for line in groups)
    assert [line.count(": expected ") for line in groups] == [1] * len(groups)


def test_the_page_names_losses_and_models(page):
    text = page.read_text()
    assert "<tr><td>baseline<td>softmax_loss<td>list_scorer<td" in text
    assert "<tr><td>ours<td>softmax_loss<td>list_scorer<td" in text


def test_a_training_that_two_models_share_is_drawn_once():
    fits = [MemberFit("rg_cross_loss", 3, 3.0, 0.01, 100.0, 1000.0, HISTORY) for _ in range(2)]
    candidate = Candidate()
    found = {
        name: Trained(candidate, None, [], [fit])
        for name, fit in zip(("baseline", "ours"), fits, strict=True)
    }
    assert each_once(found) == [("baseline", fits[0])]


def test_names_from_the_data_are_text(page):
    text = page.read_text()
    assert "<td>&lt;b&gt;second&lt;/b&gt;<td>" in text
    assert "<td>country &lt;i&gt; there<td>" in text
    assert "<b>second" not in text
    assert "<i>" not in text


def listed(page, after):
    """The items of a list of the page."""
    found = page.read_text().partition(after)[2].partition("</ul>")[0]
    return [html.unescape(x).strip() for x in found.split("<li>")[1:]]


def test_the_page_begins_with_the_refusal_and_what_to_do_without_the_value_of_a_leak(page):
    head = html.unescape(page.read_text()).partition('<strong class="headline">')[2]
    headline, _, rest = head.partition("</strong>")
    assert headline.startswith("Not published: after orders the labels: 1.000 by ")
    assert "compared with the baseline" not in rest.partition("</header>")[0]
    steps = re.findall(r'<p class="next">next: (.*?)</p>', rest)
    command = f"tfrank-sel-pipelines run --output {page.parent}"
    assert steps == [
        f"leave after out: {command} --omit after",
        f"if after is known before the label: {command} --allow-leaks after",
        f"leave position out: {command} --omit position",
    ]


def test_a_headline_is_of_clicks_and_slices_that_lose_are_named():
    def compared(ours, low, high, queries=50):
        return MetricComparison(0.5, ours, low, high, queries)

    slices = {
        "all": {"NDCG@10": compared(0.6, 0.08, 0.12, queries=99)},
        "list_size 1-10": {"NDCG@10": compared(0.4, -0.2, -0.01, queries=99)},  # all again
        "device phone": {"NDCG@10": compared(0.45, -0.07, -0.03), "MRR": compared(0.5, -0.1, 0.1)},
        "device tv": {"NDCG@10": compared(0.4, -0.2, -0.01, queries=9)},  # too few
    }
    found = Evaluation(slices, {})
    assert verdict.headline(found, "NDCG@10") == (
        "+20 % NDCG@10, compared with the baseline (+16 to +24)"
    )
    assert verdict.losses(found, Rules()) == (
        "Worse on 1 of 2 values of slices: "
        "device phone: -10 % NDCG@10, compared with the baseline (-14 to -6)"
    )
    assert verdict.losses(found, Rules(min_slice_queries=99)) == ""
    logged = {"clicks per session": MetricComparison(0.93, 1.116, 0.16, 0.22, 75)}
    assert verdict.headline(dataclasses.replace(found, clicks=logged), "NDCG@10") == (
        "+20 % clicks per session, compared with the logged order (+17 to +24)"
    )
    slices["all"]["NDCG@10"] = compared(0.48, -0.03, -0.01, queries=99)
    rules = Rules(min_slice_queries=60)
    assert verdict.losses(dataclasses.replace(found, clicks=logged), rules) == (
        "NDCG@10 0.480, baseline 0.500: significant loss (-0.030 to -0.010, allowed -0.02). "
        "Worse on 1 of 1 values of slices: "
        "all: -4.0 % NDCG@10, compared with the baseline (-6.0 to -2.0)"
    )


def test_a_model_that_another_ranking_beats_is_told_so(made):
    def compared(baseline, high):
        return {"NDCG@10": MetricComparison(baseline, 0.5, -0.08, high, 50)}

    simple = {"price alone": compared(0.53, -0.01), "popularity": compared(0.54, -0.01)}
    simple["odd"] = compared(0.55, 0.01)
    found = Evaluation({"all": compared(0.52, 0.02)}, {}, simple=simple)
    fits = [SimpleNamespace(loss=x) for x in ("rg", "mean_squared_trees", "rg_trees")]
    run = SimpleNamespace(
        configuration=Configuration(),
        evaluation=found,
        output=made,
        records=Records("", Schema({}, {})),
        job=SimpleNamespace(inputs=None, output="my run"),
        splits={"train": SimpleNamespace(statistics=SimpleNamespace(labels=()))},
        trained_models={"ours": SimpleNamespace(better=(), fits=fits)},
        push_outcome=None,
    )
    told = verdict.Verdict.of(run).losses
    assert told == ". ".join(
        f"NDCG@10 0.500, {name}: significant loss (-0.080 to -0.010)"
        for name in ("price alone 0.530", "popularity 0.540")
    )
    run.push_outcome = SimpleNamespace(reasons=["50 queries, at least 99 required"])
    refused = verdict.Verdict.of(run)
    assert refused.headline == "Not published: 50 queries, at least 99 required"
    assert refused.difference == refused.losses == ""  # a feature leaks the label
    run.configuration = Configuration(blessing=Rules(allow_leaks=["after"]))
    refused = verdict.Verdict.of(run)
    assert refused.difference == verdict.headline(found, "NDCG@10")
    assert refused.losses == told


LOSSES = [{"class": "SoftmaxLoss"}, {"class": "ListMLELoss"}]
FOREST = {"num_leaves": 3, "loss": [{"class": "RGCrossLoss"}, {"class": "lambdarank"}]}


@pytest.mark.parametrize(
    ("losses", "trees", "better", "is_beaten", "options"),
    [
        (None, "auto", [0], False, ["--no-ensemble"]),
        (None, "auto", [0, 2], False, ["model.trees.loss=[{class='RGCrossLoss'}]"]),
        (None, "auto", (), True, ["--no-ensemble"]),
        (None, False, (), True, []),
        (None, "auto", (), False, []),
        (LOSSES, FOREST, [1, 3], False, ["model.trees", "training.loss=[{class='ListMLELoss'}]"]),
        (LOSSES, "auto", [0], False, ["--no-ensemble", "training.loss=[{class='SoftmaxLoss'}]"]),
        (LOSSES, False, (), True, ["training.loss=[{class='RGCrossLoss'}]"]),
    ],
)
def test_a_better_part_of_an_ensemble_is_named_with_its_options(
    losses, trees, better, is_beaten, options
):
    sections = {"model": {"trees": trees}, "training": {"loss": losses} if losses else {}}
    configuration = Configuration.model_validate(sections)
    forest = 0 if trees is False else 2
    fits = [SimpleNamespace(loss=f"member {i}") for i in range(len(losses or "1") + forest)]
    high = -0.01 if is_beaten else 0.01
    run = SimpleNamespace(
        configuration=configuration,
        evaluation=Evaluation({"all": {"NDCG@10": MetricComparison(0.5, 0.5, -0.1, high, 9)}}, {}),
        job=SimpleNamespace(output="out"),
        trained_models={"ours": SimpleNamespace(better=better, fits=fits)},
    )
    lines = [*verdict._steps_of_members(run)]
    assert len(lines) == bool(options)
    if options:
        _, _, command = lines[0].partition(": tfrank-sel-pipelines run --output out ")
        words = shlex.split(command)
        expected = load(None, [Override.parse(x.replace("'", '"')) for x in options if "=" in x])
        overrides = [Override.parse(x) for x in words if "=" in x]
        made = with_overrides(configuration, overrides)
        assert ("--no-ensemble" in words) == ("--no-ensemble" in options)
        kept = LOSSES[1:] if better == [1, 3] else expected.training.loss
        assert made.training.loss == kept
        if better == [1, 3]:
            assert made.model.trees == {**FOREST, "loss": [{"class": "lambdarank"}]}
        elif better == [0, 2]:
            assert made.model.trees == expected.model.trees


def test_the_page_judges_in_sentences(page):
    leak, queries, equal, chance, baseline = listed(page, "Not blessed: not published.")
    assert re.fullmatch(r"✗ after orders the labels: 1.000 by .*; leave it out if .*", leak)
    assert queries == "✗ 80 queries, at least 99 required"
    assert equal == "✓ equal scores for all items in 0.0% of the lists, at most 50% allowed"
    assert re.fullmatch(
        r"✓ NDCG@10 0.\d+, random order 0.\d+: significant gain \(.* to .*\)", chance
    )
    same = "no significant loss (+0.000 to +0.000, allowed -0.02)"
    assert re.fullmatch(rf"✓ NDCG@10 (0.\d+), baseline \1: {re.escape(same)}", baseline)
    assert "3 comparisons of slices passed" in page.read_text()


def test_all_that_is_wrong_with_a_run_is_warned_of(made, page):
    leak, shared, position, ceiling, itself = listed(
        page, '<div class="verdict bad" id="warnings">'
    )
    assert leak.startswith(
        "⚠ A single feature orders the labels: after (1.000 by whether it is missing"
    )
    assert shared == "⚠ The splits train and test share queries: 5 of 80 lists."
    assert position.startswith("⚠ position is a feature. A server does not know the position")
    assert re.fullmatch(r"⚠ NDCG@10 0\.\d+ is close to the highest possible value, .*", ceiling)
    assert itself.startswith("⚠ The model and the baseline have equal metrics on each query")
    clicks = parquet.read_table(made.parent / "test.parquet")["clicked"].to_numpy()
    lacking = int(np.sum(clicks.reshape(-1, 5).sum(axis=1) == 0))
    most = (
        f"{lacking} of 80 lists have no relevant item: NDCG@10 is at most {1 - lacking / 80:.3f}."
    )
    assert f"<p>{most}</p>" in page.read_text()


@pytest.mark.long
def test_nothing_is_warned_of_where_all_of_it_is_put_right(tmp_path):
    files = {}
    for number, split in enumerate(("train", "validation", "test")):
        random, shape = np.random.default_rng(number), [150, 10]
        first, second = random.normal(size=[2, *shape])
        clicked = random.random(shape) < 1.0 / (1.0 + np.exp(2.0 - 1.5 * (first + second)))
        columns = {
            "query_id": np.repeat(np.arange(150) + 1_000 * number, 10),
            "clicked": clicked.ravel().astype(int),
            "position": np.tile(np.arange(1, 11), 150),
            "examined": np.tile(1.0 / np.arange(1, 11), 150),
            "after": np.where(clicked.ravel(), 1.0, np.nan),
            "first": first.ravel(),
            "second": second.ravel(),
        }
        parquet.write_table(pa.table(columns), tmp_path / f"{split}.parquet")
        files[split] = tmp_path / f"{split}.parquet"
    sets = {
        "data": {"label": "clicked", "propensity": "examined"},
        "features": {"first": "number", "second": "number"},
        "training": {"epochs": 15, "learning_rate": 0.03},
        "model": {"hidden_units": "[8]", "dropout": 0.0, "trees": "false"},
        "evaluation": {"baseline": "false"},
    }
    options = [f"{x}.{key}={y}" for x, own in sets.items() for key, y in own.items()]
    done = invoke(files, tmp_path / "out", *(x for y in options for x in ("--set", y)))
    assert done.exit_code == 0, (done.output, done.exception)
    text = (tmp_path / "out" / "report.html").read_text()
    assert 'id="warnings"' not in text
    assert re.search(r'class="headline">\+\d+ % NDCG@10, compared with a random order', text)
    assert 'class="next"' not in text


def test_a_position_that_is_no_feature_must_be_corrected(made):
    def warned(clicks=None, labels=("0", "1"), **data):
        sections = {
            "clicks": clicks or {},
            "data": {"label": "clicked", "train": str(made.parent / "train.parquet"), **data},
            "features": {"0": "number"},
        }
        sections["data"] |= dict.fromkeys(("validation", "test"), sections["data"]["train"])
        job = Job.of(Configuration.model_validate(sections), made)
        found = Run(job, Progress(Console(quiet=True)))
        found.records = Records("", job.inputs.schema())
        found.splits = {"train": SimpleNamespace(statistics=SimpleNamespace(labels=labels))}
        return [x for x in card.warnings(found) if "position" in x]

    [warning] = warned()
    assert warning.startswith("The files have position, and nothing corrects the labels for it.")
    assert warned(propensity="after") == []
    assert warned(clicks={"position": "position"}) == []
    assert warned(labels=("0", "1", "3")) == []  # grades are no clicks


@pytest.mark.parametrize("is_last", [False, True])
def test_a_leak_of_long_lists_is_found_wherever_their_clicks_stand(is_last):
    lists, labels = np.repeat(np.arange(60), 120), np.tile(np.arange(120) < 12, 60) * 1.0
    labels = labels[::-1] if is_last else labels
    known = labels + np.random.default_rng(0).normal(size=len(labels)) / 10.0
    [leak] = leakage.of_features(["known"], known[:, np.newaxis], labels, lists)
    assert leak.feature == "known"


def test_a_column_of_texts_that_tells_the_label_is_warned_of():
    labels, lists = np.tile([0.0, 1.0, 0.0, 0.0], 60), np.arange(240) // 4
    words = np.array([b"shown", b"clicked"])[labels.astype(int)]
    random = np.random.default_rng(0).integers(0, 10**6, 240).astype("S")
    late = np.where(labels == 1.0, random, b"")
    texts = np.stack([words, late, random], axis=1).astype(object)
    rows = leakage.of_texts(texts, labels, lists)
    found = leakage.of_features(["words", "late", "random"], rows, labels, lists)
    assert [x.feature for x in found] == ["words", "late"]


def test_the_page_says_which_run_it_is(made, page):
    text = page.read_text()
    manifest = json.loads((made / "push" / "manifest.json").read_text())
    title = f"ranker, not published, {manifest['made'][:16].replace('T', ' ')}"
    assert f"<title>{title}: report of a run</title>" in text
    told = dict(re.findall(r"<dt>(\w+)<dd>(.*)", html.unescape(text)))
    assert re.match(
        r"ListScorer of \d+ parameters, trained with softmax_loss; .* ms", told["Model"]
    )
    assert told["Data"] == "train.parquet, validation.parquet, test.parquet; label clicked"
    assert told["Features"] == f"5 of type number ({', '.join(NUMBERS)})"
    assert f"tfrank_sel {manifest['versions']['tfrank_sel']}" in told["Made"]
    row = '<tr><td>training.epochs<td class="text">15<td class="text">60'
    assert row in text


def test_anomalies_of_a_kind_share_a_row_and_slices_repeat_nothing(page):
    text = html.unescape(page.read_text())
    anomalies = text.partition('<section id="anomalies">')[2].partition("</table>")[0]
    [outside] = re.findall(r'<td>test<td class="text">(.*)<td>range', anomalies)
    count, _, names = outside.partition(": ")
    assert int(count) == len(names.split(", ")) >= 3
    assert {*names.split(", ")} >= {*NUMBERS[2:]}
    slices = text.partition('<section id="slices">')[2].partition("</section>")[0]
    assert {*re.findall("<tr><td>(.*?)<td>", slices)} == {"country <i> there"}


def test_ranked_items_show_the_most_important_features(page):
    rankings = page.read_text().partition('<section id="samples">')[2].partition("</section>")[0]
    names = re.search("<thead>.*?<tbody>", rankings, re.DOTALL)[0].split('<th class="n">')[-4:]
    assert names[0] == "after"
    first = re.search(r"<tr><td class=\"n\">1<td>(.*)", rankings)[1].split('<td class="n">')
    assert 0.0 < float(first[4]) < 1.0  # known, because it is clicked


of_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")


def dom(path, *settings):
    """What a browser makes of a file."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    found = [f"--user-data-dir={path.parent}", "--virtual-time-budget=5000", "--dump-dom"]
    command = ["chromium", *options, *found, *settings, path.as_uri()]
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
    assert (int(width) <= 390, others) == (True, ["ours", "none"])


WIDE = """<script>
const boxes = [...document.querySelectorAll("html, .wide")];
const cut = boxes.filter(x => x.scrollWidth > x.clientWidth);
document.body.append(`cut: ${cut.map(x => x.closest("section")?.id ?? "page")}.`);
</script>"""


@of_chromium
@pytest.mark.parametrize("width", [1280, 1440])
def test_no_table_is_wider_than_a_laptop(page, tmp_path, width):
    (tmp_path / "page.html").write_text(page.read_text() + WIDE)
    assert "cut: ." in dom(tmp_path / "page.html", f"--window-size={width},900")


def test_ours_and_the_difference_are_the_first_columns(page):
    heads = re.findall("<thead><tr>(.*?)<tbody>", page.read_text(), re.DOTALL)
    heads = [re.findall(r">([^<>]+?)\s*(?=<|$)", head) for head in heads]
    compared = [head for head in heads if "ours" in head]
    first = [head[head.index("ours") :][:2] for head in compared]
    assert first == 2 * [["ours", "ours - baseline"]]


@of_chromium
def test_a_browser_sorts_a_table(page, tmp_path):
    text = page.read_text()
    click = "<script>document.querySelectorAll('#data .sortable button')[0].click();"
    (tmp_path / "page.html").write_text(f"{text}{2 * (click + '</script>')}")

    found = dom(tmp_path / "page.html")

    assert 'aria-sort="descending"' in found
    table = found.split('<section id="data">')[1].split("</section>")[0].split("<tbody>")[-1]
    names = re.findall(r"<tr><td[^>]*>([^<]*)", table)
    assert names == ["third &amp; last", "position", "after", "0", "&lt;b&gt;second&lt;/b&gt;"]
