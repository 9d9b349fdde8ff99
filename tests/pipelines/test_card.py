"""The model card that goes with a published model."""

import json

from tfrank_sel.pipelines.reporting import card


def test_a_published_model_has_a_card_and_its_facts_in_the_manifest(tracked):
    extra = tracked / "serving" / "ranker" / "1" / "assets.extra"
    text = (extra / "MODEL_CARD.md").read_text()
    told = json.loads((extra / "manifest.json").read_text())["card"]
    assert text == card.text(told)
    assert text.startswith("# Model card: ranker\n")
    assert "Ranks the offers \\| of a test." in text
    assert len(text.splitlines()) < 100  # a page


def test_the_facts_are_those_of_the_run(tracked):
    manifest = tracked / "export" / "saved_model" / "assets.extra" / "manifest.json"
    told = json.loads(manifest.read_text())["card"]
    assert told["data"]["splits"]["train"] == {"lists": 16, "items": 61}
    assert told["data"]["files"] == [f"{x}.txt.gz" for x in ("train", "validation", "test")]
    assert told["features"] == {"features": "vector of 3"}
    assert told["model"]["losses"] == [{"class": "LambdaLoss"}]
    assert told["model"]["settings"]["hidden_units"] == [4]
    metrics = json.loads((tracked / "evaluate" / "metrics.json").read_text())
    assert told["metrics"] == metrics["metrics"]
    assert told["against"] == "baseline"
    assert [x for x in told["warnings"] if x.startswith("features[1] alone ranks as well: ")]


def test_a_card_is_a_page_whatever_it_tells_and_shows_the_worst_slices_first(tracked):
    manifest = tracked / "export" / "saved_model" / "assets.extra" / "manifest.json"
    told = json.loads(manifest.read_text())["card"]
    one = next(iter(told["metrics"].values()))
    slices = {f"a|{i}": one for i in range(300)}
    many = {f"feature {i}": "number" for i in range(300)}
    files = {"data": {**told["data"], "files": [f"{i}.csv" for i in range(300)]}}
    others = {"slices": slices, "features": many, "anomalies": ["one\nline"] * 300}
    text = card.text({**told, **others, **files, "description": None})
    assert len(text.splitlines()) < 130
    assert text.count("288 more are in `manifest.json`.") == 4
    assert "| a\\|0 | " in text
    assert "one line" in text
    assert "The key `serving.description` says more." in text
