"""The gain by which an exported model is evaluated on new data."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.pipelines.test_scoring import invoke, letor_lists, packed_model
from tfrank_sel import data, export, metrics
from tfrank_sel.data import letor
from tfrank_sel.ops import ranking


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("settings", "options", "gain", "has_mrr"),
    [
        ({}, [], "exponential", False),
        ({"gain": "linear", "seed": 3}, [], "linear", False),
        ({"gain": "linear"}, ["--set", "evaluation.gain=exponential"], "exponential", False),
        ({"gain": "exponential"}, ["--config", "run.toml"], "linear", True),
    ],
)
def test_a_model_is_evaluated_by_the_gain_of_its_training_or_a_given_one(
    tmp_path, monkeypatch, settings, options, gain, has_mrr
):
    monkeypatch.chdir(tmp_path)
    text = '[evaluation]\ngain = "linear"\n[blessing]\nmetric = "MRR"\n'
    (tmp_path / "run.toml").write_text(text)
    card = {"card": {"model": {"settings": settings}}}
    export.export(packed_model(), data.FeatureSpec(3), tmp_path / "model", metadata=card)
    lists = [dataclasses.replace(x, labels=x.labels + 1.0) for x in letor_lists(12)]
    letor.write(tmp_path / "lists.txt", lists)
    options = ["--metrics", tmp_path / "metrics.json", *options]
    done = invoke(
        "evaluate", "--model", tmp_path / "model", "--data", tmp_path / "lists.txt", *options
    )
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads((tmp_path / "metrics.json").read_text())["metrics"]
    measure = metrics.NDCG(10, gain=ranking.GAINS[gain], ties=metrics.ties.Averaged())
    score = tf.saved_model.load(str(tmp_path / "model")).signatures["predict"]
    values = []
    for one in letor.read(tmp_path / "lists.txt", 3):
        scores = score(
            features=tf.constant(one.features[None]), mask=tf.fill([1, len(one.labels)], True)
        )
        values.append(float(measure.curve(one.labels[None], scores["scores"], [10])[0, 0]))
    assert found["NDCG@10"]["ours"] == pytest.approx(np.mean(values), abs=1e-6)
    assert ("MRR" in found) == has_mrr  # labels above 0 make it 1
