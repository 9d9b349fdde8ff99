"""After a refused or stopped call, a fitted object is what it was before it."""

import pickle
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")  # the second stack has none

from tfrank_sel import Ranker, losses, models
from tfrank_sel.models.als import ItemSolver, RGFactorizer, alternation, fit_towers, progress
from tfrank_sel.training import fitting

TAKEN = pd.DataFrame(
    {"user": [f"u{k % 6}" for k in range(60)], "item": [f"i{k * k % 11}" for k in range(60)]}
)
OTHER = TAKEN.replace({"u0": "u9", "i0": "i9"})
STRANGERS = OTHER.assign(user=OTHER.user + " of another shop")
RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(60, 2)), columns=["a", "b"])
Y, QID = (X.a > 0.0).astype(int), np.repeat(np.arange(10), 6)


def stop(*args: Any, **kwargs: Any) -> Any:
    raise KeyboardInterrupt


def towers(model: Any, *interactions: Any, **others: Any) -> None:
    sides = [keras.Sequential([keras.Input([3]), keras.layers.Dense(2)]) for _ in "ui"]
    features, sgd = (np.ones([6, 3]), np.ones([11, 3])), keras.optimizers.SGD(0.1)
    fit_towers(model, *interactions, sides, features, sgd, epochs=1, **others)


NAN = pd.DataFrame({"user": ["new"], "item": ["i1"], "gain": [np.nan]})
# of each stage: the interactions, the validation, the weights, the factors, the sweeps, the end
REFUSALS = {
    "columns": lambda model: model.fit(OTHER[["user"]]),
    "validation": lambda model: model.fit(OTHER, STRANGERS),
    "list_weights": lambda model: model.fit(OTHER, list_weights=[1.0, 1.0]),
    "factors": lambda model: model.fit(OTHER, factors=(np.ones([6, 3]), np.ones([11, 3]))),
    "gain": lambda model: model.partial_fit(NAN),
    "partial weights": lambda model: model.partial_fit(OTHER, list_weights=[-1.0]),
    "indices": lambda model: model.partial_fit((np.arange(3), np.arange(3))),
    "towers": lambda model: towers(model, (np.arange(3), np.arange(3)), validation=([7], [0])),
    "width of towers": lambda model: towers(model, (np.arange(3), np.arange(3))),
}
STOPPED = {
    "sweep": ("epoch_metrics", lambda model: model.fit(OTHER)),
    "end": ("warn_if_collapsed", lambda model: model.fit(OTHER)),
}


def factorizer() -> RGFactorizer:
    return RGFactorizer(num_factors=4, regularization=0.01, sweeps=2, num_threads=1)


@pytest.mark.parametrize("stage", [*REFUSALS, *STOPPED])
def test_a_factorizer(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, fresh = factorizer().fit(TAKEN), factorizer()
    states = [pickle.dumps(vars(model)) for model in (fitted, fresh)]
    if stage in STOPPED:
        monkeypatch.setattr(progress, STOPPED[stage][0], stop)
    call = REFUSALS[stage] if stage in REFUSALS else STOPPED[stage][1]
    for model, state in zip((fitted, fresh), states, strict=True):
        if model is fresh and stage == "indices":
            continue  # which a fit may begin with
        with pytest.raises((ValueError, KeyboardInterrupt)):
            call(model)
        assert pickle.dumps(vars(model)) == state
    assert not hasattr(fresh, "user_factors_")


@pytest.mark.parametrize("stage", ["labels", "weights", "eval_set", "training"])
def test_a_ranker(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {
        "labels": {"y": Y - 1},
        "weights": {"sample_weight": [-1.0] * 60},
        "eval_set": {"eval_set": [(X, Y)]},
        "training": {},
    }[stage]
    ranker = Ranker()
    fitted = {
        "features_": {},
        "feature_names_in_": np.array(["b", "a"], object),
        "model_": object(),
    }
    monkeypatch.setattr(fitting, "train", stop)
    for before in ({}, fitted):
        vars(ranker).update(before)
        state = dict(vars(ranker))
        with pytest.raises((ValueError, KeyboardInterrupt)):
            ranker.fit(X, **{"y": Y, "qid": QID, **given})
        assert vars(ranker) == state


class Stop(keras.callbacks.Callback):
    on_epoch_end = stop


@pytest.mark.parametrize("stage", ["an epoch", "weights", "the solution"])
def test_a_model_with_an_item_solver(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    items, inputs = RANDOM.integers(1, 10, [8, 1]), np.ones([8, 2], np.float32)
    features = keras.Input([2])
    model = keras.Model(features, keras.layers.Dense(3)(features))
    model.items = keras.layers.Embedding(10, 3)
    model.items.build(None)
    loss = losses.CatalogueLoss(losses.RG2Loss(), model.items)
    model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
    callbacks = [ItemSolver(inputs, items), *([Stop()] if stage == "an epoch" else [])]
    weights = {"sample_weight": np.ones(8)} if stage == "weights" else {}
    if stage == "the solution":
        monkeypatch.setattr(alternation.RGFactorizer, "_solver", stop)
    before = model.items.get_weights()[0]
    with pytest.raises((ValueError, KeyboardInterrupt)):
        model.fit(inputs, items, callbacks=callbacks, verbose=0, **weights)
    assert model.items.trainable
    if stage != "an epoch":
        np.testing.assert_array_equal(model.items.get_weights()[0], before)
    before = model.items.get_weights()[0]
    model.fit(inputs, items, verbose=0)
    assert np.any(model.items.get_weights()[0] != before)


def test_a_warm_start_of_an_ensemble() -> None:
    def ensemble(width: int) -> Any:
        scorers = [models.Scorer([0.0], [1.0], [x]) for x in (4, width)]
        model = models.Ensemble(scorers)
        model.build([None, None, 1])
        return model

    model = ensemble(4)
    before = model.get_weights()
    with pytest.raises(ValueError, match="must have shape"):
        models.warm_start(model, ensemble(5))
    for x, y in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(x, y)
