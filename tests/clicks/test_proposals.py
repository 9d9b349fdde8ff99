"""What `config` proposes of a log of clicks."""

import pytest

from tests.pipelines.test_proposals import config, log  # noqa: F401


@pytest.mark.parametrize("query", ["session", "query"])
def test_the_correction_of_clicks_is_proposed_for_a_log_of_impressions(
    log,  # noqa: F811
    tmp_path,
    query,
):
    found, text = config(tmp_path, log, "--query", query)
    assert found["data"]["query"] == "query"
    roles = {"position": "position", "session": "session"}
    assert {x: found["clicks"][x] for x in roles} == roles
    assert found["features"] == {
        "price": "number",
        "brand_id": {"type": "category", "dtype": "int64"},
        "words": {"type": "number", "of": "query"},
        "paid": "number",
    }
    told = " ".join(text.split("\n# ")).replace("\n", " ")
    assert "Proposed, since clicked is 0 or 1, position the place of an item" in told
    assert "device is omitted: it is of session; labels are one for each query and item" in told
