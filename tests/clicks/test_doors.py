"""Identifiers of click logs in files and in memory."""

import pytest

from tests.test_doors import IDS, INTEGERS, LONG, check_texts_of_ids, columns_of
from tfrank_sel import clicks
from tfrank_sel.clicks.log import codes_of
from tfrank_sel.data.arrays import text


def by_log(source):
    log = clicks.Log.of(source, query="id", item="query", click="label")
    return [text(log.query_ids[i]) for i in log.queries]  # numbers in memory stay numbers


@pytest.mark.parametrize("kind", IDS)
def test_an_identifier_has_one_text_in_logs(tmp_path, kind):
    check_texts_of_ids(tmp_path, kind, by_log)


def test_numbers_that_are_one_float_are_two_queries():
    for column in (LONG, INTEGERS):
        assert len(set(by_log(columns_of(column)))) == 2
        assert codes_of(column.to_pylist()).tolist() == [0, 1]
    assert codes_of([0.0, -0.0, -1.5]).tolist() == [1, 1, 0]
