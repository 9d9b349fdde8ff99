"""Training on prepared lists: what it sees, and what of it stays."""

import gc
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses, models
from tfrank_sel.pipelines.candidates import Candidate, Settings, list_scorer, scorer
from tfrank_sel.training import ensembles
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.fitting import train
from tfrank_sel.training.lists import PreparedLists

SIZES = (9, 3, 6, 5, 9, 2, 9, 4)
MOMENTS = [0.1, 0.2], [1.0, 2.0]


def batches():
    """Lists whose feature tells the label, two at a time; the second feature numbers the items."""
    for start in range(0, len(SIZES), 2):
        mask = np.arange(9) < np.array(SIZES[start : start + 2])[:, None]
        labels = np.where(mask, np.arange(9) % 3, np.nan).astype(np.float32)
        numbers = 100.0 * start + np.arange(18).reshape(2, 9)
        features = np.stack([np.nan_to_num(labels), numbers], axis=2).astype(np.float32)
        yield {"features": features, "mask": mask}, labels


def dataset():
    signature = (
        {"features": tf.TensorSpec([2, 9, 2]), "mask": tf.TensorSpec([2, 9], tf.bool)},
        tf.TensorSpec([2, 9]),
    )
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def preparation():
    return models.Preparation(*MOMENTS, within_list=True)


def trained(folder, candidate, settings, before=()):
    with PreparedLists(dataset(), dataset(), settings, folder / "prepared") as lists:
        told = []
        hooks = Hooks(told.append, logs=folder / "logs")
        found = train(candidate, preparation(), lists, hooks, before)
    assert not (folder / "prepared").exists()
    assert len(told) == sum(fit.epochs for fit in found.fits) - sum(
        fit.epochs for one in before for fit in one.fits
    )
    return found


@pytest.mark.long
def test_an_ensemble_prepares_once_and_what_was_trained_is_not_trained_again(tmp_path):
    settings = Settings(epochs=3, batch_size=4, hidden_units=[4])
    pair = Candidate([losses.SoftmaxLoss(), losses.RGCrossLoss()])
    baseline = trained(tmp_path, Candidate(losses.SoftmaxLoss()), settings)
    ours = trained(tmp_path, pair, settings, [baseline])
    assert isinstance(ours.model, models.Prepared)
    assert [fit.loss for fit in ours.fits] == ["softmax_loss", "rg_cross_loss"]
    assert ours.members[0] is baseline.model
    assert ours.fits[0] == baseline.fits[0]
    inputs, _ = next(batches())
    scores = [member(inputs) for member in ours.members]
    expected = models.Ensemble(ours.members)(inputs)
    np.testing.assert_allclose(ours.scores(inputs), expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(scores[0], scores[1])
    alone = trained(tmp_path, Candidate(losses.SoftmaxLoss()), settings)
    np.testing.assert_allclose(alone.model(inputs), baseline.model(inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gain", [0.05, 0.002, -0.05])
def test_a_smaller_ensemble_is_told_if_it_is_significantly_better(gain, monkeypatch):
    random = np.random.default_rng(0)
    whole, noise = random.random(200), 0.05 * random.normal(size=200)

    def measure(members, smaller, lists):
        assert [[*x] for x in smaller] == [[0, 1, 2], [1, 2], [0, 2], [0, 1], [0, 2], [0, 1], [0]]
        assert smaller[4:] == [{0: 1.0, 2: 1.0}, {0: 1.0, 1: 1.0}, {0: 1.0}]
        alone = whole + gain + noise
        return np.stack([whole, whole - 0.1, *[whole] * 4, alone]), 1.0 + np.arange(200) % 3

    monkeypatch.setattr(ensembles, "_validation_ndcg", measure)
    adds, better = ensembles.contributions([None] * 3, 1, None)
    np.testing.assert_allclose(adds, [0.1, 0.0, 0.0], atol=1e-12)
    assert [*better] == ([0] if gain == 0.05 else [])
    nothing = np.empty([7, 0]), np.empty(0)
    monkeypatch.setattr(ensembles, "_validation_ndcg", lambda *_: nothing)
    assert ensembles.contributions([None] * 3, 1, None) == ([None] * 3, ())


@pytest.mark.long
@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="of Linux")
def test_no_thread_of_tensorflow_is_left_by_a_training(tmp_path):
    settings = Settings(epochs=1, batch_size=4, hidden_units=[4])
    counts = []
    for _ in range(3):
        trained(tmp_path, Candidate(losses.SoftmaxLoss()), settings)
        gc.collect()
        counts.append(len(list(pathlib.Path("/proc/self/task").iterdir())))
    # two iterators that are left hold eight, after each training
    assert min(np.diff(counts)) < 8, counts


def test_validation_is_that_of_the_averaged_weights_on_all_lists(tmp_path):
    settings = Settings(epochs=1, batch_size=3, hidden_units=[4], averaging=0.5)
    found = trained(tmp_path, Candidate(losses.SoftmaxLoss()), settings)
    values = []
    for inputs, labels in batches():
        scores = found.model(inputs)
        values += losses.SoftmaxLoss(reduction="none")(labels, scores).numpy().tolist()
    history = found.fits[0].history
    np.testing.assert_allclose(history["val_loss"], np.mean(values), rtol=1e-5)
    # of a sample as large as the validation split, which here is all of it
    np.testing.assert_allclose(history["loss"], np.mean(values), rtol=1e-5)


@pytest.mark.parametrize("truncation", ["head", "top"])
def test_the_first_items_or_those_of_the_highest_labels_are_kept(tmp_path, truncation):
    settings = Settings(max_items=2, truncation=truncation)
    with PreparedLists(dataset(), dataset(), settings, tmp_path / "prepared") as lists:
        cache, _ = lists.of(models.Perceptron([4]))
        found = list(cache.batches(2, [2]).as_numpy_iterator())
    assert sorted(cache.sizes) == sorted(min(size, 2) for size in SIZES)
    kept = {"head": lambda labels: labels[:2], "top": lambda labels: sorted(labels)[-2:]}
    expected = [x for size in SIZES for x in kept[truncation]((np.arange(size) % 3).tolist())]
    labels = np.concatenate([labels[inputs["mask"]] for inputs, labels in found])
    assert sorted(labels.tolist()) == sorted(expected)


def test_a_scorer_sees_items_alone():
    inputs, _ = next(batches())
    alone = {name: x[:, :1] for name, x in inputs.items()}
    for make, is_alike in ((scorer, True), (list_scorer, False)):
        model = make(preparation(), Settings(hidden_units=[4], dropout=0.0))
        assert np.allclose(model(inputs)[:, :1], model(alone), atol=1e-5) == is_alike


def test_items_of_longer_lists_are_chosen_at_random(tmp_path):
    settings = Settings(max_items=4, hidden_units=[4])
    with PreparedLists(dataset(), dataset(), settings, tmp_path / "prepared") as lists:
        cache, _ = lists.of(models.ListScorer(*MOMENTS, [4]))
        assert sorted(cache.sizes) == sorted(min(size, 4) for size in SIZES)
        raw, _ = lists.of(models.Perceptron([4]))
        numbers = np.concatenate(
            [x["features"][x["mask"]][:, 1] for x, _ in raw.batches(2, [4]).as_numpy_iterator()]
        )
    assert len(set(numbers)) == len(numbers)
    assert (numbers % 9 >= 4).any()  # not the first ones


def wide(count):
    """Lists of `count` features: the first two are those of `batches`."""
    signature = (
        {"features": tf.TensorSpec([2, 9, count]), "mask": tf.TensorSpec([2, 9], tf.bool)},
        tf.TensorSpec([2, 9]),
    )

    def found():
        for inputs, labels in batches():
            features = np.tile(inputs["features"], [1, 1, 2])[..., :count]
            yield {**inputs, "features": features}, labels

    return tf.data.Dataset.from_generator(found, output_signature=signature)


def started(folder, candidate, count, start=None, before=(), **options):
    settings = Settings(epochs=1, batch_size=4, hidden_units=[4], **options)
    made = models.Preparation([0.1] * count, [2.0] * count, within_list=True)
    with PreparedLists(wide(count), wide(count), settings, folder / "prepared") as lists:
        hooks = Hooks(logs=folder / "logs")
        return train(candidate, made, lists, hooks, before, start=start)


@pytest.mark.long
def test_a_training_starts_from_the_weights_of_another_member_by_member(tmp_path):
    candidate = Candidate([losses.SoftmaxLoss(), losses.SigmoidCrossEntropyLoss()])
    first = started(tmp_path, candidate, 2)
    path = tmp_path / "ours.keras"
    first.model.save(path)
    start, still = keras.models.load_model(path), {"learning_rate": 1e-12, "weight_decay": 0.0}
    second = started(tmp_path, candidate, 4, start, before=[first], **still)
    inputs, _ = next(iter(wide(4)))
    narrow = {**inputs, "features": inputs["features"][..., :2]}
    for member, known in zip(second.members, first.members, strict=True):
        assert member is not known
        np.testing.assert_allclose(member(inputs), known(narrow), atol=1e-5)
    three = [losses.SoftmaxLoss(), losses.SigmoidCrossEntropyLoss(), losses.RGCrossLoss()]
    with pytest.raises(ValueError, match=r"as there are losses, 3\. Received: .* of 2"):
        started(tmp_path, Candidate(three), 4, start)


@pytest.mark.long
def test_a_model_of_a_user_starts_from_all_weights(tmp_path):
    def make(preparation, settings, units=3):
        dense = [keras.layers.Dense(units), keras.layers.Dense(1)]
        return keras.Sequential([*dense, keras.layers.Reshape([-1])])

    first = started(tmp_path, Candidate(losses.SoftmaxLoss(), make), 2)
    still = {"learning_rate": 1e-12, "weight_decay": 0.0}
    again = started(tmp_path, Candidate(losses.SoftmaxLoss(), make), 2, first.model, **still)
    for one, other in zip(again.model.get_weights(), first.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    wider = Candidate(losses.SoftmaxLoss(), make, {"units": 5})
    with pytest.raises(ValueError, match=r"kernel.* must have shape \(2, 5\). Received: \(2, 3\)"):
        started(tmp_path, wider, 2, first.model)
