"""Interactions that are held out by their times."""

import numpy as np
import pandas as pd
import pytest

from tfrank_sel.models.als.interactions import divided


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
    with pytest.raises(ValueError, match=r"a value for each interaction\. Received: missing"):
        divided(([0, 0, 1, 1], [0, 1, 0, 1]), times, 0.25, np.random.default_rng(0))


def test_the_last_time_is_held_out_if_it_has_more_than_the_share():
    pairs = np.repeat([0, 1], 6), np.tile(np.arange(6), 2)
    times = np.tile(["2024-01", "2024-02", "2024-03"], 4)
    train, held_out = divided(pairs, times, 0.1, np.random.default_rng(0))
    assert (train.nnz, held_out.nnz) == (8, 4)
    train, held_out = divided(pairs, times == "", 0.1, np.random.default_rng(0))  # one time
    assert held_out.nnz == 0
