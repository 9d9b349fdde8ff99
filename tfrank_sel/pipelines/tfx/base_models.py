"""Base models: trained models in the artefacts of earlier runs, for warm starts."""

import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import keras
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfrank_sel import data, models
from tfrank_sel.errors import received
from tfrank_sel.features import FeatureTypes
from tfrank_sel.pipelines import Statistics

MODEL, SCALING = "model.keras", "scaling.json"


def keep(model: keras.Model, scaling: Mapping[str, Any], artefact: str) -> None:
    """Stores a trained model in its artefact, in addition to the served model.

    Args:
        model: The model.
        scaling: Output of `Scaling` for its training.
        artefact: Folder of the artefact.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, MODEL)
        model.save(file)
        io_utils.copy_file(file, os.path.join(artefact, MODEL), overwrite=True)
    io_utils.write_string_file(os.path.join(artefact, SCALING), json.dumps(dict(scaling)) + "\n")


def statistics(artefact: str) -> Statistics | None:
    """Returns the training statistics of a base model; None if it has none.

    Args:
        artefact: Folder of its artefact.
    """
    # Artefacts of earlier versions have no scaling.
    if not fileio.exists(os.path.join(artefact, SCALING)):
        return None
    return Statistics.of(_read_scaling(artefact)["statistics"])


def preparation(artefact: str, features: FeatureTypes) -> models.Preparation:
    """Returns the preparation of a base model.

    Args:
        artefact: Folder of its artefact.
        features: Type of each feature of the lists, which must equal those of the base model.

    Raises:
        tfrank_sel.data.InputError: If the artefact has no base model, or one with other features.
    """
    before = models.Preparation.from_config(_read_scaling(artefact)["preparation"])
    old, new = before.features or {}, {name: kind.config() for name, kind in features.items()}
    other = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if other or list(old) != list(new):
        reason = "the base model must have the features of the lists, of the same types and order"
        received = ", ".join(other) or "another order"
        raise data.InputError(artefact, f"{reason}. Differences: {received}")
    return before


def model(artefact: str) -> keras.Model:
    """Returns a base model.

    Args:
        artefact: Folder of its artefact.

    Raises:
        tfrank_sel.data.InputError: If the artefact has no base model, or one with unknown classes.
    """
    kept = _file(artefact, MODEL)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, MODEL)
        io_utils.copy_file(kept, file)
        try:
            return keras.models.load_model(file, compile=False)
        except (TypeError, ValueError) as error:
            reason = "the classes of the base model must be known to this pipeline"
            raise data.InputError(artefact, received(reason, error)) from error


def _read_scaling(artefact: str) -> dict[str, Any]:
    return json.loads(io_utils.read_string_file(_file(artefact, SCALING)))


def _file(artefact: str, name: str) -> str:
    path = os.path.join(artefact, name)
    if not fileio.exists(path):
        wanted = f"the artefact of a base model must contain {name}, written by Trainer"
        reason = received(wanted, "none. Run once without a warm start to write it")
        raise data.InputError(artefact, reason)
    return path
