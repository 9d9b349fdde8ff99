"""Function that TFX's Trainer runs: trains a candidate and exports it for serving."""

import collections
import logging
import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from tfx.utils import io_utils
from tfx.v1.components import FnArgs

from tfrank_sel import export
from tfrank_sel.data import batching
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.tfx import lists
from tfrank_sel.pipelines.training import SHUFFLE_BUFFER, compiled, seen_by, stopping

WARM_UP_LISTS = 4

_log = logging.getLogger(__name__)


def run_fn(fn_args: FnArgs) -> None:
    """Trains on the split `train` until `eval` gets no better, and exports.

    Args:
        fn_args: What Trainer gives: `custom_config` holds the fields of `Settings` as `settings`,
            and the config of a `Candidate` as `candidate`; `hyperparameters` what `Scaling` wrote.
    """
    config, known = fn_args.custom_config, fn_args.hyperparameters
    settings, candidate = Settings(**config["settings"]), Candidate.from_config(config["candidate"])
    layout = lists.Layout.load(os.path.dirname(fn_args.schema_path))
    train, held_out = (lists.records(*x) for x in (fn_args.train_files, fn_args.eval_files))
    model = compiled(candidate, known["mean"], known["variance"], settings)
    sizes = {
        split: {int(size): count for size, count in found.items()}
        for split, found in known["list_sizes"].items()
    }
    batches = _batches(train, held_out, layout, sizes, settings)
    learned, measured = (seen_by(model, found) for found in batches)
    model.fit(
        learned,
        steps_per_epoch=math.ceil(sum(sizes["train"].values()) / settings.batch_size),
        epochs=settings.epochs,
        validation_data=measured,
        callbacks=[
            keras.callbacks.TensorBoard(fn_args.model_run_dir),
            *stopping(settings),
            _Told(),
        ],
        shuffle=False,  # the data set shuffles
        verbose=0,
    )
    _export(model, layout, lists.requests(held_out, layout, WARM_UP_LISTS), fn_args)


def _batches(
    train: tf.data.Dataset,
    held_out: tf.data.Dataset,
    layout: lists.Layout,
    sizes: Mapping[str, Mapping[int, int]],
    settings: Settings,
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Endless batches to learn from, and one pass to measure on, in the same few shapes."""
    size = settings.batch_size
    every = collections.Counter(sizes["train"]) + collections.Counter(sizes["eval"])
    edges = batching.bucket_edges(every, min_lists=size)
    shuffled = train.shuffle(SHUFFLE_BUFFER, seed=settings.seed).repeat()
    learned = lists.batches(shuffled, layout, batch_size=size, bucket_edges=edges)
    measured = lists.batches(held_out, layout, batch_size=size, bucket_edges=edges)
    # Told how many batches there are, Keras does not warn when they end.
    count = batching.num_batches(sizes["eval"], batch_size=size, bucket_edges=edges)
    return learned, measured.apply(tf.data.experimental.assert_cardinality(count))


def _export(
    model: keras.Model, layout: lists.Layout, warm_up: list[bytes], fn_args: FnArgs
) -> None:
    """Exports on this machine, and copies to where the pipeline keeps its artefacts."""
    with tempfile.TemporaryDirectory() as folder:
        saved_model = os.path.join(folder, "model")
        export.export(
            model,
            layout.spec,
            saved_model,
            examples=warm_up,
            metadata={"feature_names": list(layout.features)},
        )
        io_utils.copy_dir(saved_model, fn_args.serving_model_dir)


class _Told(keras.callbacks.Callback):
    """Logs how each epoch went."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        epochs, ndcg = self.params["epochs"], (logs or {})["val_ndcg"]
        _log.info("epoch %d/%d, validation NDCG@10 %.4f", epoch + 1, epochs, ndcg)
