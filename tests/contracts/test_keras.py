"""Contracts of what Keras asks of losses, metrics, layers and models."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.cases import EVERY_LOSS, EVERY_METRIC, LINKS, Case, name_of, one_per_class
from tests.models.test_modes import MODELS
from tfrank_sel import keras_versions, losses, metrics, models

RNG = np.random.default_rng(0)
IN_A_NEW_PROCESS = """
import json, sys
{imports}
configs = json.load(open(sys.argv[1]))
made = [keras.saving.deserialize_keras_object(config) for config in configs]
again = [keras.saving.serialize_keras_object(x) for x in made]
assert json.loads(json.dumps(again)) == configs
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "imports",
    [
        "import keras, tfrank_sel",
        pytest.param("import tfrank_sel, keras", marks=pytest.mark.long),
    ],
)
def test_keras_makes_every_class_of_the_imported_package(
    imports: str, tmp_path: pathlib.Path
) -> None:
    made = [case.make() for case in one_per_class(EVERY_LOSS + EVERY_METRIC)]
    made += [case.link for case in LINKS] + [make() for make, _ in MODELS] + [models.SoftTopK(2)]
    configs = tmp_path / "configs.json"
    configs.write_text(json.dumps([keras.saving.serialize_keras_object(x) for x in made]))
    code = IN_A_NEW_PROCESS.format(imports=imports)
    subprocess.run([sys.executable, "-c", code, configs], check=True)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("case", one_per_class(EVERY_METRIC), ids=name_of)
def test_metrics_have_the_state_that_keras_keeps(case: Case) -> None:
    metric, lists = case.make(), (case.labels(RNG, (4, 5)), RNG.normal(size=(4, 5)))
    metric.update_state(*lists)
    value = np.array(metric.result())
    again = keras.metrics.get(keras.metrics.serialize(metric))
    again.update_state(*lists)
    np.testing.assert_allclose(again.result(), value, rtol=1e-6)
    metric.reset_state()
    assert not np.any(metric.result())
    assert not any(np.any(variable.numpy()) for variable in metric.variables)
    if keras_versions.IS_KERAS_3:
        state = metric.stateless_update_state([v.value for v in metric.variables], *lists)
        np.testing.assert_allclose(metric.stateless_result(state), value, rtol=1e-6)


@pytest.mark.long
def test_a_model_of_two_masked_outputs_trains_and_loads(tmp_path: pathlib.Path) -> None:
    inputs = keras.Input([None, 3])
    x = keras.layers.Masking()(inputs)
    model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(x) for name in "ab"})
    model.compile(
        "sgd",
        {"a": losses.SoftmaxLoss(), "b": losses.PairwiseLogisticLoss()},
        loss_weights={"a": 2.0, "b": 0.5},
        metrics={"a": [metrics.NDCG(3)]},
        weighted_metrics={"b": [metrics.MRR()]},
    )
    features, labels = RNG.random([16, 5, 3]), RNG.integers(0, 2, [16, 5]).astype(float)
    features[:, 3:] = 0.0  # padding by the mask alone
    lists = features, {"a": labels, "b": labels}
    kept = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "model.keras"), "val_a_ndcg_at_3", mode="max", save_best_only=True
    )
    model.fit(*lists, validation_data=lists, epochs=1, verbose=0, callbacks=[kept])
    loaded = keras.models.load_model(tmp_path / "model.keras")
    values = loaded.evaluate(*lists, verbose=0, return_dict=True)
    scores = loaded.predict(features, verbose=0)
    shown = {name: (labels[:, :3], scores[name][:, :3]) for name in "ab"}
    expected = 2.0 * losses.SoftmaxLoss()(*shown["a"])
    expected += 0.5 * losses.PairwiseLogisticLoss()(*shown["b"])
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)
    for name, metric in (("a_ndcg_at_3", metrics.NDCG(3)), ("b_mrr", metrics.MRR())):
        [value] = [x for key, x in values.items() if key.endswith(name)]  # Keras 2 loads "a_a_..."
        np.testing.assert_allclose(value, metric(*shown[name[0]]), rtol=1e-5)
