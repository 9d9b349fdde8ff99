import json
import re
import tracemalloc
import warnings

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest

from tfrank_sel import clicks
from tfrank_sel.data import synthetic

LABELS = [np.random.default_rng(i).integers(0, 5, 10).astype(float) for i in range(60)]
ROW = {"query": ["q", "q"], "item": ["a", "b"], "position": [1, 2], "click": [1, 0]}
SWAPPED = {
    "query": ["q"] * 4,
    "item": list("aabb"),
    "position": [1, 2, 1, 2],
    "click": [6, 3, 2, 1],
    "shown": [10] * 4,
}


def simulated(model: str, **options: float) -> tuple[clicks.Log, dict[str, np.ndarray]]:
    columns = synthetic.sessions(LABELS, 100_000, model=model, temperature=2.0, **options)
    return clicks.Log.of(columns, session="session"), columns


@pytest.mark.sample(40)
@pytest.mark.parametrize(
    ("model", "method", "within"),
    [("pbm", "pbm", 0.03), ("cascade", "cascade", 0.02)],
)
def test_simulated_propensities_are_estimated_and_covered(model, method, within):
    log, columns = simulated(model)
    estimated = clicks.estimate(log, method, resamples=20)
    truth = np.bincount(columns["position"], columns["propensity"])[1:]
    truth /= np.bincount(columns["position"])[1:]
    np.testing.assert_allclose(estimated.values, truth / truth[0], rtol=within, atol=0.002)
    inside = (truth >= estimated.low - 0.01) & (truth <= estimated.high + 0.01)
    assert inside.all()
    assert (estimated.low <= estimated.high).all()


def test_counts_are_the_same_log_as_their_impressions():
    counts = clicks.Log(**SWAPPED)
    repeat = {name: np.repeat(SWAPPED[name], 10) for name in ("query", "item", "position")}
    rows = np.concatenate([np.arange(10) < n for n in SWAPPED["click"]])
    single = clicks.Log(**repeat, click=rows)
    both = [clicks.estimate(log, "pbm", resamples=2).values for log in (counts, single)]
    np.testing.assert_allclose(*both)
    np.testing.assert_allclose(both[0], [1.0, 0.5], atol=0.01)


def test_a_file_keeps_all_and_a_picture_shows_it(tmp_path):
    kept = clicks.estimate(clicks.Log(**SWAPPED), resamples=3)
    kept.save(tmp_path / "p.json")
    loaded = clicks.Propensities.load(tmp_path / "p.json")
    assert kept.others
    for name, value in vars(kept).items():
        np.testing.assert_equal(getattr(loaded, name), value)
    axes = matplotlib.figure.Figure().subplots()
    loaded.draw(axes)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), kept.values)
    fields = json.loads((tmp_path / "p.json").read_text())
    assert fields.pop("digest")  # as if a version without one had written it
    (tmp_path / "p.json").write_text(json.dumps(fields | {"values": [1.0, 0.0]}))
    with pytest.raises(ValueError, match="`values` must be above 0 and at most 1"):
        clicks.Propensities.load(tmp_path / "p.json")
    with pytest.raises(ValueError, match=re.escape("position 3 has no propensity")):
        loaded.at([1, 3])


@pytest.mark.parametrize(
    "damage",
    [
        {x: [] for x in ("positions", "values", "low", "high", "draws")},
        {"positions": [2, 1]},
        {"positions": [1, 1]},
        {"draws": [[1.0]]},
        {"low": [1.0]},
    ],
    ids=str,
)
def test_propensities_are_one_for_each_position(tmp_path, damage):
    ends = np.array([1.0, 0.5])
    clicks.Propensities(np.array([1, 2]), ends, ends, ends, "pbm").save(tmp_path / "p.json")
    fields = json.loads((tmp_path / "p.json").read_text())
    del fields["digest"]
    (tmp_path / "p.json").write_text(json.dumps(fields | damage))
    with pytest.raises(ValueError, match="expected propensities that `save` wrote"):
        clicks.Propensities.load(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"position": [2, 2]}, "`position` must have at least two different values. Received: 2"),
        ({"position": [0, 1]}, "log, row 0: 'position' must be a whole number from 1. Received: 0"),
        (
            {"position": [1, 1.5]},
            "log, row 1: 'position' must be a whole number from 1. Received: 1.5",
        ),
        ({"position": [1]}, "`position` must be a vector with a value for each row"),
        (
            {"position": ["a", "b"]},
            "log, row 0: 'position' must be a whole number from 1. Received: 'a'",
        ),
        ({"click": [1, 2]}, "log, row 1: 'click' must be from 0 to 1. Received: 2"),
        ({"click": [1, np.nan]}, "log, row 1: 'click' must be from 0 to 1. Received: nan"),
        (
            {"click": [1, 4], "shown": [1, 3]},
            "log, row 1: `click` must be from 0 to `shown`. Received: 4.0",
        ),
        ({"shown": [1, 0]}, "log, row 1: 'shown' must be a finite number above 0. Received: 0"),
    ],
    ids=str,
)
def test_a_bad_log_is_refused_in_one_line(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        clicks.Log(**{**ROW, **wrong})
    assert "\n" not in str(caught.value)


def test_what_a_log_cannot_identify_is_refused():
    single = clicks.Log.of(synthetic.sessions(LABELS, 1000), session="session")
    for method in ("pbm", "ubm", "dbn"):
        with pytest.raises(ValueError, match="as in the log of a single ranker"):
            clicks.estimate(single, method)
    two = {"item": list("aabb"), "position": [1, 2, 3, 4]}
    apart = clicks.Log(**{**SWAPPED, **two})
    with pytest.raises(ValueError, match="`session` is required"):
        clicks.estimate(apart, "dbn")
    with pytest.raises(ValueError, match="`method` must be one of auto, none, pbm, additive, ubm"):
        clicks.estimate(apart, "em")
    with pytest.raises(ValueError, match="log: expected a column 'position'"):
        clicks.Log.of({"query": ["q"], "item": ["a"]})


@pytest.mark.parametrize("wrong", [{"size": 0}, {"eta": -1.0}, {"temperature": -1.0}], ids=str)
def test_a_simulation_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be at least"):
        synthetic.sessions(LABELS, 10, **wrong)


@pytest.mark.long
def test_intervals_of_sessions_cover_the_truth_for_a_few_queries():
    labels = [np.random.default_rng(i).integers(0, 5, 6).astype(float) for i in range(5)]
    covered = {"session": [], "query": []}
    for seed in range(60):
        columns = synthetic.sessions(labels, 2000, temperature=1.0, size=4, seed=seed)
        for unit, found in covered.items():
            log = clicks.Log.of(columns, **({"session": "session"} if unit == "session" else {}))
            estimated = clicks.estimate(log, resamples=60, seed=seed)
            truth = 1.0 / log.positions
            found.append((estimated.low <= truth) & (truth <= estimated.high))
    shares = {unit: np.mean(found, axis=0)[1:] for unit, found in covered.items()}
    assert np.all(shares["session"] >= 0.88), shares
    assert shares["query"].mean() < shares["session"].mean() - 0.05, shares


def test_a_log_of_one_query_with_sessions_has_an_interval():
    columns = synthetic.sessions([np.arange(4.0)], 3000, temperature=2.0, size=3, seed=1)
    for method in ("pbm", "cascade"):
        log = clicks.Log.of(columns, session="session")
        estimated = clicks.estimate(log, method, resamples=20)
        assert np.all(estimated.high[1:] > estimated.low[1:])


def test_positions_that_no_item_connects_have_the_nearest_propensity():
    # items a and b at 1 and 2, c and d, of fewer clicks, at 3 and 4
    items, places = list("aabbccdd"), [1, 2, 1, 2, 3, 4, 3, 4]
    found = [60, 30, 40, 20, 6, 3, 4, 2]
    log = clicks.Log(["q"] * 8, items, places, found, shown=[100] * 8)
    assert clicks.groups(log) == [[1, 2], [3, 4]]
    with pytest.warns(UserWarning, match=r"positions 3, 4 \(4 of 8 rows\).*the nearest position"):
        estimated = clicks.estimate(log, "pbm", resamples=2)
    np.testing.assert_allclose(estimated.values, [1.0, 0.5, 0.5, 0.5])
    further = estimated.nearest(np.array([1, 2, 7]))
    np.testing.assert_allclose(further.at([1, 7]), [1.0, 0.5])
    np.testing.assert_allclose(further.draws[:, 2], further.draws[:, 1])


@pytest.mark.parametrize("peak", [1, 2, 5])
def test_ratios_are_kept_where_another_position_is_examined_most(peak):
    places = np.arange(1, 7)
    seen = 0.8 / (1.0 + np.abs(places - peak))
    items, shown = np.repeat(np.arange(12), 6), np.full(72, 5000)
    attraction = np.random.default_rng(0).uniform(0.1, 0.9, 12)
    clicked = np.random.default_rng(1).binomial(shown, attraction[items] * np.tile(seen, 12))
    log = clicks.Log(items % 4, items, np.tile(places, 12), clicked, shown=shown)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        estimated = clicks.estimate(log, "pbm", resamples=20)
    np.testing.assert_allclose(estimated.values, seen / seen.max(), rtol=0.03)
    told = f"position {peak} is examined most, the first one"
    assert [told in str(x.message) for x in warned if "most" in str(x.message)] == [True] * (
        peak > 1
    )


def test_deep_positions_of_few_clicks_are_pooled():
    places = np.concatenate([np.arange(1, 61), np.arange(1, 61)[::-1]])
    found = np.where(places < 15, 30, 3)
    log = clicks.Log(["q"] * 120, np.repeat([0, 1], 60), places, found, shown=[100] * 120)
    assert log.pools[:14].tolist() == [*range(14)]
    sizes = np.bincount(log.pools)[14:]
    assert sizes.min() >= 4  # of 6 clicks each
    estimated = clicks.estimate(log, "pbm", resamples=2)
    np.testing.assert_allclose(estimated.values[14:], 0.1, rtol=1e-6)
    assert clicks.Log(["q"] * 2, ["a", "b"], [20, 40], [1, 0]).pools.tolist() == [0, 0]


@pytest.mark.long
def test_memory_is_bounded_for_lists_of_a_thousand_positions():
    random = np.random.default_rng(0)
    order = np.concatenate([random.permutation(1000) for _ in range(300)])
    places = np.tile(np.arange(1, 1001), 300)
    clicked = random.random(len(places)) < 5.0 / (4.0 + places)
    log = clicks.Log(places * 0, order, places, clicked, session=np.repeat(np.arange(300), 1000))
    tracemalloc.start()
    try:
        estimated = clicks.estimate(log, "pbm", resamples=20)
        assert tracemalloc.get_traced_memory()[1] < 1e9
    finally:
        tracemalloc.stop()
    assert estimated.at(500) == pytest.approx(5.0 / 504.0, rel=0.5)


@pytest.mark.long
def test_pooled_positions_connect_no_item():
    """Each item of each of many queries is shown once, at up to 60 positions."""
    random = np.random.default_rng(0)
    sizes = random.integers(1, 61, 120)
    session = np.repeat(np.arange(120), sizes)
    places = np.concatenate([np.arange(1, n + 1) for n in sizes])
    clicked = random.random(len(places)) < 0.3 / places**0.5
    log = clicks.Log(session, places, places, clicked, session=session)
    with pytest.warns(UserWarning, match="at one position only.*The method is (none|cascade|dcm)"):
        clicks.estimate(log, resamples=1)
    with pytest.raises(ValueError, match="at one position only"):
        clicks.estimate(log, "pbm")


def test_few_clicks_are_told():
    table = synthetic.sessions(LABELS, 100, temperature=2.0, seed=0)
    with pytest.warns(UserWarning, match="too few clicks: the propensity of position .* interval"):
        clicks.estimate(clicks.Log.of(table, session="session"), "pbm")


TABLE = {"query": ["q", "q"], "item": [12.0, 7.0], "position": [1, 2], "click": [1, 0]}


@pytest.mark.parametrize("name", ["query", "item", "session"])
@pytest.mark.parametrize("nothing", [None, np.nan, ""])
def test_a_row_of_a_log_names_its_query_item_and_session(name, nothing):
    table = TABLE | {"session": ["s", "t"]}
    table |= {name: [nothing, table[name][1]]}
    for made in (lambda: clicks.Log(**table), lambda: clicks.Log.of(table, session="session")):
        with pytest.raises(ValueError, match=rf"^log, row 0: '{name}' must be UTF-8 text"):
            made()


def test_logs_of_frames_and_files_have_the_same_items(tmp_path):
    (tmp_path / "log.csv").write_text("query,item,position,click,shown\nq,12,1,1,4\nq,7,2,0,2\n")
    counted = TABLE | {"shown": [4, 2]}
    logs = [clicks.Log.of(x) for x in (counted, pd.DataFrame(counted), str(tmp_path / "log.csv"))]
    for log in (*logs, clicks.Log(**counted)):
        assert [float(log.item_ids[i]) for i in log.items] == [12.0, 7.0]
        assert log.shown.tolist() == [4.0, 2.0]
    numbers = clicks.Log(["q"] * 3, [10, 9, 100], [1, 2, 3], [1, 0, 0])
    assert clicks.labels(numbers, [1.0] * 3)["item"].tolist() == [9, 10, 100]
    mixed = clicks.Log(["q"] * 3, [12.0, "12", 7], [1, 2, 3], [1, 0, 0])
    assert mixed.item_ids.tolist() == ["12", "7"]
