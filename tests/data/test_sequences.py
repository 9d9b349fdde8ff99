"""`data.Sequences`: exact ids, order of time, splits without a leak, and windows."""

import collections
import datetime
import itertools
import pathlib
import tempfile
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyarrow import parquet

from tfrank_sel.data import InputError, Sequences

ROWS = st.lists(
    st.tuples(st.sampled_from(["7", "007", "7.0", "a b"]), st.integers(0, 9), st.integers(0, 6)),
    min_size=1,
    max_size=40,
)


def read(rows: Any, **columns: str) -> Sequences:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "log.csv")
        lines = [",".join(map(str, row)) for row in rows]
        path.write_text("\n".join(["user,item,time", *lines]) + "\n", encoding="utf-8")
        return Sequences.read(path, **columns)


def by_user(sequences: Sequences) -> dict[str, list[str]]:
    taken = collections.defaultdict(list)
    for user, number in zip(sequences.users, sequences.items, strict=True):
        taken[sequences.user_ids[user]].append(sequences.item_ids[number - 1])
    return dict(taken)


def in_order(rows: Any) -> dict[str, list[str]]:
    taken = collections.defaultdict(list)
    for user, item, _ in sorted(rows, key=lambda row: row[2]):  # stable
        taken[user].append(str(item))
    return dict(taken)


@given(ROWS, st.integers(0, 7), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_splits_have_no_leak_and_windows_have_each_target_once(
    rows: Any, time: int, length: int
) -> None:
    whole = read(rows)
    expected = in_order(rows)
    assert by_user(whole) == expected

    before, later = whole.split(time)
    assert np.all(before.times < time)
    assert np.all(later.times >= time)
    assert len(before.users) + len(later.users) == len(rows)
    train, last = whole.leave_one_out()
    kept, held_out = by_user(train), by_user(last)
    for user, items in expected.items():
        assert kept[user] + held_out.get(user, []) == items
        assert len(held_out.get(user, [])) == (len(items) > 1)
    for part in (before, later, train, last):
        assert part.item_ids is whole.item_ids
        assert part.histories(3).shape == (len(expected), 3)

    inputs, targets = whole.windows(length)
    assert inputs.dtype == targets.dtype == np.int32
    np.testing.assert_array_equal(inputs == 0, targets == -1)
    pairs = [(a, b) for items in expected.values() for a, b in itertools.pairwise(items)]
    texts = [whole.item_ids[x[x > 0] - 1].tolist() for x in (inputs, targets)]
    assert collections.Counter(zip(*texts, strict=True)) == collections.Counter(pairs)


def test_windows_are_cut_from_the_end() -> None:
    inputs, targets = read([("u", i, i) for i in range(5)]).windows(3)
    assert inputs.tolist() == [[0, 0, 1], [2, 3, 4]]
    assert targets.tolist() == [[-1, -1, 2], [3, 4, 5]]


def test_ids_are_exact_in_any_format(tmp_path: pathlib.Path) -> None:
    sequences = read([("1", "007", 3), ("01", "7", 2), ("1", "7", 1)])
    assert by_user(sequences) == {"1": ["7", "007"], "01": ["7"]}
    table = {"u": ["1", "01", "1"], "i": ["007", "7", "7"], "t": [3, 2, 1]}
    parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    same = Sequences.read(tmp_path / "log.parquet", user="u", item="i", time="t")
    assert by_user(same) == by_user(sequences)


def test_times_are_numbers_or_dates(tmp_path: pathlib.Path) -> None:
    days = ["2024-03-01", "2024-02-29T23:59:59Z", "2024-02-29"]
    seconds = np.array(["2024-02-29", "2024-02-29T23:59:59", "2024-03-01"], "M8[s]").astype(float)
    texts = read([("u", i, day) for i, day in enumerate(days)])
    times = pa.array(np.array([day.rstrip("Z") for day in days], "M8[ms]"))
    for column in (times, times.cast(pa.timestamp("ns", "UTC"))):
        table = pa.table({"user": ["u"] * 3, "item": ["0", "1", "2"], "time": column})
        parquet.write_table(table, tmp_path / "log.parquet")
        for sequences in (texts, Sequences.read(tmp_path / "log.parquet")):
            np.testing.assert_array_equal(sequences.times, seconds)
            assert by_user(sequences) == {"u": ["2", "1", "0"]}
    assert read([("u", 1, 0.5), ("u", 2, 0.25)]).times.tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            [("u", "i", "soon")],
            {},
            r"log.csv, row \d: 'time' must be a finite number or a time in ISO 8601.*soon",
        ),
        ([("u", "", 1)], {}, r"log.csv, row \d: 'item' must be"),
        ([("u", "i", 1)], {"time": "when"}, r"log.csv.*'when'"),
        ([], {}, "log.csv: expected interactions. Received: no rows"),
    ],
)
def test_errors_name_file_column_and_value(
    rows: Any, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(rows, **columns)
    with pytest.raises(ValueError, match="`max_length` must be positive"):
        read([("u", "i", 1)]).windows(0)


MOMENTS = [
    "2024-02-29T12:00:00.75Z",
    "2024-02-29T12:00:00.25Z",
    "2024-02-28",
    "2024-02-29 12:00:01",
]
IN_ORDER = ["2", "1", "0", "3"]
TIMES = {
    "texts": MOMENTS,
    **{
        f"timestamps in {unit}": np.array([x.rstrip("Z") for x in MOMENTS], f"M8[{unit}]")
        for unit in ("ms", "us", "ns")
    },
    "nanoseconds beyond 2^53": [2**60 + 2, 2**60 + 1, 2**60, 2**60 + 3],
    "numbers in texts": ["11", "9", "2", "100"],
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["columns", "dicts", "arrow", "pandas", "polars", "file"])
@pytest.mark.parametrize("name", TIMES)
def test_the_order_is_that_of_the_times_in_any_table(
    name: str, kind: str, tmp_path: pathlib.Path
) -> None:
    columns = {"user": ["u"] * 4, "item": [0.0, 1.0, 2.0, 3.0], "time": TIMES[name]}
    table = pa.table(columns)
    parquet.write_table(table, tmp_path / "log.parquet")
    forms = {
        "columns": columns,
        "dicts": table.to_pylist(),
        "arrow": table,
        "pandas": pd.DataFrame(columns),
        "polars": pl.from_arrow(table),
        "file": tmp_path / "log.parquet",
    }
    assert by_user(Sequences.read(forms[kind])) == {"u": IN_ORDER}


def test_a_split_is_at_any_time() -> None:
    sequences = Sequences.read({"user": ["u"] * 4, "item": list("0123"), "time": MOMENTS})
    first = datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000)
    utc = first.replace(tzinfo=datetime.UTC)
    for time in (first, utc, utc.timestamp(), str(first), "2024-02-29T13:00:00.5+01:00"):
        before, later = sequences.split(time)
        assert (by_user(before), by_user(later)) == ({"u": ["2", "1"]}, {"u": ["0", "3"]})
    for day in ("2024-02-29", "20240229"):
        assert len(sequences.split(day)[0].users) == 1
    with pytest.raises(
        InputError, match=r"split: expected a day of the calendar. Received: '20240"
    ):
        sequences.split("20240230")
    for wrong in (float("nan"), None, "soon", float("inf")):
        with pytest.raises(InputError, match="split, row 0: 'time' must be a finite number or a t"):
            sequences.split(wrong)
