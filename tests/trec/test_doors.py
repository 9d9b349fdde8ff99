"""Identifiers of runs in files and in memory."""

import pytest

from tests.test_doors import IDS, check_texts_of_ids, of_names
from tfrank_sel.data import formats
from tfrank_sel.trec import runs


def by_run(source):
    if hasattr(source, "suffix"):
        source = formats.table(source, {}, others=True).columns
    return list(runs.run_of(of_names(source, {"id": "doc_id", "query": "query_id"}))["q"])


@pytest.mark.parametrize("kind", IDS)
def test_an_identifier_has_one_text_in_runs(tmp_path, kind):
    check_texts_of_ids(tmp_path, kind, by_run)
