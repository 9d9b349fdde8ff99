"""Our losses and metrics train inside a pipeline of tensorflow-ranking, on ELWC files of ours."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses, metrics
from tfrank_sel.data import elwc
from tfrank_sel.data.spec import FeatureSpec

tfr = pytest.importorskip("tensorflow_ranking")

SPEC = FeatureSpec(num_features=3)
EXAMPLE = {SPEC.features: tf.io.FixedLenFeature([3], tf.float32, [0.0] * 3)}
LABEL = (SPEC.label, tf.io.FixedLenFeature([1], tf.float32, [-1.0]))
LISTS = 32


class Pipeline(tfr.keras.pipeline.ModelFitPipeline):
    def build_loss(self) -> keras.losses.Loss:
        return losses.SoftmaxLoss()

    def build_metrics(self) -> list[keras.metrics.Metric]:
        return metrics.tfr()

    def build_weighted_metrics(self) -> list[keras.metrics.Metric]:
        return [metrics.NDCG(5, name="weighted_metric/ndcg_5")]


@pytest.fixture
def files(tmp_path: pathlib.Path) -> str:
    """Lists of 2 to 6 items whose labels follow a feature."""
    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(tmp_path / "lists.tfrecord")) as writer:
        for _ in range(LISTS):
            features = rng.normal(size=[rng.integers(2, 7), 3])
            labels = np.clip(features[:, 0].round() + 1.0, 0.0, 4.0)
            writer.write(elwc.serialize(features, SPEC, labels=labels))
    return str(tmp_path / "lists.tfrecord")


def test_losses_and_metrics_train_in_a_pipeline(
    files: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = []
    fit = keras.Model.fit
    monkeypatch.setattr(
        keras.Model, "fit", lambda *args, **kwargs: histories.append(fit(*args, **kwargs))
    )
    model_builder = tfr.keras.model.ModelBuilder(
        input_creator=tfr.keras.model.FeatureSpecInputCreator({}, EXAMPLE),
        preprocessor=lambda context, example, mask: (context, example),
        scorer=tfr.keras.model.DNNScorer(hidden_layer_dims=[4], output_units=1),
        mask_feature_name="mask",
    )
    dataset_builder = tfr.keras.pipeline.SimpleDatasetBuilder(
        {},
        EXAMPLE,
        "mask",
        LABEL,
        tfr.keras.pipeline.DatasetHparams(files, files, train_batch_size=8, valid_batch_size=8),
    )
    hparams = tfr.keras.pipeline.PipelineHparams(
        model_dir=str(tmp_path / "model"),
        num_epochs=3,
        steps_per_epoch=8,
        validation_steps=4,
        learning_rate=0.05,
        loss="softmax_loss",
        steps_per_execution=1,
        use_weighted_metrics=True,
        export_best_model=True,
        best_exporter_metric="ndcg_5",
        best_exporter_metric_higher_better=True,
    )
    Pipeline(model_builder, dataset_builder, hparams).train_and_validate(verbose=0)
    [history] = histories
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert history.history["val_metric/ndcg_5"][-1] > 0.85
    assert {m.name for m in metrics.tfr()} < set(history.history)
    assert "val_weighted_metric/ndcg_5" in history.history
    exported = tf.saved_model.load(str(tmp_path / "model" / "export" / "best_model_by_metric"))
    predict = exported.signatures["tensorflow/serving/predict"]
    lists = tf.constant([elwc.serialize(np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]), SPEC)])
    [[best, worst]] = next(iter(predict(lists).values())).numpy()
    assert best > worst
