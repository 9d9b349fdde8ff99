"""An interrupted training resumes, and ends as the undisturbed one does, to the last bit."""

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.pipelines.test_training import batches, dataset, preparation
from tfrank_sel import losses, models
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.training.callbacks import Epoch, Hooks
from tfrank_sel.training.fitting import train
from tfrank_sel.training.lists import PreparedLists

# dropout, averaged weights, a schedule, and passes whose end is not that of an epoch
SETTINGS = Settings(
    epochs=6,
    batch_size=3,
    hidden_units=[8, 4],
    dropout=0.4,
    averaging=0.7,
    patience=3,
    schedule={"class": "CosineDecay"},
)
TIMES = ("seconds_per_step", "lists_per_second", "items_per_second")


def candidate(**options):
    noisy = losses.GumbelLoss(losses.ApproxNDCGLoss(), seed=3, name="noisy")
    return Candidate([noisy, losses.SoftmaxLoss()], **options)


def trained(folder, backup=None, on_epoch=lambda epoch: None, ours=None, **options):
    with PreparedLists(dataset(), dataset(), SETTINGS, folder / "prepared") as lists:
        hooks = Hooks(
            on_epoch, optimizer=instantiate.optimizer, logs=folder / "logs", backup=backup
        )
        return train(ours or candidate(), preparation(), lists, hooks, **options)


def interrupting(*, after):
    """A function that raises an exception after so many epochs, and what it was told."""
    told = []

    def on_epoch(epoch):
        told.append(epoch)
        if len(told) == after:
            raise InterruptedError

    return on_epoch, told


def outcome(found):
    fits = [dataclasses.asdict(fit) for fit in found.fits]
    fits = [{name: x for name, x in fit.items() if name not in TIMES} for fit in fits]
    return fits, [x.tolist() for member in found.members for x in member.get_weights()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    found = outcome(trained(folder))
    assert found == outcome(trained(folder))  # without which nothing could be told
    first, second = found[0]
    assert min(first["epochs"], second["epochs"]) > 3
    return found


def test_a_backup_changes_nothing(tmp_path, undisturbed):
    told = []
    assert outcome(trained(tmp_path, tmp_path / "backup", told.append)) == undisturbed
    count = len(told)
    found = trained(tmp_path, tmp_path / "backup", told.append)
    assert len(told) == count  # what is done is not done again
    assert outcome(found) == undisturbed
    inputs, _ = next(batches())
    assert np.isfinite(found.scores(inputs)).all()


def test_interruptions_in_several_epochs_and_models_change_nothing(tmp_path, undisturbed):
    backup, all_told = tmp_path / "backup", []
    for after in itertools.count(1):
        on_epoch, told = interrupting(after=after)
        try:
            found = trained(tmp_path, backup, on_epoch)
        except InterruptedError:
            continue
        finally:
            all_told.append({(epoch.member, epoch.number) for epoch in told})
        break
    assert outcome(found) == undisturbed
    assert [min(seen) for seen in all_told[:3]] == [(1, 1), (1, 1), (1, 2)]
    assert any(max(seen)[0] == 2 for seen in all_told[:-1])  # one was within the second model
    assert set().union(*all_told) == {
        (member, number)
        for member, fit in enumerate(found.fits, start=1)
        for number in range(1, fit.epochs + 1)
    }


def test_logs_hold_each_epoch_once(tmp_path):
    def scalars():
        [folder] = tmp_path.glob("logs/noisy/train")
        found = EventAccumulator(str(folder)).Reload()
        return {
            tag: [(x.step, tf.make_ndarray(x.tensor_proto).item()) for x in found.Tensors(tag)]
            for tag in ("epoch_loss", "epoch_learning_rate")
        }

    trained(tmp_path)
    expected = scalars()
    assert len(expected["epoch_loss"]) > 3
    for path in (tmp_path / "logs").rglob("events*"):
        path.unlink()
    with pytest.raises(InterruptedError):
        trained(tmp_path, tmp_path / "backup", interrupting(after=3)[0])
    trained(tmp_path, tmp_path / "backup")
    assert scalars() == expected


def test_a_model_and_a_loss_of_the_user_resume(tmp_path):
    class Wobbly(keras.losses.Loss):
        """Weights each call by its number."""

        def __init__(self):
            super().__init__(name="wobbly")
            self.calls = tf.Variable(0.0)

        def call(self, y_true, y_pred):
            gaps = tf.where(tf.math.is_nan(y_true), 0.0, y_pred - y_true) ** 2
            return tf.reduce_mean(gaps, axis=1) * tf.sin(self.calls.assign_add(1.0))

    def ours():
        return Candidate(Wobbly(), lambda preparation, settings: keras.Sequential(
            [
                keras.layers.Dense(4),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.3),
                keras.layers.Dense(1),
                keras.layers.Reshape([-1]),
            ]
        ))  # fmt: skip

    expected = outcome(trained(tmp_path, ours=ours()))
    backup = tmp_path / "backup"
    with pytest.raises(InterruptedError):
        trained(tmp_path, backup, interrupting(after=3)[0], ours=ours())
    assert outcome(trained(tmp_path, backup, ours=ours())) == expected
    assert outcome(trained(tmp_path, backup, ours=ours())) == expected


def test_a_backup_of_another_training_is_refused(tmp_path):
    backup = tmp_path / "backup"
    with pytest.raises(InterruptedError):
        trained(tmp_path, backup, interrupting(after=2)[0])
    wider = candidate(
        make_model=lambda preparation, settings: models.Prepared(
            preparation, models.Perceptron([16, 4])
        )
    )
    message = r"is the backup of another training: variable 0 must be .*\(6, 16\).*\(6, 8\)"
    with pytest.raises(ValueError, match=message):
        trained(tmp_path, backup, ours=wider)
    (backup / "noisy.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"noisy\.npz: expected a backup of a training; remove it"):
        trained(tmp_path, backup)


def test_an_epoch_tells_how_it_went_and_how_long_the_others_may_take(tmp_path):
    told = []
    trained(tmp_path, on_epoch=told.append)
    first = [epoch for epoch in told if epoch.member == 1]
    assert [epoch.number for epoch in first] == list(range(1, len(first) + 1))
    assert {(x.loss, x.epochs, x.members) for x in first} == {("noisy", 6, 2)}
    assert first[1].seconds_left > 0.0
    if told[-1].number == told[-1].epochs:
        assert told[-1].seconds_left == 0.0
    line = "noisy: epoch 12/60, validation NDCG@10 0.4805"
    assert str(Epoch("noisy", 12, 60, 0.48049, 1, 2, 40.2)) == line


def start(folder):
    """A training in a process of its own, which writes its outcome to a file."""
    command = [sys.executable, "-m", "tests.pipelines.test_resume", str(folder)]
    return subprocess.Popen(command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


@pytest.mark.long
def test_kills_at_any_time_change_nothing(tmp_path, undisturbed):
    rng = np.random.default_rng(int(time.time()))
    for place in ("noisy", "noisy", "softmax_loss"):
        process = start(tmp_path)
        state = tmp_path / "backup" / f"{place}.npz"
        until = time.monotonic() + 120
        while not state.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start(tmp_path).wait(timeout=300) == 0
    assert json.loads((tmp_path / "outcome.json").read_text()) == list(undisturbed)


def main(folder):
    found = trained(folder, folder / "backup", lambda epoch: time.sleep(0.02))
    (folder / "outcome.json").write_text(json.dumps(outcome(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
