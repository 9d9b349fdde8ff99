"""A loss and a model of the user, where TFX trains and evaluates."""

import json
import pathlib
import runpy
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.pipelines.test_candidates import Square, linear
from tests.tfx.conftest import FEATURES, layout_of, made_lists
from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.data.formats import Columns
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.evaluation import evaluation
from tfrank_sel.pipelines.evaluation.blessing import Rules, bless
from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists
from tfrank_sel.pipelines.tfx import sequences, training
from tfrank_sel.pipelines.tfx.sequences import SequenceExamples


def arguments(run, folder, base_model=None):
    """What Trainer gives to `run_fn` for a loss and a model of the user."""
    config = {
        "settings": Settings(epochs=1, batch_size=8, hidden_units=[4]).model_dump(),
        "candidate": Candidate(Square(), linear).get_config(),
        "columns": json.dumps(Columns().get_config()),
    }
    scaling = (run.artefact("Scaling", "scaling") / "scaling.json").read_text()
    return types.SimpleNamespace(
        custom_config=json.loads(json.dumps(config)),
        hyperparameters=json.loads(scaling),
        schema_path=str(run.artefact("SchemaGen", "schema") / "schema.pbtxt"),
        train_files=[run.split("train")],
        eval_files=[run.split("eval")],
        model_run_dir=str(folder / "logs"),
        serving_model_dir=str(folder / "model"),
        base_model=base_model,
    )


def test_run_fn_trains_the_loss_and_the_model_that_it_is_told(run, tmp_path, monkeypatch):
    calls, call = [], Square.call
    monkeypatch.setattr(Square, "call", lambda *args: calls.append(args) or call(*args))
    training.run_fn(arguments(run, tmp_path))
    assert calls
    predict = tf.saved_model.load(str(tmp_path / "model")).signatures["predict"]
    features = np.random.default_rng(0).normal(size=(1, 4, FEATURES)).astype(np.float32)
    low, none, high = (
        predict(features=tf.constant(sign * features), mask=tf.fill([1, 4], True))["scores"]
        for sign in (-1.0, 0.0, 1.0)
    )
    np.testing.assert_allclose(low + high, 2.0 * none, atol=1e-5)  # of no other model than `linear`
    assert np.ptp(high) > 0.0


def test_a_base_model_of_another_class_is_refused(run, tmp_path):
    artefact = run.artefact("Trainer", "model")
    given = arguments(run, tmp_path, str(artefact / "Format-Serving"))
    with pytest.raises(
        data.InputError, match=rf"^{artefact}: a warm start from it is not possible\."
    ):
        training.run_fn(given)


def first_feature(inputs):
    return inputs["features"][..., 0]


def last_feature(inputs):
    return inputs["features"][..., -1]


def test_both_layouts_are_evaluated_and_blessed_alike(tmp_path):
    spec, made = data.FeatureSpec(FEATURES), made_lists()
    sequences.write(tmp_path / "sequences.tfrecord", made)
    with tf.io.TFRecordWriter(str(tmp_path / "packed.tfrecord")) as writer:
        for one in made:
            record = packed.serialize(
                one.features, spec, labels=one.labels, query_id=one.query_id.encode()
            )
            writer.write(record)
    layout = layout_of({f"feature_{i:03d}": "float_list" for i in range(1, FEATURES + 1)})
    of_run, of_tfx = (
        evaluation.evaluate(last_feature, first_feature, found, str(tmp_path), seed=1)
        for found in (
            StoredLists([str(tmp_path / "packed.tfrecord")], spec),
            SequenceExamples(
                [str(tmp_path / "sequences.*")], layout.spec, layout.context, layout=layout
            ),
        )
    )
    assert of_run == of_tfx
    assert bless(of_run, Rules()) == bless(of_tfx, Rules())
    assert bless(of_tfx, Rules()).reasons[0].startswith("NDCG@10 0.")
    assert bless(of_tfx, Rules(margin=1.0, slice_margin=1.0)).blessed


def test_the_definition_of_a_pipeline_names_what_other_machines_can_import():
    path = pathlib.Path(__file__).parents[2] / "pipelines" / "tfx" / "pipeline.py"
    defined = runpy.run_path(str(path))

    assert defined["CANDIDATE"].get_config()["make_model"].endswith(":list_scorer")
    assert defined["RULES"].metric == "NDCG@10"
