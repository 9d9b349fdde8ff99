"""Function for TFX's Trainer, which trains a candidate and exports it for serving."""

import logging
import os
import tempfile
from pathlib import Path

import keras
from tfx.utils import io_utils
from tfx.v1.components import FnArgs

from tfrank_sel import data, export, models
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.pipelines.tfx import base_models, sequences
from tfrank_sel.training import Hooks, PreparedLists, StartError, train

WARM_UP_LISTS = 4

_log = logging.getLogger(__name__)


def run_fn(fn_args: FnArgs) -> None:
    """Trains on the split `train` with early stopping on `eval`, exports, and stores the model.

    Args:
        fn_args: Arguments of Trainer: `custom_config` has the fields of `Settings` as `settings`,
            the config of a `Candidate` as `candidate` and that of `Columns`, as JSON, as `columns`;
            `hyperparameters` is the output of `Scaling`; `base_model`, if not None, is the folder
            of the served model for a warm start.

    Raises:
        tfrank_sel.data.InputError: If the artefact of `base_model` has no model that fits.
    """
    config, hyperparameters = fn_args.custom_config, fn_args.hyperparameters
    settings, candidate = Settings(**config["settings"]), Candidate.from_config(config["candidate"])
    layout = sequences.SequenceSchema.load(os.path.dirname(fn_args.schema_path), config["columns"])
    base = fn_args.base_model and os.path.dirname(fn_args.base_model)
    start = base and base_models.model(base)
    learning, held_out = (sequences.records(*x) for x in (fn_args.train_files, fn_args.eval_files))
    with tempfile.TemporaryDirectory() as folder:
        learned, measured = (
            records.batch(sequences.PARSED_AT_ONCE).map(layout.inputs)
            for records in (learning, held_out)
        )
        prepared = PreparedLists(learned, measured, settings, Path(folder) / "prepared")
        preparation = models.Preparation.from_config(hyperparameters["preparation"])
        hooks = Hooks(_log.info, optimizer=instantiate.optimizer, logs=fn_args.model_run_dir)
        try:
            trained = train(candidate, preparation, prepared, hooks, start=start)
        except StartError as error:
            raise data.InputError(base, f"a warm start from it is not possible. {error}") from error
    warm_up = sequences.requests(fn_args.eval_files, layout, WARM_UP_LISTS)
    _export(trained.model, layout, warm_up, fn_args)
    base_models.keep(trained.model, hyperparameters, os.path.dirname(fn_args.serving_model_dir))


def _export(
    model: keras.Model, layout: sequences.SequenceSchema, warm_up: list[bytes], fn_args: FnArgs
) -> None:
    """Exports on this machine, and copies the export to the artefacts of the pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        saved_model = os.path.join(folder, "model")
        export.export(
            model,
            layout,
            saved_model,
            examples=warm_up,
            metadata={"feature_names": layout.names},
        )
        io_utils.copy_dir(saved_model, fn_args.serving_model_dir)
