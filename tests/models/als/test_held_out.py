"""Interactions that are held out by their times."""

import numpy as np
import pandas as pd
import pytest

from tfrank_sel.data import InputError
from tfrank_sel.models.als import RGFactorizer
from tfrank_sel.models.als.interactions import read


@pytest.mark.parametrize(
    "times",
    [
        [0.0, np.nan, 2.0, 3.0],
        ["2024", None, "2025", "2026"],
        pd.to_datetime(["2024", None, "2025", "2026"]).to_numpy(),
        pd.Series(pd.to_datetime(["2024", None, "2025", "2026"])).dt.tz_localize("UTC"),
        pd.array([1, None, 2, 3], "Int64"),
    ],
    ids=["float", "text", "date", "zone", "nullable"],
)
def test_a_time_that_is_missing_is_not_the_latest(times):
    with pytest.raises(InputError, match=r"`times`, row 1: 'times' must be a finite number or a"):
        read(([0, 0, 1, 1], [0, 1, 0, 1]), times=times)


def test_the_last_time_is_held_out_if_it_has_more_than_the_share():
    pairs = np.repeat([0, 1], 6), np.tile(np.arange(6), 2)
    times = np.tile(["2024-01-01", "2024-02-01", "2024-03-01"], 4)
    train, held_out = read(pairs, times=times).divide(0.1, np.random.default_rng(0))
    assert (train.nnz, held_out.nnz) == (8, 4)
    one_time = read(pairs, times=np.zeros(12))
    assert one_time.divide(0.1, np.random.default_rng(0))[1].nnz == 0


@pytest.mark.parametrize(
    ("times", "latest"),
    [
        (["9", "11", "10", "2"], 1),
        ([9, 11, 10, 2], 1),
        (["2024-10-01", "2024-09-30", "2024-02-29", "2024-01-01"], 0),
        (["2024-03-01T00:00:00.25Z", "2024-03-01T00:00:00.5Z", "2024-03-01", "2024-02-29"], 1),
        (pd.to_datetime(["2024-03-01", "2024-03-02", "2024-02-01", "2024-01-01"]), 1),
        ([2**60 + 1, 2**60 + 2, 2**60, 5], 1),
    ],
    ids=["numbers in texts", "numbers", "days", "parts of a second", "dates", "nanoseconds"],
)
def test_times_have_one_order_in_a_frame_and_beside_it(times, latest):
    frame = pd.DataFrame({"user": [0, 0, 0, 0], "item": [0, 1, 2, 3], "time": times})
    for given in (read(frame), read(frame[["user", "item"]], times=frame["time"])):
        _, held_out = given.divide(0.2, np.random.default_rng(0))
        assert held_out.indices.tolist() == [latest]


def test_times_that_cannot_be_ordered_are_refused():
    days = ["30/9/2024", "1/10/2024"]
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "time": days})
    with pytest.raises(InputError, match="'time' must be a finite number or a time in ISO 8601"):
        RGFactorizer(num_factors=2).fit(frame)
